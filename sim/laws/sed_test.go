//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/sed"
	"weir/sim/event"
	"weir/sim/network"
)

// parkBed is a port of 125 KB with rsed, and a function that sends a segment of a flow there.
func parkBed(t *testing.T, change func(*sed.RepairParams)) (q *sedPort, send func(src network.NodeID, seq uint32) *network.Packet) {
	t.Helper()
	p := sed.DefaultRepair()
	p.Repair = sed.RepairReinject
	change(p)
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: true}, "rsed", *p, "switch")
	b.net.Sink = &arrivals{net: b.net, t: t, next: map[network.NodeID]uint32{}}
	port := b.net.PortByName("switch->receiver1")
	for _, l := range port.Laws() {
		if s, is := l.(*sedPort); is {
			q = s
		}
	}
	to, _ := b.net.Node("receiver1")
	return q, func(src network.NodeID, seq uint32) *network.Packet {
		pk := b.net.NewPacket()
		pk.SetEnds(src, to, 1, 2)
		pk.SetProto(network.TCP)
		pk.SetFlags(network.ACK)
		pk.SetSeq(seq)
		pk.SetPayload(1460)
		pk.SetBytes(1514)
		port.Send(pk)
		return pk
	}
}

// arrivals checks that no flow is reordered, and counts what arrives.
type arrivals struct {
	net  *network.Network
	t    *testing.T
	next map[network.NodeID]uint32
	n    int
}

func (a *arrivals) Deliver(_ network.NodeID, pk *network.Packet, _ event.Time) {
	if pk.Seq() < a.next[pk.Src()] {
		a.t.Errorf("segment %d of flow %d came after %d", pk.Seq(), pk.Src(), a.next[pk.Src()])
	}
	a.next[pk.Src()] = pk.Seq() + 1
	a.n++
	a.net.Free(pk)
}

// The port keeps packets that the buffer has no room for, with all that follows of their flows. They arrive in order when the queue has
// drained.
func TestPark(t *testing.T) {
	q, send := parkBed(t, func(p *sed.RepairParams) {})
	queue, sink := q.sw.of.net.Queue, q.sw.of.net.Sink.(*arrivals)
	for n := range uint32(100) { // 82 fit
		send(0, n)
	}
	if len(q.park.packets) != 18 {
		t.Fatalf("%d kept", len(q.park.packets))
	}
	queue.Run(queue.Now() + 50*event.Microsecond) // four segments leave
	send(1, 0)
	if send(0, 100); len(q.park.packets) != 19 {
		t.Errorf("%d kept: another flow passes, and this one stays behind its own", len(q.park.packets))
	}
	queue.Run(queue.Now() + 300*event.Microsecond)
	if len(q.park.packets) != 19 || q.fill() < 0.5 {
		t.Errorf("%d kept, the buffer is %.2f full", len(q.park.packets), q.fill())
	}
	queue.Run(queue.Now() + 10*event.Millisecond)
	if c := q.port.Counters(); sink.n != 102 || c.Tail.Packets+c.Law.Packets != 0 || q.park.bytes != 0 || len(q.park.of) != 0 {
		t.Errorf("%d arrived, %+v, %d bytes kept", sink.n, c, q.park.bytes)
	}
}

// The room for kept packets has a limit. A retransmission replaces its kept copy. A packet that was kept too long is dropped if there is no room.
func TestPark_Limits(t *testing.T) {
	q, send := parkBed(t, func(p *sed.RepairParams) {
		p.Park, p.ParkMost = law.Bytes(20*1514), law.Duration(100*event.Microsecond)
	})
	queue := q.sw.of.net.Queue
	for n := range uint32(105) {
		send(0, n)
	}
	if got := q.port.Counters().Tail.Packets; len(q.park.packets) != 20 || got != 3 {
		t.Errorf("%d kept, %d dropped", len(q.park.packets), got)
	}
	queue.Run(queue.Now() + 50*event.Microsecond)
	q.sw.of.net.Sink.(*arrivals).next[0] = 0
	if send(0, 101); len(q.park.packets) != 19 || q.port.Counters().Law.Packets != 1 {
		t.Errorf("%d kept after a retransmission, %d discarded", len(q.park.packets), q.port.Counters().Law.Packets)
	}
	queue.Run(queue.Now() + 100*event.Microsecond)
	if c := q.port.Counters(); len(q.park.packets) != 0 || c.Law.Packets < 10 {
		t.Errorf("%d kept, %d dropped by the law", len(q.park.packets), c.Law.Packets)
	}
}
