package network

import (
	"math/rand/v2"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// wayLaw checks at every switch's port that a packet came in by the port that CameInBy returns.
type wayLaw struct {
	t      *testing.T
	last   *Port // that the packet left
	passed int
}

func (w *wayLaw) Packet(p *Port, pk *Packet, _ event.Time) Verdict {
	if got := p.CameInBy(pk); got != w.last.Reverse() {
		w.t.Errorf("at %s: came in by %v, want %s", p.Name, got, w.last.Reverse().Name)
	}
	w.last = p
	w.passed++
	return Pass
}

// CameInBy finds the port by which a packet came in, over equal paths and behind hypervisors. For a packet that goes
// elsewhere it finds none.
func TestCameInBy(t *testing.T) {
	for _, topology := range []experiment.Topology{
		{Kind: "fat_tree", Pods: 4}, {Kind: "leaf_spine", Leaves: 3, Spines: 4, Servers: 2}, {Kind: "dumbbell", Senders: 2, Receivers: 2},
	} {
		g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, Buffer: law.Limit{N: 125_000}})
		if err != nil {
			t.Fatal(err)
		}
		n, s := build(t, g, Options{Seed: 3})
		w := &wayLaw{t: t}
		for _, p := range n.Ports {
			if n.nodes[p.Node].kind == experiment.Switch {
				p.SetLaws(w)
			}
		}
		var hosts []NodeID
		for id := range n.nodes {
			if n.nodes[id].kind == experiment.Guest {
				hosts = append(hosts, NodeID(id))
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			src, dst := hosts[r.IntN(len(hosts))], hosts[r.IntN(len(hosts))]
			if src == dst {
				continue
			}
			pk := n.packet(src, dst, 100, 0)
			pk.hash = r.Uint32()
			if w.last = n.nodes[src].uplink; w.last.kind == wire {
				w.last = w.last.peer.uplink
			}
			n.Send(src, pk)
			n.Queue.Run(n.Queue.Now() + event.Second)
			if away := n.HostPort(dst); away.CameInBy(&s.last) != away {
				t.Errorf("%s: its last hop is not found", topology.Kind)
			}
			if s.last.src != src || n.HostPort(src).CameInBy(&s.last) != nil {
				t.Errorf("%s: it did not arrive, or came in where it was sent", topology.Kind)
			}
		}
		if w.passed < 1000 {
			t.Errorf("%s: %d hops", topology.Kind, w.passed)
		}
	}
}
