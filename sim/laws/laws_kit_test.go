package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	acdclaw "weir/law/acdc"
	"weir/law/droptail"
	"weir/law/fairq"
	"weir/law/gcc"
	"weir/law/mark"
	"weir/law/siccns2"
	"weir/law/static"
	"weir/sim/event"
	"weir/sim/network"
)

// testWorks are the simulator's laws.
var testWorks = Laws{
	droptail.Name: DropTail(), mark.RED: Mark(), mark.ECN: Mark(), static.Spec().Name: Static(),
	acdclaw.Spec().Name: ACDC(), fairq.Name: FairQ(),
	siccns2.Name: SICCNS2(), "gcc": Controlled(gcc.Spec()), "hygenicc": HyGenICC(),
	"sed": SED(), "rsed": RSED(), "lossrepair": LossRepair(),
}

// newBedOf builds a bed on a topology of 1 Gbit/s and 125 KB a port, with a law at these switches.
func newBedOf(t testing.TB, topology experiment.Topology, name string, params any, at ...string) *bed {
	t.Helper()
	g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	r := &experiment.Run{Laws: []string{name}, At: at, Params: map[string]any{name: params}}
	r.Config.Graph, r.Config.RTT = g, 200e3
	n, err := network.Build(event.NewQueue(), &r.Config, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := testWorks.Put(n, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	b := &bed{t: t, net: n, laws: set}
	n.Sink = b
	return b
}
