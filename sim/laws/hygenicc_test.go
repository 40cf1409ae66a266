//go:build cgo

package laws

import (
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/law/hygenicc"
	"weir/sim/event"
	"weir/sim/network"
)

// newHyGenICCBed is a bed with the law, whose bottleneck marks all that is ECT.
func newHyGenICCBed(t *testing.T, feedback string) (*bed, *hygeniccHosts) {
	t.Helper()
	p := hygenicc.Default()
	p.Feedback = feedback
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: true}, hygenicc.Spec().Name, *p, "switch")
	b.net.PortByName("switch->receiver1").SetLaws(markAll{})
	return b, b.laws.laws[0].Attached.(*hygeniccHosts)
}

func (b *bed) limit(host string) law.Rate {
	id, _ := b.net.Node(host)
	rate, _ := b.net.HostPort(id).Limit()
	return rate
}

// sends sends packets of a connection without waiting for them.
func (k *talk) sends(n int, proto uint8) {
	for range n {
		pk := k.segment(0, network.ACK, 1000, 60_000)
		pk.SetProto(proto)
		k.b.net.Send(pk.Src(), pk)
	}
	k.b.wait(5 * event.Millisecond / 4)
}

// The marks of a host's packets are counted at their receiver, and come back in a message, whatever transport they are of. They lower the
// rate of the host that sent them, and of no other. No VM sees a mark, and no message.
func TestHyGenICC_Messages(t *testing.T) {
	for _, proto := range []uint8{network.TCP, network.UDP} {
		b, h := newHyGenICCBed(t, hygenicc.Message)
		k := b.talk(0, "sender1", "receiver1")
		b.talk(1, "sender2", "receiver1").sends(1, proto)
		k.sends(1, proto) // it is active from now on
		b.last = nothing()
		k.sends(20, proto)
		if b.last.Proto() != proto || b.last.ECN() != network.NotECT {
			t.Errorf("protocol %d: the last packet is of %d with ECN %d", proto, b.last.Proto(), b.last.ECN())
		}
		// Two come first, then eleven, and the rest after a millisecond. Rises follow 2 ms after the last mark only.
		if h.counts.messages < 2 {
			t.Errorf("protocol %d: %+v", proto, h.counts)
		}
		if got := b.limit("sender1"); got > 945e6 || got < 895e6 {
			t.Errorf("protocol %d: sender1 is limited to %v", proto, got)
		}
		if got := b.limit("sender2"); got != 0 {
			t.Errorf("protocol %d: sender2 is limited to %v", proto, got)
		}
	}
}

// The hypervisor of a receiver sends its messages at once, although a queue of 56 ms waits for the receiver's own rate. Without hypervisors
// the port is the receiver's, too: a message waits there for the packet before it, 1 ms.
func TestHyGenICC_MessagesPassTheLimiter(t *testing.T) {
	for _, hypervisors := range []bool{true, false} {
		p := hygenicc.Default()
		p.Feedback = hygenicc.Message
		b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: hypervisors}, hygenicc.Spec().Name, *p, "switch")
		b.net.PortByName("switch->receiver1").SetLaws(markAll{})
		k, back := b.talk(0, "sender1", "receiver1"), b.talk(1, "receiver1", "sender2")
		k.sends(1, network.UDP) // it is active from now on
		h := b.laws.laws[0].Attached.(*hygeniccHosts)
		b.grant(h.hosts.vms[k.to], law.Grant{
			Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: vmOf(k.to)}}, Value: 10e6, Lease: time.Second,
		})
		for range 100 {
			pk := back.segment(0, network.ACK, 1000, 60_000)
			pk.SetProto(network.UDP)
			b.net.Send(pk.Src(), pk)
		}
		if port := b.net.HostPort(k.to); port.Backlog() < 65_000 || port.Counters().Tail.Packets == 0 {
			t.Fatalf("hypervisors %v: %d bytes wait: this test shows nothing", hypervisors, port.Backlog())
		}
		begin := b.net.Queue.Now()
		k.sends(20, network.UDP)
		for b.limit("sender1") == 0 && b.net.Queue.Now() < begin+100*event.Millisecond {
			b.wait(event.Millisecond / 10)
		}
		took := b.net.Queue.Now() - begin
		t.Logf("hypervisors %v: the rate falls after %d us", hypervisors, took/event.Microsecond)
		if took > 3*event.Millisecond {
			t.Errorf("hypervisors %v: the rate falls after %d us", hypervisors, took/event.Microsecond)
		}
	}
}

// With bits a mark comes back on a packet of the other direction. A pair without such packets gets none: UDP that nobody answers takes
// the link, as with the printed law.
func TestHyGenICC_Bits(t *testing.T) {
	b, h := newHyGenICCBed(t, hygenicc.Bit)
	flagged := 0
	b.net.PortByName("switch->sender1").Tap(func(pk *network.Packet, _ event.Time) {
		if pk.IPFlag() {
			flagged++
		}
	})
	k := b.talk(0, "sender1", "receiver1")
	k.sends(1, network.TCP)
	k.sends(20, network.TCP)
	if got := b.limit("sender1"); got != 0 || h.counts.messages+h.counts.bits != 0 {
		t.Errorf("nothing went back, and sender1 is limited to %v, %+v", got, h.counts)
	}
	for range 30 {
		if pk := k.says(1, network.ACK, 0, 60_000); pk.IPFlag() {
			t.Fatal("a VM sees the bit")
		}
	}
	if flagged != 21 || h.counts.bits != 21 {
		t.Errorf("%d of 30 packets carry a bit, %+v: want 21, one for each mark", flagged, h.counts)
	}
	if got := b.limit("sender1"); got < 975e6 || got > 985e6 {
		t.Errorf("sender1 is limited to %v, want about 979 Mbit/s", got)
	}
}

// A VM cannot lower a neighbour's rate by messages or bits of its own: they are dropped, or cleared, and counted. A message that is sent
// behind this defence lowers it to half or less.
func TestHyGenICC_Forged(t *testing.T) {
	b, h := newHyGenICCBed(t, hygenicc.Message)
	one, other := b.talk(0, "sender1", "receiver1"), b.talk(1, "receiver1", "sender1")
	one.sends(1, network.UDP)
	for range 10 {
		pk := other.segment(0, 0, 0, 0)
		pk.SetProto(network.MarkMessage)
		pk.SetMarked(50)
		b.net.Send(pk.Src(), pk)
		pk = other.segment(0, network.ACK, 0, 60_000)
		pk.SetIPFlag(true)
		b.net.Send(pk.Src(), pk)
	}
	b.wait(event.Millisecond)
	if got := b.limit("sender1"); got != 0 || h.counts.forged != 20 {
		t.Errorf("sender1 is limited to %v, %+v", got, h.counts)
	}
	for range 10 {
		pk := other.segment(0, 0, 0, 0)
		pk.SetProto(network.MarkMessage)
		pk.SetMarked(50)
		b.net.InjectOut(h, pk.Src(), pk)
		b.wait(event.Millisecond / 2)
	}
	if got := b.limit("sender1"); got == 0 || got > 500e6 {
		t.Errorf("without the defence sender1 is limited to %v: want half of its link or less", got)
	}
}
