package edge

import (
	"testing"

	"weir/datapath/fairq"
	"weir/datapath/internal/bpftest"
	"weir/internal/testroot"
)

// The verifier walks few instructions for the edge's programs.
func TestEdge_IsCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for _, shrink := range []fairq.Shrink{fairq.ShrinkAllow, fairq.ShrinkAvoid} {
		spec, err := loadEdge()
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Shrink: shrink}.withDefaults()
		if err := c.set(spec); err != nil {
			t.Fatal(err)
		}
		var p edgePrograms
		if err := spec.LoadAndAssign(&p, nil); err != nil {
			t.Fatal(err)
		}
		bpftest.CheckVerified(t, "edge, applying", p.WeirEdgeApply)
		bpftest.CheckVerified(t, "edge, guarding", p.WeirEdgeGuard)
		_ = p.Close()
	}
}
