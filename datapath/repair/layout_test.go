package repair

import (
	"testing"

	"weir/datapath/internal/cdefine"
	"weir/datapath/reading"
)

func TestCounts_HaveTheLayoutOfC(t *testing.T) {
	cdefine.SameLayout(t, kernelRepairCounts{}, reading.RepairCounts{})
}
