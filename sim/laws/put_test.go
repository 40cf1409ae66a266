//go:build cgo

package laws

import (
	"strings"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/mark"
	"weir/law/static"
	"weir/sim/event"
	"weir/sim/network"
)

// A law that cannot be attached leaves no law at a port, nor do those before it.
func TestPut_LeavesNoLawWhenItFails(t *testing.T) {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1}, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	r := &experiment.Run{
		Laws: []string{"ecn", "fairq", "static"}, At: []string{"switch"},
		Params: map[string]any{"fairq": fairQDefaults(), "static": static.Params{Rate: 1e6, Depth: 1e6}, "ecn": mark.Params{Threshold: law.Limit{N: 1000}}},
	}
	r.Config.Graph, r.Config.RTT = g, 200e3
	r.Config.Items = []experiment.Item{{Pairs: []experiment.Pair{{Src: "sender1", Dst: "receiver1"}, {Src: "nobody", Dst: "receiver1"}}}}
	n, err := network.Build(event.NewQueue(), &r.Config, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testWorks.Put(n, r); err == nil || !strings.Contains(err.Error(), "there is no host nobody") {
		t.Fatalf("%v", err)
	}
	for _, p := range n.Ports {
		if len(p.Laws()) > 0 {
			t.Errorf("%s has a law", p.Name)
		}
	}
}
