package datapath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"weir/internal/testroot"
)

// verifiedMax is how many instructions the verifier may walk for one program: far below the million that
// it allows, so that a load takes milliseconds and another kernel's verifier finds room.
const verifiedMax = 50_000

// Every configuration of the switch program, and the shim, stay cheap to verify.
func TestPrograms_AreCheapToVerify(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	for _, scale := range []FairQScale{FairQScaleLearn, FairQScaleShim, FairQScaleUnify} {
		for _, shrink := range []FairQShrink{FairQShrinkAllow, FairQShrinkAvoid} {
			for _, count := range []FairQCount{FairQCountActive, FairQCountHandshake} {
				c := FairQConfig{Scale: scale, Shrink: shrink, Count: count, UnifyShift: 7}.withDefaults()
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
				checkVerified(t, fmt.Sprintf("fairq, scale %d, shrink %d, count %d", scale, shrink, count), p.WeirFairq)
				_, _ = p.Close(), m.Close()
			}
		}
	}
	var shim shimPrograms
	if err := loadShimObjects(&shim, nil); err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	checkVerified(t, "shim, sending", shim.WeirShimSend)
	checkVerified(t, "shim, clearing", shim.WeirShimClear)
	checkVerified(t, "shim, reading", shim.WeirShimHear)
}

// What records the law for a differential run is in a program of its own: the one that switches run has none of it.
func TestPrograms_HaveNoTrace(t *testing.T) {
	spec, err := loadFairq()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		if strings.HasPrefix(name, "law_") {
			t.Errorf("the switch program has the map %s", name)
		}
	}
}

func checkVerified(t *testing.T, name string, p *ebpf.Program) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok || n > verifiedMax {
		t.Errorf("%s: %d instructions verified, want %d at most", name, n, verifiedMax)
	}
	t.Logf("%s: %d", name, n)
}
