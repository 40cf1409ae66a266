package network

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// gate is a Guard that keeps packets with tags 1 (on the way out) and 2 (on the way in), and changes the others. Behind
// packets with tag 3 it sends own, once.
type gate struct {
	out, in []NodeID
	own     *Packet
	net     *Network
}

func (g *gate) Out(host NodeID, pk *Packet, _ event.Time) Verdict {
	g.out = append(g.out, host)
	pk.bytes += 100
	switch pk.tag {
	case 1:
		return Drop
	case 3:
		g.net.InjectOut(g, host, g.own)
		g.own = nil
	}
	return Pass
}

func (g *gate) In(host NodeID, pk *Packet, _ event.Time) Verdict {
	g.in = append(g.in, host)
	pk.bytes -= 100
	if pk.tag == 2 {
		return Drop
	}
	return Pass
}

// A guard sees what each host sends before its port, and what came before the host does, with and without hypervisors:
// what it does not let out is dropped by the port's law and counted as it then is, what it does not let in ends there.
// What it sends itself goes behind what the host sent.
func TestGuard(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: hypervisors},
			experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 10_000}})
		if err != nil {
			t.Fatal(err)
		}
		n, s := build(t, g, Options{})
		gt := &gate{net: n}
		n.SetGuards(gt)
		a, b := n.id(t, "sender1"), n.id(t, "receiver1")
		var dropped []DropReason
		n.OnDrop = func(p *Port, _ *Packet, reason DropReason, _ event.Time) {
			if p != n.HostPort(a) {
				t.Errorf("%s dropped it", p.Name)
			}
			dropped = append(dropped, reason)
		}
		gt.own = n.packet(a, b, 500, 4)
		for tag := range uint64(4) {
			n.Send(a, n.packet(a, b, 500, tag))
		}
		n.Queue.Run(event.Second)
		conserved(t, n)
		if len(dropped) != 1 || dropped[0] != DropLaw || len(gt.out) != 4 || len(gt.in) != 4 || gt.out[0] != a || gt.in[0] != b {
			t.Errorf("hypervisors %v: drops %v, out %v, in %v", hypervisors, dropped, gt.out, gt.in)
		}
		if len(s.got) != 3 || s.got[0].tag != 0 || s.got[1].tag != 3 || s.got[2].tag != 4 {
			t.Errorf("hypervisors %v: arrived %v", hypervisors, s.got)
		}
		if s.last.bytes != 400 || gt.own != nil { // what is the guard's own it does not see on its way out
			t.Errorf("hypervisors %v: %d B, own left %v", hypervisors, s.last.bytes, gt.own)
		}
		if c := n.NIC(a).Counters(); c.Sent != (Count{4, 2300}) {
			t.Errorf("hypervisors %v: %+v", hypervisors, c)
		}
	}
}
