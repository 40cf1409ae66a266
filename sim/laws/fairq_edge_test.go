//go:build cgo

package laws

import (
	"testing"

	"weir/experiment"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// crossing counts what passes between two switches.
type crossing struct {
	flagged, plain int
	changed        int // unflagged ACKs whose window was changed
}

func (b *bed) cross(port string) *crossing {
	c := &crossing{}
	b.net.PortByName(port).Tap(func(pk *network.Packet, _ event.Time) {
		switch {
		case pk.Flags()&network.SYN != 0:
		case pk.Reserved()&edgeFlag != 0:
			c.flagged++
		default:
			c.plain++
			if pk.Window() != 60_000 {
				c.changed++
			}
		}
	})
	return c
}

// The switches advertise a flow's window once in 10 ms, and at once when it moved by more than an eighth. All other
// ACKs cross the switches unchanged. They still arrive at the sender limited, and without a flag. By hand, as in
// docs/fairq.md.
func TestFairQ_EdgeModeAdvertisesSome(t *testing.T) {
	p := fairQDefaults()
	p.Edge = true
	b := newBed(t, 2, p)
	back := b.cross("right->left")
	right, left := b.port("right->left"), b.port("left->sender1")
	one, two := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
	synACK, ack := one.opens()
	b.expect("SYN-ACK where nothing is granted", synACK, 65_535)
	b.expect("the opener's ACK, by the receiver's edge", ack, 196)
	expect := func(what string, window uint16, flagged int) {
		t.Helper()
		before := *back
		b.expect(what, one.window(1), window)
		if b.last.Reserved() != 0 {
			t.Errorf("%s: reserved bits %d came to the host", what, b.last.Reserved())
		}
		if got := back.flagged - before.flagged; got != flagged || back.plain-before.plain != 1-flagged {
			t.Errorf("%s: %d flagged between the switches, want %d", what, got, flagged)
		}
	}
	expect("the first advertises 25000", 196, 1)
	for range 3 {
		expect("the others are left to the edge", 196, 0)
	}
	if right.advertised != 1 || right.left != 3 || right.rewritten != 1 || left.advertised != 0 || left.left != 3 {
		t.Errorf("advertised, left, rewritten: right %d, %d, %d; left %d, %d", right.advertised, right.left, right.rewritten, left.advertised, left.left)
	}
	synACK, _ = two.opens()
	b.expect("a SYN-ACK is rewritten and never flagged", synACK, 25_000)
	expect("two flows have 12500 each: advertised at once", 98, 1)
	expect("and left again", 98, 0)
	for range 3 {
		b.wait(3300 * event.Microsecond)
		one.says(0, network.ACK, 1000, 60_000)
		two.says(0, network.ACK, 1000, 60_000)
	}
	grant := b.port("right->receiver1").state.GrantQ8 >> 8
	if moved := float64(grant) / 12_500; moved < 8.0/9 || moved > 9.0/8 {
		t.Fatalf("the grant moved to %d: this test shows nothing", grant)
	}
	expect("10 ms later", uint16((grant+127)>>7), 1)
	b.wait(20 * event.Millisecond)
	expect("nobody sends, and nothing is granted: the receiver's own window is advertised", 60_000, 1)
	expect("and no longer limited", 60_000, 0)
	if back.changed > 0 {
		t.Errorf("%d windows were changed without a flag", back.changed)
	}
	if n := b.tally(); n[fairq.Advertised] != 9 || n[fairq.Left] != 17 || n[fairq.Acks] != 38 {
		t.Errorf("%+v", n)
	}
}

// Several switches: the least of their grants arrives, whichever switch advertises first.
func TestFairQ_EdgeModeLeastOfSeveral(t *testing.T) {
	p := fairQDefaults()
	p.Edge = true
	b := newBed(t, 2, p)
	one := b.talk(0, "sender1", "receiver1")
	one.opens()
	b.expect("alone: 25000", one.window(1), 196)
	for i := range int32(3) {
		b.talk(1+i, "sender2", "receiver2").opens()
	}
	b.expect("4 flows from left to right, 1 to receiver1: 6250", one.window(1), 49)
	b.expect("left to the edge", one.window(1), 49)
	b.expect("4 from right to left, 1 to sender1: 6250", one.window(0), 49)
}

// edgeOnly is a network whose switches lack FairQ and whose hosts have the edge. says sends an ACK from between the
// switches, as an advertising switch would.
func edgeOnly(t *testing.T, shrink string) (*bed, func(k *talk, flagged bool, ack uint32, window uint16) uint16) {
	p := fairQDefaults()
	p.Edge, p.Shrink = true, shrink
	b := newBedOn(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 2}, p)
	return b, func(k *talk, flagged bool, ack uint32, window uint16) uint16 {
		t.Helper()
		pk := k.segment(1, network.ACK, 0, window)
		pk.SetAck(pk.Ack() + ack)
		if flagged {
			pk.SetReserved(edgeFlag)
		}
		b.last = nothing()
		b.net.PortByName("right->left").Send(pk)
		b.net.Queue.Run(b.net.Queue.Now() + event.Second)
		if b.last.Conn() != k.conn || b.last.Reserved() != 0 {
			t.Fatalf("it did not arrive, or with reserved bits: %+v", b.last)
		}
		return b.last.Window()
	}
}

