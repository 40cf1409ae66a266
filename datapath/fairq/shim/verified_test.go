package shim

import (
	"testing"

	"weir/datapath/internal/bpftest"
	"weir/internal/testroot"
)

// The verifier walks few instructions for the shim's programs.
func TestShim_IsCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	var shim shimPrograms
	if err := loadShimObjects(&shim, nil); err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	bpftest.CheckVerified(t, "shim, sending", shim.WeirShimSend)
	bpftest.CheckVerified(t, "shim, clearing", shim.WeirShimClear)
	bpftest.CheckVerified(t, "shim, reading", shim.WeirShimHear)
}
