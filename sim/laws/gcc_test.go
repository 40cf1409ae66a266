//go:build cgo

package laws

import (
	"testing"
	"time"

	"weir/datapath/native"
	"weir/experiment"
	"weir/law"
	"weir/law/droptail"
	"weir/law/gcc"
	"weir/sim/event"
	"weir/sim/network"
)

// seen is the ECN field of each packet that a port passed.
type seen struct{ fields []uint8 }

func (s *seen) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	s.fields = append(s.fields, pk.ECN())
	pk.SetECN(network.CE) // congestion
	return network.Pass
}

// newGCCBed is a bed with the law, whose bottleneck marks everything.
func newGCCBed(t *testing.T, change func(*gcc.Config)) (*bed, *seen) {
	t.Helper()
	p := gcc.Default()
	change(p)
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: true}, "gcc", *p, "switch")
	s := &seen{}
	for _, at := range b.net.SwitchPorts([]string{"switch"}) {
		at.SetLaws(append([]network.Law{s}, at.Laws()...)...)
	}
	return b, s
}

// field sends a segment with an ECN field, and returns the field on the wire and at the other VM.
func (k *talk) field(s *seen, side int, flags uint16, payload int32, ecn uint8) (wire, arrived uint8) {
	k.b.t.Helper()
	pk := k.segment(side, flags, payload, 60_000)
	pk.SetECN(ecn)
	s.fields = s.fields[:0]
	got := k.send(pk)
	return s.fields[0], got.ECN()
}

// GO-3, GO-4, GS-7: ECT is set on all that leaves a VM, and the field of what arrives is cleared, in packets that are forwarded.
func TestGCC_ClearsAll(t *testing.T) {
	b, s := newGCCBed(t, func(*gcc.Config) {})
	k := b.talk(0, "sender1", "receiver1")
	for _, row := range []struct {
		what    string
		side    int
		flags   uint16
		payload int32
	}{
		{"SYN", 0, network.SYN | network.ECE | network.CWR, 0},
		{"SYN-ACK", 1, network.SYN | network.ACK | network.ECE, 0},
		{"ACK", 0, network.ACK, 0},
		{"data", 0, network.ACK, 1000},
	} {
		for ecn := range uint8(4) {
			wire, arrived := k.field(s, row.side, row.flags, row.payload, ecn)
			if wire != network.ECT0 || arrived != network.NotECT {
				t.Errorf("%s with %d: %d on the wire, %d at the VM; want ECT(0) and Not-ECT", row.what, ecn, wire, arrived)
			}
		}
	}
}

// GO-3, GO-4: Listing 4 sets no ECT, so a queue above its threshold marks nothing of a VM without ECN. Listing 5 clears nothing, so a VM
// sees each mark.
func TestGO3_GO4_Listings(t *testing.T) {
	b := newBedOf(t, twoSenders, droptail.Name, *droptail.Spec().Params().(*droptail.Params), "switch")
	printed := &seen{}
	b.net.PortByName("switch->receiver1").SetLaws(printed)
	listings := b.talk(0, "sender1", "receiver1")
	b, ours := newGCCBed(t, func(*gcc.Config) {})
	k := b.talk(0, "sender1", "receiver1")
	above := func(ecn uint8) native.MarkVerdict {
		return native.Mark(native.MarkConfig{ThresholdBytes: 30_000}, 30_001, ecn)
	}
	for _, row := range []struct {
		what    string
		k       *talk
		s       *seen
		verdict native.MarkVerdict
		arrived uint8
	}{
		{"ours", k, ours, native.MarkSetCE, network.NotECT},
		{"the listings", listings, printed, native.MarkPassNotECT, network.CE},
	} {
		wire, arrived := row.k.field(row.s, 0, network.ACK, 1000, network.NotECT)
		if v := above(wire); v != row.verdict || arrived != row.arrived {
			t.Errorf("%s: %d on the wire, for which the queue decides %v; the VM sees %d", row.what, wire, v, arrived)
		}
	}
}

