package lab

import (
	"fmt"
	"testing"

	"weir/internal/testroot"
)

// needOVS gives a network's configuration with switches that are Open vSwitches. Where the lab itself would
// refuse them, the test is skipped for the same reason.
func onOVS(t *testing.T, g *graphBuilder) *graphBuilder {
	t.Helper()
	testroot.Need(t, "makes network namespaces")
	g.kind = "ovs"
	if err := CheckHost(g.config()); err != nil {
		t.Skip(err)
	}
	return g
}

func TestOVS_GuestsReachEachOther(t *testing.T) {
	for name, g := range map[string]*graphBuilder{
		"dumbbell": dumbbell(2, false), "racks": racks(2, 2, true), "chain": chain(3, false),
	} {
		t.Run(fmt.Sprint(name), func(t *testing.T) {
			l := up(t, name, onOVS(t, g).config())
			guests := l.plan.guests()
			for i, from := range guests {
				for j, to := range guests {
					if i == j {
						continue
					}
					if err := talk(l, from.name, to.name, 0); err != nil {
						t.Error(err)
					}
				}
			}
			if lines := append(l.Unmet(), l.troubleOfSwitches()...); len(lines) > 0 {
				t.Errorf("unmet: %v", lines)
			}
		})
	}
}