// The edge remembers a window for a second, and limits no flow below its least window. It compares fields where it has
// not seen the handshake, and ignores flags that a host set.
func TestFairQ_EdgeRemembers(t *testing.T) {
	b, says := edgeOnly(t, "allow")
	one := b.talk(0, "sender1", "receiver1")
	one.opens()
	b.expect("nothing was advertised", says(one, false, 0, 60_000), 60_000)
	b.expect("advertised", says(one, true, 0, 196), 196)
	b.expect("limited", says(one, false, 0, 60_000), 196)
	b.expect("smaller", says(one, false, 0, 195), 195)
	b.expect("full", says(one, true, 0, 0), 0)
	b.expect("which says nothing of the network", says(one, false, 0, 60_000), 196)
	b.expect("less than a segment is advertised", says(one, true, 0, 3), 3)
	b.expect("1461 bytes are the least", says(one, false, 0, 60_000), 12)
	b.wait(900 * event.Millisecond)
	b.expect("0.9 s later", says(one, false, 0, 60_000), 12)
	b.wait(100 * event.Millisecond)
	b.expect("the lease is over", says(one, false, 0, 60_000), 60_000)
	b.expect("advertised", says(one, true, 0, 196), 196)
	one.says(0, network.SYN, 0, 65_535)
	one.says(1, network.SYN|network.ACK, 0, 65_535)
	b.expect("the same ends again: another connection", says(one, false, 0, 60_000), 60_000)
	old := b.talk(1, "sender1", "receiver1")
	b.expect("its handshake was not seen", says(old, true, 0, 300), 300)
	b.expect("limited to the field as it is", says(old, false, 0, 60_000), 300)
	pk := one.segment(1, network.ACK, 0, 5)
	pk.SetReserved(edgeFlag)
	b.expect("a host's own window", one.send(pk).Window(), 5)
	b.expect("and it advertised nothing", says(one, false, 0, 60_000), 60_000)
	if e := b.net.PortByName("receiver1->right").Laws()[0].(edgeGuard); e.forged != 1 {
		t.Errorf("%d forged flags", e.forged)
	}
}

// shrink: avoid. The edge keeps right edges: the window that the SYN-ACK granted is used up first.
func TestFairQ_EdgeKeepsTheRightEdge(t *testing.T) {
	b, says := edgeOnly(t, "avoid")
	one := b.talk(0, "sender1", "receiver1")
	one.opens() // grants 65535 from 1001 on
	b.expect("advertised 25088", says(one, true, 0, 196), 511)
	b.expect("52535 are left", says(one, false, 13_000, 60_000), 411)
	b.expect("all are used up", says(one, false, 65_608, 60_000), 196)
	old := b.talk(1, "sender1", "receiver1")
	b.expect("its handshake was not seen", says(old, true, 0, 300), 300)
	b.expect("it is left alone", says(old, false, 0, 60_000), 60_000)
}
