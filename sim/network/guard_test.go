package network

import (
	"fmt"
	"slices"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// gate is a Guard that keeps packets with tags 1 (on the way out) and 2 (on the way in), and changes the others. After
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

// A guard sees the packets of each host before its port does, and arriving packets before the host does, with and
// without hypervisors. The port's law drops what the guard does not let out, and counts the packet as it then is. A
// packet that the guard does not let in ends there. The guard's own packets follow those of the host.
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
		if s.last.bytes != 400 || gt.own != nil { // a guard does not see its own packets on their way out
			t.Errorf("hypervisors %v: %d B, own left %v", hypervisors, s.last.bytes, gt.own)
		}
		if c := n.NIC(a).Counters(); c.Sent != (Count{4, 2300}) {
			t.Errorf("hypervisors %v: %+v", hypervisors, c)
		}
	}
}

// note is a guard that notes the packets that it sees, and gives them a set verdict.
type note struct {
	name string
	log  *[]string
	out  func(host NodeID, pk *Packet) Verdict
	in   func(host NodeID, pk *Packet) Verdict
}

func (g *note) Out(host NodeID, pk *Packet, now event.Time) Verdict {
	*g.log = append(*g.log, fmt.Sprintf("%d: %s out %d", now, g.name, pk.tag))
	if g.out == nil {
		return Pass
	}
	return g.out(host, pk)
}

func (g *note) In(host NodeID, pk *Packet, now event.Time) Verdict {
	*g.log = append(*g.log, fmt.Sprintf("%d: %s in %d", now, g.name, pk.tag))
	if g.in == nil {
		return Pass
	}
	return g.in(host, pk)
}

// Guards form a chain, and the first is next to the host. A guard may return or discard a taken packet later, in the
// packet's direction. An injected packet passes the guards after it. Counters show where packets are.
func TestGuards_Chain(t *testing.T) {
	g := dumbbell(t, true)
	n, s := build(t, g, Options{FrameOnly: true})
	a, b := n.id(t, "sender1"), n.id(t, "receiver1")
	var log []string
	var held []*Packet
	take := func(_ NodeID, pk *Packet) Verdict {
		if pk.tag == 1 || pk.tag == 2 {
			held = append(held, pk)
			return Take
		}
		return Pass
	}
	first, second, third := &note{name: "first", log: &log}, &note{name: "second", log: &log, out: take, in: take}, &note{name: "third", log: &log}
	n.SetGuards(first, second, third)
	n.Send(a, n.packet(a, b, 500, 0))
	n.Send(a, n.packet(a, b, 500, 1))
	port := n.HostPort(a)
	look := func(what string, want Counters, arrivals Arrivals) {
		t.Helper()
		if c := port.Counters(); c != want {
			t.Errorf("%s: %+v, want %+v", what, c, want)
		}
		if c := n.Arrivals(b); c != arrivals {
			t.Errorf("%s: arrivals %+v, want %+v", what, c, arrivals)
		}
		conservedBut(t, n, n.Arrivals(b).Taken.Packets)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(log, want) {
			t.Errorf("%s: %q, want %q", what, log, want)
		}
		log = nil
	}
	one, two, three := Count{1, 500}, Count{2, 1000}, Count{3, 1500}
	look("one taken on its way out", Counters{In: two, Sent: one, Taken: one}, Arrivals{})
	expect("out", "0: first out 0", "0: second out 0", "0: third out 0", "0: first out 1", "0: second out 1")
	n.Queue.Run(event.Millisecond)
	look("the other arrived", Counters{In: two, Sent: one, Taken: one}, Arrivals{In: one, Delivered: one})
	expect("in", "58000: third in 0", "58000: second in 0", "58000: first in 0")
	n.Return(held[0])
	n.Queue.Run(2 * event.Millisecond)
	look("returned, and taken on its way in", Counters{In: two, Sent: two}, Arrivals{In: two, Delivered: one, Taken: one})
	expect("returned", "1000000: third out 1", "1058000: third in 1", "1058000: second in 1")
	n.Return(held[1])
	look("returned", Counters{In: two, Sent: two}, Arrivals{In: two, Delivered: two})
	expect("returned inwards", "2000000: first in 1")
	n.InjectIn(second, b, n.packet(a, b, 500, 9))
	n.InjectOut(nil, a, n.packet(a, b, 500, 2))
	n.Discard(held[2])
	look("discarded", Counters{In: three, Own: one, Sent: two, Law: one}, Arrivals{In: three, Own: one, Delivered: three})
	expect("injected", "2000000: first in 9", "2000000: first out 2", "2000000: second out 2")
	n.InjectIn(nil, b, n.packet(a, b, 500, 2))
	n.Discard(held[3])
	if c := n.Arrivals(b); c.Ended != one || c.Own != two || c.Taken.Packets != 0 {
		t.Errorf("%+v", c)
	}
	if len(s.got) != 3 {
		t.Errorf("arrived %v", s.got)
	}
	conserved(t, n)
}

