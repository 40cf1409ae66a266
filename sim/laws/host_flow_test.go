//go:build cgo

package laws

import (
	"net/netip"
	"testing"
	"time"

	"weir/law"
	"weir/sim/event"
	"weir/sim/network"
)

// flowOf is the data that side 0 of a connection sends.
func (k *talk) flow() law.Flow {
	pk := k.segment(0, network.ACK, 0, 0)
	defer k.b.net.Free(pk)
	return law.Flow{
		Src: netip.AddrPortFrom(HostAddress(pk.Src()), pk.SrcPort()), Dst: netip.AddrPortFrom(HostAddress(pk.Dst()), pk.DstPort()), Proto: network.TCP,
	}
}

// acks sends an ACK of the receiver, and returns whether it arrived within d, and its window.
func (k *talk) acks(ack uint32, d event.Time) (arrived bool, window uint16) {
	k.b.t.Helper()
	pk := k.segment(1, network.ACK, 0, 60_000)
	pk.SetAck(ack)
	k.b.last = nothing()
	k.b.net.Send(pk.Src(), pk)
	k.b.wait(d)
	return k.b.last.Conn() == k.conn, k.b.last.Window()
}

// A grant for a flow limits this flow only. The smallest of the flow's, the pair's and the VM's counts. A window of an owner ends its
// pause, and a window that is no limit ends both.
func TestHosts_Flow(t *testing.T) {
	b, _, vms := newHosts(t, true)
	k, other := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender1", "receiver1")
	other.port = 7
	k.opens()
	other.opens()
	if k.flow() == other.flow() {
		t.Fatal("two connections need two flows")
	}
	flow := law.Key{Pair: law.Pair{VM: 1}, Flow: k.flow()}
	b.grant(vms[0], law.Grant{Key: flow, Value: 20_000, Lease: time.Second})
	b.expect("20000/128", k.window(1), 157)
	b.expect("another flow of the pair", other.window(1), 60_000)
	b.grant(vms[0], law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1, Peer: HostAddress(k.to)}}, Value: 10_000, Lease: time.Second})
	b.expect("the pair's is smaller: 10000/128", k.window(1), 79)
	b.grant(vms[0], law.Grant{Kind: law.PauseGrant, Key: flow, Lease: time.Second})
	b.expect("a pause: 1461/128", k.window(1), 12)
	b.grant(vms[0], law.Grant{Key: flow, Value: 5_000, Lease: time.Second})
	b.expect("a window ends it: 5000/128", k.window(1), 40)
	b.grant(vms[0], law.Grant{Key: flow, Value: 1 << 26, Lease: time.Second})
	b.expect("no limit: the pair's", k.window(1), 79)
}

// SE-6: a pause delays ACKs of new data. Each leaves after the hold with a window of one segment, or at once when the pause ends. As
// printed the window is zero, and nothing says that it is open again.
func TestHosts_PauseHoldsACKs(t *testing.T) {
	const hold = 15 * event.Millisecond
	b, h, vms := newHosts(t, true)
	h.hold = hold
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	flow := law.Key{Pair: law.Pair{VM: 1}, Flow: k.flow()}
	pause := law.Grant{Kind: law.PauseGrant, Key: flow, Lease: time.Second}
	b.grant(vms[0], pause)
	if arrived, window := k.acks(1001, event.Millisecond); !arrived || window != 12 {
		t.Errorf("the first ACK seen passes with a segment: %v, window %d", arrived, window)
	}
	if arrived, _ := k.acks(2001, hold-event.Millisecond); arrived {
		t.Error("an ACK of new data did not wait")
	}
	b.wait(2 * event.Millisecond)
	if b.last.Conn() != 0 || b.last.Window() != 12 || b.last.Ack() != 2001 {
		t.Errorf("after the hold: connection %d, window %d, ACK %d", b.last.Conn(), b.last.Window(), b.last.Ack())
	}
	for what, pk := range map[string]*network.Packet{
		"a duplicate": k.segment(1, network.ACK, 0, 60_000), "data": k.segment(1, network.ACK, 100, 60_000),
		"a FIN": k.segment(1, network.ACK|network.FIN, 0, 60_000), "SACK": k.segment(1, network.ACK, 0, 60_000),
	} {
		if pk.SetAck(2001); what != "a duplicate" {
			pk.SetAck(2001 + uint32(h.counts.Held)*1000 + 1000)
		}
		if what == "SACK" {
			pk.AddBlock(network.Block{From: 9000, To: 10_000})
		}
		b.last = nothing()
		b.net.Send(pk.Src(), pk)
		if b.wait(event.Millisecond); b.last.Conn() != 0 {
			t.Errorf("%s waited", what)
		}
	}
	if arrived, _ := k.acks(9001, event.Millisecond); arrived {
		t.Error("an ACK of new data did not wait")
	}
	b.grant(vms[0], law.Grant{Key: flow, Value: 20_000, Lease: time.Second})
	if b.wait(event.Microsecond); b.last.Conn() != 0 || b.last.Window() != 157 {
		t.Errorf("the pause has ended: connection %d, window %d", b.last.Conn(), b.last.Window())
	}
	if c := h.Counts(); c.Held != 2 || h.heldNow != 0 {
		t.Errorf("%+v, %d wait", c, h.heldNow)
	}

	zero, hz, vz := newHosts(t, true)
	hz.zero = true
	k = zero.talk(0, "sender1", "receiver1")
	k.opens()
	zero.grant(vz[0], law.Grant{Kind: law.PauseGrant, Key: law.Key{Pair: law.Pair{VM: 1}, Flow: k.flow()}, Lease: time.Second})
	zero.expect("as printed", k.window(1), 0)
	zero.last = nothing()
	zero.grant(vz[0], law.Grant{Key: law.Key{Pair: law.Pair{VM: 1}, Flow: k.flow()}, Value: 20_000, Lease: time.Second})
	if zero.wait(event.Second); zero.last.Conn() == 0 {
		t.Error("as printed nothing is sent when the window opens")
	}
}

// The number of ACKs that wait has a limit. Further ones pass.
func TestHosts_HeldLimit(t *testing.T) {
	b, h, vms := newHosts(t, true)
	h.hold = event.Second
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	b.grant(vms[0], law.Grant{Kind: law.PauseGrant, Key: law.Key{Pair: law.Pair{VM: 1}, Flow: k.flow()}, Lease: time.Second})
	k.acks(1001, event.Millisecond)
	for n := range uint32(hostHeld) {
		if arrived, _ := k.acks(2001+n, 100*event.Microsecond); arrived {
			t.Fatalf("ACK %d did not wait", n)
		}
	}
	if arrived, _ := k.acks(9001, event.Millisecond); !arrived {
		t.Error("an ACK beyond the limit waited")
	}
}
