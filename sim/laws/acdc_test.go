//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law"
	acdclaw "weir/law/acdc"
	"weir/sim/event"
	"weir/sim/network"
)

// newGuarded is newBed with AC/DC. Its switches mark above 20 KB.
func newGuarded(t testing.TB, topology experiment.Topology, p acdclaw.Params) (*bed, *acdc) {
	t.Helper()
	p.Threshold, p.Gain, p.Timeout = law.Limit{N: 20_000}, 1.0/16, 200e6
	b := newBedOf(t, topology, "acdc", p, "switch")
	return b, b.net.Guards()[0].(*acdc)
}

var twoSenders = experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1}

// data sends n segments of 1000 bytes from the dialler, beginning at byte from, and acknowledges them all. ce marks
// them on the wire.
func (k *talk) data(from uint32, n int, ce bool) {
	k.b.t.Helper()
	k.marks(ce)
	for i := range n {
		pk := k.segment(0, network.ACK, 1000, 60_000)
		pk.SetSeq(pk.Seq() + (from + uint32(i)*1000))
		k.send(pk)
	}
	k.marks(false)
	ack := k.segment(1, network.ACK, 0, 60_000)
	ack.SetAck(ack.Ack() + (from + uint32(n)*1000))
	k.send(ack)
}

// marks makes the switch mark all ECT packets, or none.
func (k *talk) marks(all bool) {
	p := k.b.net.PortByName("switch->receiver1")
	p.SetLaws()
	if all {
		p.SetLaws(markAll{})
	}
}

type markAll struct{}

func (markAll) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.ECN() != network.NotECT {
		pk.SetECN(network.CE)
	}
	return network.Pass
}

// Guests without ECN see neither marks nor feedback. Guests with ECN see their own ECT and no mark. A reserved bit
// distinguishes the two, in both places where a virtual switch can be.
func TestACDC_GuestsDoNotSeeIt(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		for _, ecn := range []uint8{network.NotECT, network.ECT0} {
			topology := twoSenders
			topology.Hypervisors = hypervisors
			b, a := newGuarded(t, topology, acdclaw.Params{})
			wire := network.Packet{}
			from, to := "sender1", "receiver1"
			k := b.talk(0, from, to)
			b.net.NIC(k.from).Tap(func(pk *network.Packet, _ event.Time) { wire = *pk })
			k.opens()
			k.marks(true)
			pk := k.segment(0, network.ACK, 1000, 60_000)
			pk.SetECN(ecn)
			got := k.send(pk)
			if wire.ECN() != network.ECT0 || wire.Feedback() != network.FeedbackOption || wire.Bytes() != network.HeaderBytes+1012 {
				t.Errorf("hypervisors %v, ecn %d: on the wire %+v", hypervisors, ecn, wire)
			}
			if got.ECN() != ecn || got.Feedback() != network.NoFeedback || got.Bytes() != network.HeaderBytes+1000 || got.Reserved() != 0 {
				t.Errorf("hypervisors %v, ecn %d: the guest gets %+v", hypervisors, ecn, got)
			}
			if e := a.find(placeOf(0, 1)); e.total != 1000 || e.marked != 1000 {
				t.Errorf("%d bytes arrived, %d of them marked; want 1000 each", e.total, e.marked)
			}
			ack := k.segment(1, network.ACK|network.ECE, 0, 60_000)
			ack.SetAck(ack.Ack() + 1000)
			if got := k.send(ack); got.Flags()&network.ECE != 0 || got.ECN() != network.NotECT {
				t.Errorf("the sender's guest gets %+v", got)
			}
			if e := a.find(placeOf(0, 0)); !e.window.cutting || e.window.bytes != 7300 {
				t.Errorf("a window of %d bytes behind a mark, want half of 14600", e.window.bytes)
			}
		}
	}
}

// By hand: a window of 14600 bytes in a field with units of 128 bytes, rounded up. It is never above the guest's own
// field, is 0 only where that is 0, and is not scaled in a SYN-ACK.
func TestACDC_WindowField(t *testing.T) {
	b, a := newGuarded(t, twoSenders, acdclaw.Params{})
	k := b.talk(0, "sender1", "receiver1")
	synACK, ack := k.opens()
	b.expect("SYN-ACK: 14600", synACK, 14_600)
	b.expect("14600/128 = 114.06", ack, 115)
	for _, w := range []uint16{114, 1, 0} {
		b.expect("already smaller", k.says(1, network.ACK, 0, w).Window(), w)
	}
	a.find(placeOf(0, 0)).window.bytes = 1
	b.expect("the floor: 1461/128", k.window(1), 12)
	wide := b.talk(1, "sender2", "receiver1")
	wide.scale = [2]int8{14, 14}
	wide.opens()
	b.expect("14600 in units of 16384", wide.window(1), 1)
	none := b.talk(2, "sender2", "receiver1")
	none.scale = [2]int8{-1, 7}
	none.opens()
	b.expect("one SYN has no scale: neither counts", none.window(1), 14_600)
	if c := b.tally(); c[acdclaw.Opened] != 6 || c[acdclaw.Refused] != 0 || c[acdclaw.Rewritten] == 0 || c[acdclaw.Rewritten] >= c[acdclaw.Acks] {
		t.Errorf("%+v", c)
	}
}

