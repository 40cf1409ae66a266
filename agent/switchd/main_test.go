package switchd_test

import (
	"os"
	"testing"

	"weir/agent/switchd"
	"weir/agent/switchd/fairq"
	"weir/agent/switchd/lossrepair"
)

func TestMain(m *testing.M) {
	switchd.TestLaw = fairq.Law{}
	switchd.TestOther = lossrepair.Law{}
	switchd.TestKernel = func(c *switchd.Common) (any, error) { return fairq.KernelConfig(c) }
	os.Exit(m.Run())
}
