package network

import (
	"slices"
	"strings"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// A graph that cannot be a network is refused by name, before large allocations.
func TestBuildRefuses(t *testing.T) {
	good := func() *experiment.Graph { return pair(1e9, 25_000, law.Limit{N: 125_000}) }
	for name, c := range map[string]struct {
		change func(g *experiment.Graph, o *Options)
		want   string
	}{
		"no such node":    {func(g *experiment.Graph, _ *Options) { g.Links[0].A = "c" }, "link c - switch: no such pair of nodes"},
		"to itself":       {func(g *experiment.Graph, _ *Options) { g.Links[0].A = "switch" }, "no such pair"},
		"rate 0":          {func(g *experiment.Graph, _ *Options) { g.Links[1].Rate = 0 }, "link b - switch: a switch's link needs a rate above 0"},
		"rate below 0":    {func(g *experiment.Graph, _ *Options) { g.Links[1].Rate = -1 }, "out of range"},
		"delay below 0":   {func(g *experiment.Graph, _ *Options) { g.Links[1].Delay = -1 }, "out of range"},
		"small buffer":    {func(g *experiment.Graph, _ *Options) { g.Links[1].Buffer.N = 1513 }, "is smaller than a full frame"},
		"two of one name": {func(g *experiment.Graph, _ *Options) { g.Nodes[2].Name = "a" }, "two nodes a"},
		"no link":         {func(g *experiment.Graph, _ *Options) { g.Links = g.Links[:1] }, "b has no link"},
		"two links": {func(g *experiment.Graph, _ *Options) { g.Links = append(g.Links, g.Links[0]) },
			"a has several links"},
		"two hosts": {func(g *experiment.Graph, _ *Options) { g.Links = []experiment.Link{{A: "a", B: "b", Rate: 1}} }, "a host too"},
		"a million": {func(g *experiment.Graph, _ *Options) { g.Nodes = make([]experiment.Node, 1_000_000) }, "at most 100000"},
		"no way": {func(g *experiment.Graph, _ *Options) {
			g.Nodes = append(g.Nodes, experiment.Node{Name: "other", Kind: experiment.Switch})
			g.Links[1].B = "other"
		}, "no path from"},
		"shared":     {func(_ *experiment.Graph, o *Options) { o.Shared = &Shared{Bytes: 100_000, Num: 1} }, "factor 1/0"},
		"hypervisor": {func(g *experiment.Graph, _ *Options) { g.Nodes[0].Kind = experiment.Hypervisor }, "is not connected to a switch"},
	} {
		g, o := good(), Options{}
		c.change(g, &o)
		_, err := Build(event.NewQueue(), configOf(g), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// Ports have the names that users write, the labels of measure.ports, and a reverse port.
func TestNamesAndLabels(t *testing.T) {
	g := dumbbell(t, true)
	n, err := Build(event.NewQueue(), &experiment.Config{Graph: g, Ports: map[string]string{
		"bottleneck": "switch->receiver1", "also": "switch->receiver1", "nic": "sender2->switch",
	}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := n.PortByName("switch->receiver1")
	if p == nil || p.Name != "switch->receiver1" || !slices.Equal(p.Labels, []string{"also", "bottleneck"}) {
		t.Fatalf("%+v", p)
	}
	if n.Name(p.Peer) != "receiver1.hv" || p.Reverse().Name != "receiver1->switch" || p.Reverse().Reverse() != p {
		t.Errorf("peer %s, reverse %s", n.Name(p.Peer), p.Reverse().Name)
	}
	if v := n.PortByName("receiver1.hv->receiver1"); v == nil || v.Rate != 0 {
		t.Errorf("the VM's port is %+v", v)
	}
	if n.PortByName("switch->nobody") != nil {
		t.Error("a port to nobody")
	}
	if got := len(n.SwitchPorts([]string{"switch", "nobody"})); got != 3 {
		t.Errorf("the switch has %d ports", got)
	}
	for i, p := range n.Ports {
		if int(p.ID) != i {
			t.Errorf("port %d has ID %d", i, p.ID)
		}
	}
}
