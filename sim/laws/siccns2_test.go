//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law/siccns2"
	"weir/sim/event"
	"weir/sim/network"
)

// newNS2 is newBed with siccns2 at its switch. An incast begins at 12,500 bytes, so at a single SYN.
func newNS2(t *testing.T, change func(*siccns2.Params)) *bed {
	t.Helper()
	p := *siccns2.Default()
	p.OnFraction = 0.1
	if change != nil {
		change(&p)
	}
	return newBedOf(t, twoSenders, siccns2.Name, p, "switch")
}

// The incast begins at the end of the first interval, 1 ms. ACKs of the data that leaves by the port are limited to 1500 bytes
// until a packet leaves and the queue is short. SH-1, SH-2: rounded up to the scale of the ACK's sender. By hand: 12 units of
// 128 bytes.
func TestSICCNS2_LimitsACKsInAnIncast(t *testing.T) {
	b := newNS2(t, nil)
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	b.expect("before the end of the interval", k.window(1), 60_000)
	b.wait(event.Millisecond)
	b.expect("1500 bytes", k.window(1), 12)
	b.expect("ACKs with data pass", k.says(1, network.ACK, 100, 60_000).Window(), 60_000)
	k.says(0, network.ACK, 1000, 60_000)
	b.expect("a packet left, and the queue is empty", k.window(1), 60_000)
	b.wait(10 * event.Millisecond)
	b.expect("no new flow, no incast", k.window(1), 60_000)
	if n := b.tally(); n["incasts"] != 2 || n["acks_limited"] != 1 {
		t.Errorf("%v: the SYN and the SYN-ACK begin one each", n)
	}
}

// Two SYNs leave by the receiver's port, and one SYN-ACK by each sender's: with 25,000 bytes as the threshold the receiver's port
// alone has an incast. It limits the ACKs that come from the receiver, not those that leave to it. The scale is that of the ACK's
// sender, 7, and not 3.
func TestSICCNS2_TheOtherQueue(t *testing.T) {
	b := newNS2(t, func(p *siccns2.Params) { p.OnFraction, p.OffFraction = 0.2, 0 })
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
	for _, k := range []*talk{one, two} {
		k.scale[0] = 3
		k.opens()
	}
	b.wait(event.Millisecond)
	for _, k := range []*talk{one, two} {
		b.expect("from the receiver", k.window(1), 12)
		b.expect("from a sender", k.window(0), 60_000)
	}
	if n := b.tally(); n["incasts"] != 1 {
		t.Errorf("%v", n)
	}
}

// As printed, a SYN-ACK passes, so a sender's first window is not limited. With syn_ack it is, and its field is not scaled.
func TestNS6_SYNACK(t *testing.T) {
	for limits, want := range map[bool]uint16{false: 65_535, true: 1500} {
		b := newNS2(t, func(p *siccns2.Params) { p.OffFraction, p.SYNACK = 0, limits })
		b.talk(0, "sender1", "receiver1").opens()
		b.wait(event.Millisecond)
		synACK, _ := b.talk(1, "sender2", "receiver1").opens()
		b.expect("a SYN-ACK in an incast", synACK, want)
	}
}

// Printed, advwin becomes 1500 whatever it was. SH-3: so it opens a window that is smaller, such as that of a receiver that
// cannot take more. And ns-2 has no window scale, so the field 1500 would be 192,000 bytes at a scale of 7.
func TestNS1_TheWindowIsNeverRaised(t *testing.T) {
	b := newNS2(t, func(p *siccns2.Params) { p.OffFraction = 0 })
	scaled, plain, half := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender1", "receiver1"), b.talk(2, "sender2", "receiver1")
	plain.scale, half.scale[0] = [2]int8{0, 0}, -1
	for _, k := range []*talk{scaled, plain, half} {
		k.opens()
	}
	b.wait(event.Millisecond)
	for _, w := range []uint16{0, 1, 11} {
		b.expect("smaller", scaled.says(1, network.ACK, 0, w).Window(), w)
	}
	b.expect("scaled", scaled.window(1), 12)
	b.expect("not scaled", plain.window(1), 1500)
	b.expect("only one end offers a scale", half.window(1), 1500)
	if n := b.tally(); n["acks_smaller"] != 3 || n["acks_unknown"] != 0 {
		t.Errorf("%v", n)
	}
}