// Feedback counts modulo 2^32, and the next report makes up for a lost one. Older feedback that arrives late changes
// nothing. Feedback is sent alone if a segment has no room for it, and only if it is new.
func TestACDC_Feedback(t *testing.T) {
	b, a := newGuarded(t, twoSenders, acdclaw.Params{})
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	out, in := a.find(placeOf(0, 0)), a.find(placeOf(0, 1))
	in.total, in.marked, in.lastReported = 1<<32-1500, 1<<32-700, 1<<32-1500
	out.reportedTotal, out.reportedMarked = in.total, in.marked
	k.data(0, 1, true)
	if out.window.bytes != 7300 {
		t.Errorf("%d bytes behind marks whose count wrapped, want 7300", out.window.bytes)
	}
	k.data(1000, 2, false)
	if in.total != 1500 || in.marked != 300 || out.reportedTotal != 1500 || out.reportedMarked != 300 {
		t.Errorf("%d bytes and %d marked, reported %d and %d; want 1500 and 300", in.total, in.marked, out.reportedTotal, out.reportedMarked)
	}
	old := new(network.Packet)
	old.SetTotal(1000)
	old.SetMarked(300)
	if out.hears(old) || out.reportedTotal != 1500 {
		t.Error("old feedback was taken")
	}
	k.data(3000, 1, true)
	seen := a.counts.alone
	for range 3 { // full segments acknowledge, with no room
		full := k.segment(1, network.ACK, 1460, 60_000)
		full.SetAck(full.Ack() + 4000)
		k.send(full)
	}
	if n := a.counts.alone - seen; n != 0 { // the ACK of data has reported it already
		t.Errorf("%d times alone without news", n)
	}
	pk := k.segment(0, network.ACK, 1000, 60_000)
	pk.SetSeq(pk.Seq() + 4000)
	k.send(pk)
	full := k.segment(1, network.ACK, 1460, 60_000)
	full.SetAck(full.Ack() + 5000)
	got := k.send(full)
	b.wait(event.Millisecond) // its own ACK comes behind it
	if n := a.counts.alone - seen; n != 1 || out.reportedTotal != in.total || got.Payload() != 1460 || b.net.Borrowed() != 0 {
		t.Errorf("%d times alone, reported %d of %d, %d packets in use, and the guest got %+v", n, out.reportedTotal, in.total, b.net.Borrowed(), got)
	}
	blocks := k.segment(1, network.ACK, 0, 60_000)
	blocks.SetAck(blocks.Ack() + 5000)
	blocks.SetBytes(network.HeaderBytes + 40) // all room for options taken
	pk = k.segment(0, network.ACK, 1000, 60_000)
	pk.SetSeq(pk.Seq() + 6000)
	k.send(pk)
	got = k.send(blocks)
	b.wait(event.Millisecond)
	if a.counts.alone-seen != 2 || got.Bytes() != network.HeaderBytes+40 || out.reportedTotal != in.total {
		t.Errorf("options are full: %d times alone, %+v", a.counts.alone-seen, got)
	}
}

// police drops data beyond every window that was granted, except for the byte of a window probe. Data within it passes,
// and everything passes without police. A window that shrank makes no sent data wrong.
func TestACDC_Police(t *testing.T) {
	for _, police := range []bool{true, false} {
		b, a := newGuarded(t, twoSenders, acdclaw.Params{Police: police})
		k := b.talk(0, "sender1", "receiver1")
		k.opens()
		k.window(1) // 115 x 128 = 14720 from the first byte on
		segment := func(from uint32, bytes int32) *network.Packet {
			pk := k.segment(0, network.ACK, bytes, 60_000)
			pk.SetSeq(pk.Seq() + from)
			return pk
		}
		k.send(segment(13_720, 1000))
		k.send(segment(14_720, 1))
		a.find(placeOf(0, 0)).window.bytes = 2000
		k.window(1)
		k.send(segment(13_720, 1000))
		beyond := segment(13_722, 1000)
		b.net.Send(beyond.Src(), beyond)
		b.wait(event.Millisecond)
		nic := b.net.HostPort(k.from)
		want := int64(0)
		if police {
			want = 1
		}
		if c := nic.Counters(); c.Law.Packets != want || int64(a.counts.policed) != want || b.net.Borrowed() != 0 {
			t.Errorf("police %v: %d packets dropped, %d counted, want %d", police, c.Law.Packets, a.counts.policed, want)
		}
	}
}

