package lab

import (
	"cmp"
	"fmt"

	"weir/experiment"
	"weir/law"
)

// The topologies of these tests are built by hand, so that the lab is tested against a graph and not against what
// the experiment package makes of a file.

const mbit = law.Rate(1e6)

var buffer125KB = law.Limit{N: 125000}

type graphBuilder struct {
	experiment.Graph
	hypervisors bool
	kind        string // of the switches
	ackAtOnce   bool   // guests do not delay ACKs
}

func (g *graphBuilder) sw(name string) {
	g.Nodes = append(g.Nodes, experiment.Node{Name: name, Kind: experiment.Switch})
}

func (g *graphBuilder) link(a, b string, rate law.Rate) {
	g.Links = append(g.Links, experiment.Link{A: a, B: b, Rate: rate, Buffer: buffer125KB})
}

func (g *graphBuilder) host(name, sw string, rate law.Rate) {
	g.Nodes = append(g.Nodes, experiment.Node{Name: name, Kind: experiment.Guest, Attached: sw})
	at := name
	if g.hypervisors {
		at = name + hypervisorSuffix
		g.Nodes = append(g.Nodes, experiment.Node{Name: at, Kind: experiment.Hypervisor, Attached: sw})
		g.Links = append(g.Links, experiment.Link{A: name, B: at})
	}
	g.link(at, sw, rate)
}

func (g *graphBuilder) config(profiles ...experiment.Guests) *experiment.Config {
	if len(profiles) == 0 {
		guests := cubic()
		guests.DelayedACK = ptr(!g.ackAtOnce)
		profiles = []experiment.Guests{guests}
	}
	return &experiment.Config{Graph: &g.Graph, Switch: cmp.Or(g.kind, "bridge"), Profiles: profiles}
}

// dumbbell has senders and one receiver on one switch.
func dumbbell(senders int, hypervisors bool) *graphBuilder {
	g := &graphBuilder{hypervisors: hypervisors}
	g.sw("switch")
	for i := range senders {
		g.host(fmt.Sprintf("sender%d", i+1), "switch", 200*mbit)
	}
	g.host("receiver1", "switch", 200*mbit)
	return g
}

// racks has a core, and a ToR with its servers for every rack.
func racks(racks, servers int, hypervisors bool) *graphBuilder {
	g := &graphBuilder{hypervisors: hypervisors}
	g.sw("core")
	for r := 1; r <= racks; r++ {
		tor := fmt.Sprintf("tor%d", r)
		g.sw(tor)
		for s := 1; s <= servers; s++ {
			g.host(fmt.Sprintf("rack%d.server%d", r, s), tor, 100*mbit)
		}
		g.link(tor, "core", 200*mbit)
	}
	return g
}

// chain has switches in a row with one sender and one receiver each.
func chain(switches int, hypervisors bool) *graphBuilder {
	g := &graphBuilder{hypervisors: hypervisors}
	for i := 1; i <= switches; i++ {
		sw := fmt.Sprintf("switch%d", i)
		g.sw(sw)
		g.host(fmt.Sprintf("sender%d", i), sw, 200*mbit)
		g.host(fmt.Sprintf("receiver%d", i), sw, 200*mbit)
		if i > 1 {
			g.link(fmt.Sprintf("switch%d", i-1), sw, 100*mbit)
		}
	}
	return g
}

// leafSpine has two equal paths between all leaves.
func leafSpine(leaves, servers int, hypervisors bool) *graphBuilder {
	const spines = 2
	g := &graphBuilder{hypervisors: hypervisors}
	g.Multipath = true
	for s := 1; s <= spines; s++ {
		g.sw(fmt.Sprintf("spine%d", s))
	}
	for l := 1; l <= leaves; l++ {
		leaf := fmt.Sprintf("leaf%d", l)
		g.sw(leaf)
		for i := 1; i <= servers; i++ {
			g.host(fmt.Sprintf("%s.server%d", leaf, i), leaf, 100*mbit)
		}
		for s := 1; s <= spines; s++ {
			g.link(leaf, fmt.Sprintf("spine%d", s), 100*mbit)
		}
	}
	return g
}