// divwin divides the buffer by the flows, and a segment and a byte is the least (FQ-12): 125,000 over 2 and over 100.
func TestNS2_DivWinHasAFloor(t *testing.T) {
	b := newNS2(t, func(p *siccns2.Params) { p.OffFraction, p.DivWin = 0, true })
	var all []*talk
	for i := range int32(100) {
		k := b.talk(i, "sender1", "receiver1")
		k.scale = [2]int8{0, 0}
		k.opens()
		all = append(all, k)
		if i == 1 {
			b.wait(event.Millisecond)
			b.expect("two flows", k.window(1), 60_000) // 62,500 is more than it has
			b.expect("two flows", k.says(1, network.ACK, 0, 65_000).Window(), 62_500)
		}
	}
	b.expect("100 flows: 1250 bytes are less than a segment", all[0].window(1), 1461)
}

// Printed, persist counts packets with the sequence number 0, and FINs are packets with CWR. The sequence numbers of real TCP
// begin anywhere, and CWR answers a mark. Ours counts data after 20 ms of silence.
func TestNS4_Persist(t *testing.T) {
	for _, persist := range []bool{false, true} {
		b := newNS2(t, func(p *siccns2.Params) { p.Persist = persist })
		k := b.talk(0, "sender1", "receiver1")
		k.opens()
		b.wait(event.Millisecond)
		printed := 0
		sends := func(i uint32) {
			pk := k.segment(0, network.ACK|network.CWR, 1000, 60_000)
			pk.SetSeq(1001 + 1000*i)
			if pk.Seq() == 0 {
				printed++
			}
			k.send(pk)
		}
		sends(0)
		sends(1)
		b.wait(30 * event.Millisecond)
		if n := b.tally()["incasts"]; n != 2 {
			t.Errorf("persist %v: %d incasts, want those of SYN and SYN-ACK", persist, n)
		}
		sends(2)
		b.wait(event.Millisecond)
		want := uint64(2)
		if persist {
			want++
		}
		if n := b.tally()["incasts"]; n != want || printed > 0 {
			t.Errorf("persist %v: %d incasts, want %d; the printed form counts %d packets", persist, n, want, printed)
		}
	}
}

// ack_threshold drops data outside an incast, and no ACK. The ns-2 code asks for the packet's type. A test of the ACK flag would drop
// nothing, because data of real TCP has the flag, too. So a packet with payload is data.
func TestNS5_ReserveIsForPacketsWithoutData(t *testing.T) {
	for _, at := range []float64{0.5, 1} {
		b := newNS2(t, func(p *siccns2.Params) { p.AckThreshold, p.OnFraction = at, 1 })
		k, other := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
		k.opens()
		other.opens()
		p := b.net.PortByName("switch->receiver1")
		for range 90 {
			p.Send(k.segment(0, network.ACK, 1460, 60_000))
		}
		c := p.Counters()
		// By hand: 42 packets of 1514 bytes are the first that are more than 62,500; 82 fit 125,000.
		if at == 0.5 && (c.Law.Packets != 48 || c.Tail.Packets != 0) || at == 1 && (c.Law.Packets != 0 || c.Tail.Packets != 8) {
			t.Errorf("ack_threshold %g: %+v", at, c)
		}
		before := c.Law.Packets
		p.Send(other.segment(0, network.ACK, 0, 60_000))
		p.Send(other.segment(0, network.ACK|network.FIN, 0, 60_000))
		if c := p.Counters(); c.Law.Packets != before {
			t.Errorf("ack_threshold %g: an ACK or a FIN was dropped", at)
		}
	}
}

func TestSICCNS2_IsRefused(t *testing.T) {
	p := *siccns2.Default()
	p.IncastOnly = false
	r := &experiment.Run{Laws: []string{siccns2.Name}, Params: map[string]any{siccns2.Name: p}}
	if err := testWorks.Check(r); err == nil {
		t.Error("a queue longer than the buffer was waited for")
	}
}