// A host's table is bounded. Connections without room, and UDP, pass unchanged. Ends of connections that are over are
// removed.
func TestACDC_TableIsBounded(t *testing.T) {
	b, a := newGuarded(t, twoSenders, acdclaw.Params{})
	if a.mostConns != 65_536 {
		t.Errorf("room for %d ends", a.mostConns)
	}
	a.mostConns = 1
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
	one.opens()
	synACK, _ := two.opens()
	b.expect("sender2 has room", synACK, 14_600)
	if a.known != 3 || a.counts.opened != 3 || a.counts.refused != 1 || a.find(placeOf(1, 1)) != nil {
		t.Errorf("%d ends, %+v", a.known, a.counts)
	}
	if got := two.says(0, network.ACK, 1000, 60_000); got.ECN() != network.NotECT || got.Bytes() != network.HeaderBytes+1000 || got.Reserved() != 0 {
		t.Errorf("a connection that only one virtual switch knows gets %+v", got)
	}
	udp := one.segment(0, 0, 1000, 0)
	udp.SetProto(network.UDP)
	if got := one.send(udp); got.ECN() != network.NotECT || got.Feedback() != network.NoFeedback || got.Bytes() != network.HeaderBytes+1000 {
		t.Errorf("UDP became %+v", got)
	}
	one.says(0, network.ACK|network.FIN, 0, 60_000)
	one.says(1, network.ACK|network.FIN, 0, 60_000)
	two.says(0, network.RST|network.ACK, 0, 0)
	b.wait(event.Second)
	if a.known != 0 || a.sweep.Pending() || a.entries[one.from] != 0 || a.find(placeOf(0, 0)) != nil {
		t.Errorf("%d ends after their end, sweep %v, entries %v", a.known, a.sweep.Pending(), a.entries)
	}
	three := b.talk(2, "sender2", "receiver1")
	synACK, _ = three.opens()
	b.expect("now there is room", synACK, 14_600)
	if a.find(placeOf(2, 1)) == nil || len(a.ends) > 4 {
		t.Errorf("an array of %d ends", len(a.ends))
	}
	again := b.talk(2, "sender1", "receiver1") // its number is used again
	syn := again.segment(0, network.SYN, 0, 65_535)
	syn.SetSeq(77)
	again.send(syn)
	if e := a.find(placeOf(2, 0)); e == nil || e.own.first != 77 || e.host != again.from || e.began {
		t.Errorf("%+v", e)
	}
	b.wait(400 * event.Second)
	if a.known != 0 {
		t.Errorf("%d ends after minutes of silence", a.known)
	}
}

// Only the receiver's virtual switch has room for a connection, so nobody answers its feedback. Guests with ECN keep
// their marks and the ECE that answers them.
func TestACDC_MarksOfUnlimitedFlows(t *testing.T) {
	b, a := newGuarded(t, twoSenders, acdclaw.Params{})
	a.mostConns = 1
	b.talk(0, "sender1", "sender2").opens()
	k := b.talk(1, "sender1", "receiver1")
	k.opens()
	if a.find(placeOf(1, 0)) != nil || a.find(placeOf(1, 1)) == nil {
		t.Fatal("the sender's virtual switch has room, or the receiver's has not")
	}
	k.marks(true)
	pk := k.segment(0, network.ACK, 1000, 60_000)
	pk.SetECN(network.ECT0)
	if got := k.send(pk); got.ECN() != network.CE || got.Reserved() != 0 {
		t.Errorf("the receiver's guest gets %+v", got)
	}
	ack := k.segment(1, network.ACK|network.ECE, 0, 60_000)
	ack.SetAck(ack.Ack() + 1000)
	if got := k.send(ack); got.Flags()&network.ECE == 0 || got.ECN() != network.NotECT || got.Reserved() != 0 || got.Feedback() != network.NoFeedback {
		t.Errorf("the sender's guest gets %+v", got)
	}
}

// An acceptor may abort, and accept again with another SYN: sequence numbers begin anew.
func TestACDC_AnotherSYNACK(t *testing.T) {
	b, a := newGuarded(t, twoSenders, acdclaw.Params{Police: true})
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	k.says(1, network.ACK, 1000, 60_000)
	k.says(1, network.RST, 0, 0)
	again := k.segment(1, network.SYN|network.ACK, 0, 65_535)
	again.SetSeq(1 << 30)
	k.send(again)
	if e := a.find(placeOf(0, 1)); e.window.una != 1<<30 || e.window.nxt != 1<<30+1 || e.granted || e.window.bytes != 14_600 {
		t.Errorf("%+v", e)
	}
}