// Without guards nothing is counted. The same guard may not be given twice.
func TestGuards_Mistakes(t *testing.T) {
	n, _ := build(t, dumbbell(t, false), Options{})
	if n.Arrivals(1) != (Arrivals{}) || len(n.Guards()) != 0 {
		t.Error("there are guards")
	}
	for name, guards := range map[string][]Guard{"twice": {&gate{}, nil}, "too many": make([]Guard, 65)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: went unnoticed", name)
				}
			}()
			if guards[1] == nil {
				guards[1] = guards[0]
			}
			n.SetGuards(guards...)
		}()
	}
}

// The NIC of a guest is a served port of its hypervisor. A packet dropped before it counts as left, and a packet
// dropped after it does not.
func TestLeft(t *testing.T) {
	n, _ := build(t, dumbbell(t, true), Options{})
	a, b := n.id(t, "sender1"), n.id(t, "receiver1")
	if err := n.NIC(a).SetRate(1e9, 0); err != nil {
		t.Fatal(err)
	}
	var left []uint64
	n.Left = func(pk *Packet) { left = append(left, pk.tag) }
	drop := &note{log: new([]string), out: func(_ NodeID, pk *Packet) Verdict {
		if pk.tag == 1 {
			return Drop
		}
		return Pass
	}}
	n.SetGuards(drop)
	n.NIC(b).Reverse().SetDown(true)
	for i := range uint64(3) {
		n.Send(a, n.packet(a, b, 500, i))
	}
	n.Queue.Run(event.Second)
	if want := []uint64{1, 0, 2}; !slices.Equal(left, want) {
		t.Errorf("%v left, want %v", left, want)
	}
}

// A hypervisor's packet passes neither guards nor the port of its VM, which is limited here. To a VM next to it, it does not pass the switch.
func TestInjectBehind(t *testing.T) {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: true, VMs: 2},
		experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 10_000}})
	if err != nil {
		t.Fatal(err)
	}
	n, s := build(t, g, Options{})
	gt := &gate{net: n}
	n.SetGuards(gt)
	a, near, far := n.id(t, "sender1.vm1"), n.id(t, "sender1.vm2"), n.id(t, "receiver1.vm1")
	if err := n.HostPort(a).SetRate(100e3, 0); err != nil {
		t.Fatal(err)
	}
	n.Send(a, n.packet(a, far, 1400, 10))
	n.Send(a, n.packet(a, far, 1400, 11)) // it waits for 0.1 s
	n.InjectBehind(a, n.packet(a, near, 200, 20))
	n.InjectBehind(a, n.packet(a, far, 200, 21))
	n.Queue.Run(event.Millisecond)
	var tags []uint64
	for _, arrived := range s.got {
		tags = append(tags, arrived.tag)
	}
	slices.Sort(tags)
	if in := n.AccessPort(a).Reverse().Counters().In.Packets; !slices.Equal(tags, []uint64{10, 20, 21}) || len(gt.out) != 2 || in != 2 {
		t.Errorf("%v arrive within 1 ms, guards see %d packets leave, %d go to the switch", tags, len(gt.out), in)
	}
	n.Queue.Run(event.Second)
	conserved(t, n)
}