// With clear: not_negotiated a connection whose ends agreed on ECN keeps its marks; others, and UDP, never see one.
func TestGCC_ClearsNotNegotiated(t *testing.T) {
	b, s := newGCCBed(t, func(p *gcc.Config) { p.Clear = law.ClearNotNegotiated })
	agreed := b.talk(0, "sender1", "receiver1")
	agreed.field(s, 0, network.SYN|network.ECE|network.CWR, 0, network.NotECT)
	agreed.field(s, 1, network.SYN|network.ACK|network.ECE, 0, network.NotECT)
	refused := b.talk(1, "sender2", "receiver1")
	refused.field(s, 0, network.SYN|network.ECE|network.CWR, 0, network.NotECT)
	refused.field(s, 1, network.SYN|network.ACK, 0, network.NotECT)
	reflected := b.talk(2, "sender2", "receiver1") // RFC 3168, 6.1.1: both flags in a SYN-ACK are no agreement
	reflected.field(s, 0, network.SYN|network.ECE|network.CWR, 0, network.NotECT)
	reflected.field(s, 1, network.SYN|network.ACK|network.ECE|network.CWR, 0, network.NotECT)
	for _, row := range []struct {
		what                string
		k                   *talk
		payload             int32
		ecn, wire, atTheEnd uint8
	}{
		{"agreed, data", agreed, 1000, network.ECT0, network.ECT0, network.CE},
		{"agreed, data without ECT", agreed, 1000, network.NotECT, network.ECT0, network.CE},
		{"agreed, data with CE", agreed, 1000, network.CE, network.ECT0, network.CE},
		{"agreed, ACK", agreed, 0, network.NotECT, network.NotECT, network.CE},
		{"refused, data", refused, 1000, network.NotECT, network.ECT0, network.NotECT},
		{"reflected, data", reflected, 1000, network.NotECT, network.ECT0, network.NotECT},
	} {
		if wire, arrived := row.k.field(s, 0, network.ACK, row.payload, row.ecn); wire != row.wire || arrived != row.atTheEnd {
			t.Errorf("%s: %d on the wire, %d at the VM; want %d, %d", row.what, wire, arrived, row.wire, row.atTheEnd)
		}
	}
	udp := b.talk(3, "sender1", "receiver1").segment(0, 0, 1000, 0)
	udp.SetProto(network.UDP)
	b.last = nothing()
	b.net.Send(udp.Src(), udp)
	b.wait(event.Second)
	if b.last.Conn() != 3 || b.last.ECN() != network.NotECT {
		t.Errorf("UDP arrives with %d", b.last.ECN())
	}
	agreed.field(s, 0, network.SYN, 0, network.NotECT) // the number of the connection is used again, without ECN
	if _, arrived := agreed.field(s, 0, network.ACK, 1000, network.NotECT); arrived != network.NotECT {
		t.Errorf("a later connection keeps the agreement of the one before: %d", arrived)
	}
}

// printedBucket is the bucket of Algorithm 1: tokens are credited at each attempt, and the stamp advances when a packet is sent.
type printedBucket struct {
	rate, depth, tokens float64
	sent                event.Time
}

func (l *printedBucket) Out(_ network.NodeID, pk *network.Packet, now event.Time) network.Verdict {
	l.tokens = min(l.depth, l.tokens+l.rate/8*time.Duration(now-l.sent).Seconds())
	if l.tokens < float64(pk.Bytes()) {
		return network.Drop
	}
	l.tokens -= float64(pk.Bytes())
	l.sent = now
	return network.Pass
}

func (l *printedBucket) In(network.NodeID, *network.Packet, event.Time) network.Verdict {
	return network.Pass
}

// counted counts the bytes that a port passes.
type counted struct{ bytes int64 }

func (c *counted) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	c.bytes += int64(pk.Bytes())
	return network.Pass
}

// GS-1: a limit of 100 Mbit/s passes 100 Mbit/s, however often a VM tries. The printed bucket credits the same time after each drop
// again, and passes far more.
func TestGS1_NoTimeCountsTwice(t *testing.T) {
	passed := func(printed bool) float64 {
		b, h, vms := newHosts(t, true)
		from, _ := b.net.Node("sender1")
		to, _ := b.net.Node("receiver1")
		if printed {
			b.net.SetGuards(append(b.net.Guards(), &printedBucket{rate: 100e6, depth: 312_500, tokens: 312_500})...)
		} else {
			b.grant(vms[0], law.Grant{Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 100e6, Lease: 10 * time.Second})
		}
		c := &counted{}
		b.net.PortByName("switch->receiver1").SetLaws(c)
		for range 100_000 { // 1514 B each 10 us: 1.2 Gbit/s for a second
			pk := b.net.NewPacket()
			pk.SetSrc(from)
			pk.SetDst(to)
			pk.SetProto(network.UDP)
			pk.SetPayload(1472)
			pk.SetBytes(1514)
			b.net.Send(from, pk)
			b.wait(event.Microsecond * 10)
			h.Heartbeat(0, b.net.Queue.Now())
		}
		return float64(c.bytes) * 8 / 1e6
	}
	if got := passed(false); got < 95 || got > 104 {
		t.Errorf("%.1f Mbit in a second, want 100", got)
	}
	if got := passed(true); got < 200 {
		t.Errorf("printed: %.1f Mbit in a second; it should be far above 100", got)
	}
}

// VMs of one hypervisor share its uplink: as soon as the second one sends, each has half.
func TestGCC_SharesTheUplink(t *testing.T) {
	b := newBedOf(t, experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: true, VMs: 2}, "gcc", *gcc.Default(), "switch")
	limit := func(vm string) law.Rate {
		id, ok := b.net.Node(vm)
		if !ok {
			t.Fatalf("there is no %s", vm)
		}
		rate, _ := b.net.HostPort(id).Limit()
		return rate
	}
	one := b.talk(0, "sender1.vm1", "receiver1.vm1")
	one.says(0, network.ACK, 1000, 60_000)
	b.wait(20 * event.Millisecond)
	if got := limit("sender1.vm1"); got != 0 {
		t.Errorf("the only VM that sends is limited to %v", got)
	}
	b.talk(1, "sender1.vm2", "receiver1.vm1").says(0, network.ACK, 1000, 60_000)
	b.talk(2, "sender2.vm1", "receiver1.vm1").says(0, network.ACK, 1000, 60_000)
	b.wait(20 * event.Millisecond)
	for vm, want := range map[string]law.Rate{"sender1.vm1": 500e6, "sender1.vm2": 500e6, "sender2.vm1": 0} {
		if got := limit(vm); got != want {
			t.Errorf("%s is limited to %v, want %v", vm, got, want)
		}
	}
}
