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

// repairBed is a port of 125 KB with a law that repairs, and a function that sends a segment of a flow there.
func repairBed(t *testing.T, name string, params any) (q *repairPort, send func(src network.NodeID, seq uint32, proto uint8)) {
	t.Helper()
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: true}, name, params, "switch")
	b.net.Sink = &arrivals{net: b.net, t: t, next: map[network.NodeID]uint32{}}
	port := b.net.PortByName("switch->receiver1")
	for _, l := range port.Laws() {
		switch l := l.(type) {
		case *sedPort:
			q = l.repair
		case *repairPort:
			q = l
		}
	}
	to, _ := b.net.Node("receiver1")
	return q, func(src network.NodeID, seq uint32, proto uint8) {
		pk := b.net.NewPacket()
		pk.SetEnds(src, to, 1, 2)
		pk.SetProto(proto)
		pk.SetFlags(network.ACK)
		pk.SetSeq(seq)
		pk.SetPayload(1460)
		pk.SetBytes(1514)
		port.Send(pk)
	}
}

// repairing are the laws that repair, with so many bytes that are kept.
func repairing(park law.Bytes) map[string]any {
	p := sed.DefaultRepair()
	p.Repair, p.Park = sed.RepairReinject, park
	return map[string]any{"rsed": *p, "lossrepair": sed.LossRepairParams{Park: park}}
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

// The port keeps segments that the buffer has no room for, with all that follows of their flows. They arrive in order, in time, and no
// packet is lost. 93,944 of the 125,000 bytes are for packets that did not wait: 62 of 1514.
func TestLossRepair(t *testing.T) {
	for name, params := range repairing(150e3) {
		q, send := repairBed(t, name, params)
		queue, sink := q.net.Queue, q.net.Sink.(*arrivals)
		for n := range uint32(100) {
			send(0, n, network.TCP)
		}
		if len(q.waiting) != 38 || q.over != 38 {
			t.Fatalf("%s: %d kept, %d over", name, len(q.waiting), q.over)
		}
		queue.Run(queue.Now() + 250*event.Microsecond) // the burst joins the queue, and what follows does as fast as it drains
		send(1, 0, network.TCP)
		if send(0, 100, network.TCP); q.over+q.behind != 40 || q.port.Backlog() > 125_000 {
			t.Errorf("%s: %d over, %d behind, the queue has %d bytes", name, q.over, q.behind, q.port.Backlog())
		}
		queue.Run(queue.Now() + 10*event.Millisecond)
		if c := q.port.Counters(); sink.n != 102 || c.Tail.Packets+c.Law.Packets != 0 || q.bytes != 0 || len(q.flows) != 0 {
			t.Errorf("%s: %d arrived, %+v, %d bytes kept", name, sink.n, c, q.bytes)
		}
		if q.repaired != q.over || q.inTime != q.over || q.longest <= 0 {
			t.Errorf("%s: %d repaired of %d, %d in time", name, q.repaired, q.over, q.inTime)
		}
	}
}

// The room for kept segments has a limit. Packets without TCP are not kept.
func TestLossRepair_Limits(t *testing.T) {
	for name, params := range repairing(20 * 1514) {
		q, send := repairBed(t, name, params)
		for n := range uint32(85) { // 62 of 1514 pass, and 20 wait
			send(0, n, network.TCP)
		}
		send(1, 0, network.UDP)
		if len(q.waiting) != 20 || q.full != 3 || q.other != 1 || q.port.Counters().Law.Packets != 4 {
			t.Errorf("%s: %d kept, %d full, %d other", name, len(q.waiting), q.full, q.other)
		}
		q.net.Queue.Run(q.net.Queue.Now() + 10*event.Millisecond)
		if send(1, 0, network.UDP); q.bytes != 0 || q.other != 1 {
			t.Errorf("%s: %d bytes kept, %d other", name, q.bytes, q.other)
		}
	}
}
