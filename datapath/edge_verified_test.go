package datapath

import (
	"testing"
	"time"

	"weir/internal/testroot"
)

// The edge, and the switch program in edge mode, stay cheap to verify.
func TestEdge_IsCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for _, shrink := range []FairQShrink{FairQShrinkAllow, FairQShrinkAvoid} {
		spec, err := loadEdge()
		if err != nil {
			t.Fatal(err)
		}
		c := EdgeConfig{Shrink: shrink}.withDefaults()
		if err := c.set(spec); err != nil {
			t.Fatal(err)
		}
		var p edgePrograms
		if err := spec.LoadAndAssign(&p, nil); err != nil {
			t.Fatal(err)
		}
		checkVerified(t, "edge, applying", p.WeirEdgeApply)
		checkVerified(t, "edge, guarding", p.WeirEdgeGuard)
		_ = p.Close()
	}
	for _, count := range []FairQCount{FairQCountActive, FairQCountHandshake} {
		c := FairQConfig{Count: count, Edge: FairQEdge{Interval: 10 * time.Millisecond}}.withDefaults()
		s, err := newFairQSource(&c)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.openMaps()
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.load(m)
		if err != nil {
			t.Fatal(err)
		}
		checkVerified(t, "fairq in edge mode", p.WeirFairq)
		_, _ = p.Close(), m.Close()
	}
}
