package fairq

import (
	"testing"

	"weir/datapath/internal/cdefine"
	"weir/datapath/reading"
)

func TestRepairCounts_HaveTheLayoutOfC(t *testing.T) {
	cdefine.SameLayout(t, fairqRepairCounts{}, reading.RepairCounts{})
}
