//go:build cgo

package laws

import (
	"slices"
	"testing"

	"weir/law/flows"
	"weir/law/sed"
	"weir/sim/event"
	"weir/sim/network"
)

// caught keeps what arrives at one host, in order.
type caught struct {
	net *network.Network
	at  network.NodeID
	all []network.Packet
}

// Deliver implements network.Sink.
func (c *caught) Deliver(to network.NodeID, pk *network.Packet, _ event.Time) {
	if to == c.at {
		c.all = append(c.all, *pk)
	}
	c.net.Free(pk)
}

// newDuplicatesBed is a switch of rsed as the paper has it, and an open connection of sender1. acks sends an acknowledgement of the
// receiver; answer is the controller's, to a loss.
func newDuplicatesBed(t *testing.T) (b *bed, c *caught, acks func(ack uint32, window uint16, tag uint64), answer func(ack uint32)) {
	t.Helper()
	p := sed.DefaultRepair()
	p.First = sed.FirstOpen
	b = newBedOf(t, twoSenders, "rsed", *p, "switch")
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	c = &caught{net: b.net, at: k.from}
	acks = func(ack uint32, window uint16, tag uint64) {
		pk := k.segment(1, network.ACK, 0, window)
		pk.SetAck(ack)
		pk.SetTag(tag)
		pk.SetBytes(pk.Bytes() + timestampBytes)
		b.net.Send(pk.Src(), pk)
		b.wait(event.Millisecond)
	}
	acks(1001, 40_000, 7)
	b.net.Sink = c
	sw := b.laws.laws[0].Attached.(*sedNetwork).switches[0]
	answer = func(ack uint32) {
		a := flows.Acks{At: sw.ports[0].at, Flow: k.flow(), Ack: ack, N: 3}
		if err := sw.Enforce(b.net.Queue.Now(), a); err != nil {
			t.Fatal(err)
		}
	}
	return b, c, acks, answer
}

// RS-1, RS-2: copies wait until the receiver has acknowledged everything before the loss, and equal that ACK. As printed three ACKs of 2461
// leave at once, and acknowledge 1460 bytes that never arrived.
func TestRS1_RS2_DuplicatesWaitAndEqualTheLast(t *testing.T) {
	b, c, acks, answer := newDuplicatesBed(t)
	answer(2461)
	b.wait(event.Millisecond)
	if len(c.all) != 0 {
		t.Fatalf("%d ACKs of %d, but the receiver has everything before 1001 only", len(c.all), c.all[0].Ack())
	}
	acks(2461, 30_000, 9)
	if len(c.all) != 4 {
		t.Fatalf("%d ACKs, want the receiver's and three copies", len(c.all))
	}
	for i, pk := range c.all {
		if pk.Ack() != 2461 || pk.Window() != 30_000 || pk.Tag() != 9 || pk.Seq() != c.all[0].Seq() || pk.Bytes() != c.all[0].Bytes() {
			t.Errorf("ACK %d: %d, window %d, tag %d, seq %d, %d bytes", i, pk.Ack(), pk.Window(), pk.Tag(), pk.Seq(), pk.Bytes())
		}
	}
	answer(1001)
	if b.wait(event.Millisecond); len(c.all) != 4 {
		t.Error("a loss that was repaired is answered")
	}
}

// RS-5: copies wait in the queue of their port, behind other packets.
func TestRS5_CopiesCompeteOnTheReversePath(t *testing.T) {
	b, c, _, answer := newDuplicatesBed(t)
	from, _ := b.net.Node("receiver1")
	port := b.net.PortByName("switch->sender1")
	for range 10 {
		pk := b.net.NewPacket()
		pk.SetEnds(from, c.at, 1, 2)
		pk.SetProto(network.UDP)
		pk.SetPayload(1472)
		pk.SetBytes(1514)
		port.Send(pk)
	}
	answer(1001)
	b.wait(event.Millisecond)
	var kinds []uint8
	for _, pk := range c.all {
		kinds = append(kinds, pk.Proto())
	}
	want := append(slices.Repeat([]uint8{network.UDP}, 10), network.TCP, network.TCP, network.TCP)
	if !slices.Equal(kinds, want) {
		t.Errorf("protocols %v, want %v", kinds, want)
	}
}

// RS-8: the port counts bytes of a flow once. A counter of packets' bytes, as OpenFlow's, takes a retransmission for progress.
func TestRS8_BytesCountOnce(t *testing.T) {
	b, _, _, _ := newDuplicatesBed(t)
	k := b.talk(0, "sender1", "receiver1")
	counter := 0
	for range 2 {
		pk := k.segment(0, network.ACK, 1000, 60_000)
		counter += int(pk.Payload())
		b.net.Send(pk.Src(), pk)
		b.wait(event.Millisecond)
	}
	for _, q := range b.laws.laws[0].Attached.(*sedNetwork).switches[0].ports {
		if q.port == b.net.PortByName("switch->receiver1") {
			f := q.flows[dataKey{k.from, k.to, 0, 0}]
			if f == nil || f.bytes != 1000 || counter != 2000 {
				t.Errorf("%+v, want 1000 bytes; a counter has %d", f, counter)
			}
			return
		}
	}
	t.Error("no such port")
}
