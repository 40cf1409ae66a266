//go:build cgo

package laws

import (
	"net/netip"
	"testing"
	"time"

	"weir/experiment"
	"weir/law"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// newHosts is a network of two VMs (sender1 is VM 1, sender2 VM 2) and a receiver.
func newHosts(t *testing.T, hypervisors bool) (*bed, *Hosts, [2]control.Enforcer) {
	t.Helper()
	topology := twoSenders
	topology.Hypervisors = hypervisors
	g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.Build(event.NewQueue(), &experiment.Config{Graph: g}, network.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, net: n}
	n.Sink = b
	h := NewHosts(n)
	var vms [2]control.Enforcer
	for i, name := range []string{"sender1", "sender2"} {
		node, _ := n.Node(name)
		if vms[i], err = h.AddVM(law.VM(i+1), node); err != nil {
			t.Fatal(err)
		}
	}
	return b, h, vms
}

func (b *bed) grant(to control.Enforcer, g law.Grant) {
	b.t.Helper()
	if err := to.Enforce(b.net.Queue.Now(), g); err != nil {
		b.t.Fatal(err)
	}
}

// A pair's window is limited to its grant and never below a segment and a byte. Without heartbeats it is released within 1.4 s;
// another VM, and a grant for another peer, limit nothing. The fields are those of the kernel's table test.
func TestHosts_Window(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		b, h, vms := newHosts(t, hypervisors)
		k, other := b.talk(0, "sender1", "receiver1"), b.talk(1, "sender2", "receiver1")
		synACK, ack := k.opens()
		b.expect("SYN-ACK without a grant", synACK, 65_535)
		b.expect("ACK without a grant", ack, 60_000)
		other.opens()
		peer := HostAddress(k.to)
		pair := law.Key{Pair: law.Pair{VM: 1, Peer: peer}}
		b.grant(vms[0], law.Grant{Key: pair, Value: 20_000, Lease: 10 * time.Second})
		b.expect("20000/128", k.window(1), 157)
		b.expect("another VM", other.window(1), 60_000)
		b.grant(vms[0], law.Grant{Key: law.Key{Pair: law.Pair{VM: 1, Peer: netip.MustParseAddr("10.0.0.200")}}, Value: 1, Lease: 10 * time.Second})
		b.expect("a grant for another peer", k.window(1), 157)
		b.grant(vms[0], law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 10_000, Lease: 10 * time.Second})
		b.expect("the VM's is smaller: 10000/128", k.window(1), 79)
		b.grant(vms[0], law.Grant{Owner: 1, Kind: law.PauseGrant, Key: pair, Lease: 10 * time.Second})
		b.expect("a pause: 1461/128", k.window(1), 12)
		for range 5 { // heartbeats keep the grants
			b.wait(500 * event.Millisecond)
			h.Heartbeat(1, b.net.Queue.Now())
		}
		b.expect("a pause, with heartbeats", k.window(1), 12)
		b.wait(990 * event.Millisecond)
		b.expect("before the lease of the owner ends", k.window(1), 12)
		b.wait(100 * event.Millisecond)
		if w := k.window(1); w <= 24 || w >= 60_000 {
			t.Errorf("while it is released: window %d", w)
		}
		b.wait(310 * event.Millisecond)
		b.expect("1.4 s after the last heartbeat", k.window(1), 60_000)
		if c := h.Counts(); c.Limited == 0 || c.Ungranted == 0 || c.Unknown != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// A VM's port follows the smallest valid rate, and is unlimited when the last grant ends, or its owner falls silent.
func TestHosts_Rate(t *testing.T) {
	for _, hypervisors := range []bool{false, true} {
		b, h, vms := newHosts(t, hypervisors)
		node, _ := b.net.Node("sender1")
		port := b.net.HostPort(node)
		rate := func(o law.Owner, bps uint64, lease time.Duration) law.Grant {
			return law.Grant{Owner: o, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: bps, Lease: lease}
		}
		expect := func(when string, want law.Rate) {
			t.Helper()
			if got, _ := port.Limit(); got != want {
				t.Errorf("hypervisors %v, %s: %v, want %v", hypervisors, when, got, want)
			}
		}
		b.grant(vms[0], rate(1, 300e6, 200*time.Millisecond))
		expect("granted", 300e6)
		b.grant(vms[0], rate(2, 100e6, 50*time.Millisecond))
		expect("the smaller one", 100e6)
		b.wait(50 * event.Millisecond)
		expect("the smaller one has ended", 300e6)
		b.wait(150 * event.Millisecond)
		expect("both have ended", 0)
		b.grant(vms[0], rate(1, 300e6, 10*time.Second))
		b.wait(900 * event.Millisecond)
		h.Heartbeat(1, b.net.Queue.Now())
		b.wait(999 * event.Millisecond)
		expect("kept by a heartbeat", 300e6)
		b.wait(2 * event.Millisecond)
		expect("the owner is silent", 0)
	}
}

// A limited VM has the queue of its rate, as in the kernel: 50 ms of it, and at least 70 KB. Further packets are lost at its port. When the
// rate ends it has the queue of its NIC again.
func TestHosts_Queue(t *testing.T) {
	const packets, bytes = 200, 1500
	for _, row := range []struct {
		bps    uint64
		holds  int64 // packets
		inside bool  // hypervisors
	}{{10e6, 70_000 / bytes, false}, {10e6, 70_000 / bytes, true}, {40e6, 250_000 / bytes, false}, {40e6, 250_000 / bytes, true}} {
		b, _, vms := newHosts(t, row.inside)
		k := b.talk(0, "sender1", "receiver1")
		port := b.net.HostPort(k.from)
		send := func() {
			for range packets {
				pk := k.segment(0, 0, bytes-network.HeaderBytes, 0)
				pk.SetProto(network.UDP)
				b.net.Send(k.from, pk)
			}
		}
		b.grant(vms[0], law.Grant{Owner: 1, Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: row.bps, Lease: 200 * time.Millisecond})
		send()
		c := port.Counters() // a wire takes no time: the packets of the first bucket are sent
		if waits, lost := c.Queued.Packets, c.Tail.Packets; waits != row.holds || lost != packets-row.holds-c.Sent.Packets || lost == 0 {
			t.Errorf("%+v: %d packets wait, %d are lost", row, waits, lost)
		}
		b.wait(300 * event.Millisecond)
		send()
		if lost := port.Counters().Tail.Packets - c.Tail.Packets; lost != 0 {
			t.Errorf("%+v: when the rate has ended %d packets are lost", row, lost)
		}
	}
}

// A grant that cannot be enforced is refused.
func TestHosts_Refuses(t *testing.T) {
	_, _, vms := newHosts(t, false)
	flow := law.Flow{Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2"), Proto: 6}
	key := law.Key{Pair: law.Pair{VM: 1}}
	for name, g := range map[string]law.Grant{
		"another VM":    {Key: law.Key{Pair: law.Pair{VM: 2}}},
		"a flow's rate": {Key: law.Key{Pair: law.Pair{VM: 1}, Flow: flow}, Kind: law.RateGrant},
		"an owner":      {Key: key, Owner: 8},
		"a pair's rate": {Key: law.Key{Pair: law.Pair{VM: 1, Peer: netip.MustParseAddr("10.0.0.2")}}, Kind: law.RateGrant},
		"a fifth owner": {Key: key, Owner: 5, Lease: time.Second},
		"not a grant":   {},
	} {
		if name == "a fifth owner" {
			for o := range law.Owner(4) {
				if err := vms[0].Enforce(0, law.Grant{Key: key, Owner: o, Lease: time.Second}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := vms[0].Enforce(0, g); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A grant replaces its owner's earlier one also if another owner's, which stands before it, has ended.
func TestHosts_Replaces(t *testing.T) {
	b, h, vms := newHosts(t, false)
	k := b.talk(0, "sender1", "receiver1")
	k.opens()
	key := law.Key{Pair: law.Pair{VM: 1}}
	b.grant(vms[0], law.Grant{Owner: 1, Key: key, Value: 30_000, Lease: time.Millisecond})
	b.grant(vms[0], law.Grant{Owner: 2, Key: key, Value: 10_000, Lease: 10 * time.Second})
	b.expect("10000/128", k.window(1), 79)
	b.wait(600 * event.Millisecond)
	h.Heartbeat(2, b.net.Queue.Now())
	b.grant(vms[0], law.Grant{Owner: 2, Key: key, Value: 20_000, Lease: 10 * time.Second})
	b.expect("20000/128", k.window(1), 157)
}

// An owner that was silent for its lease begins again without grants: those have been released, and do not limit again.
func TestHosts_SilentOwner(t *testing.T) {
	for _, quiet := range []event.Time{999 * event.Millisecond, 1500 * event.Millisecond} {
		b, h, vms := newHosts(t, false)
		k := b.talk(0, "sender1", "receiver1")
		k.opens()
		pair := law.Key{Pair: law.Pair{VM: 1, Peer: HostAddress(k.to)}}
		b.grant(vms[0], law.Grant{Owner: 1, Key: pair, Value: 20_000, Lease: time.Minute})
		b.grant(vms[0], law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1}}, Value: 30_000, Lease: time.Minute})
		b.wait(quiet)
		h.Heartbeat(1, b.net.Queue.Now())
		want := uint16(157) // 20000/128
		if quiet > event.Second {
			want = 60_000
		}
		b.expect("after the silence", k.window(1), want)
		b.grant(vms[0], law.Grant{Owner: 1, Key: pair, Value: 10_000, Lease: time.Minute})
		b.expect("granted again: 10000/128", k.window(1), 79)
	}
}

// segmentGrant is what SICC gives a pair: the smallest window.
func (k *talk) segmentGrant(lease time.Duration) law.Grant {
	return law.Grant{Owner: 1, Key: law.Key{Pair: law.Pair{VM: 1, Peer: HostAddress(k.to)}}, Value: 1, Lease: lease}
}

// SI-8: the receiver's ACKs reach the data's source, and the receiver's scale applies to them. The printed message has the source's own.
func TestSI8_ScaleOfTheReceiver(t *testing.T) {
	for _, row := range []struct {
		scale         [2]int8 // of the source, of the receiver
		ours, printed uint16
	}{
		{[2]int8{3, 7}, 12, 182},
		{[2]int8{7, 3}, 183, 11},
	} {
		b, _, vms := newHosts(t, false)
		k := b.talk(0, "sender1", "receiver1")
		k.scale = row.scale
		k.opens()
		b.grant(vms[0], k.segmentGrant(10*time.Second))
		b.expect("a segment and a byte", k.window(1), row.ours)
		if printed := uint16(1460) >> row.scale[0]; printed != row.printed || printed == row.ours {
			t.Errorf("printed: %d, want %d", printed, row.printed)
		}
	}
}

// SH-1, SH-2, SH-3: the limit is a segment in units of the receiver's scale, rounded up, and never above the field that came. The printed
// forms stop the flow, cut the segment, or open a smaller window.
func TestSH_LimitAtTheHost(t *testing.T) {
	mss := uint16(1460)
	for _, row := range []struct {
		item                 string
		scale                int8
		field, ours, printed uint16
	}{
		{"SH-1: M >> M", 7, 60_000, 12, mss >> mss},
		{"SH-2: rounded down", 7, 60_000, 12, mss >> 7},
		{"SH-2: rounded down to nothing", 11, 60_000, 1, mss >> 11},
		{"SH-3: a smaller window", 7, 5, 5, 1500 >> 7},
		{"SH-3: a closed window", 7, 0, 0, 1500 >> 7},
		{"SH-3: one scale for each device, that of another connection", 0, 60_000, 1461, 1500 >> 7},
	} {
		b, _, vms := newHosts(t, false)
		b.talk(0, "sender1", "receiver1").opens() // its scale is 7
		k := b.talk(1, "sender1", "receiver1")
		k.scale = [2]int8{row.scale, row.scale}
		k.opens()
		b.grant(vms[0], k.segmentGrant(10*time.Second))
		b.expect(row.item, k.says(1, network.ACK, 0, row.field).Window(), row.ours)
		if row.printed == row.ours {
			t.Errorf("%s: the printed form does the same", row.item)
		}
	}
}

// SH-5: a limit whose OFF is lost ends with its lease, although the controller lives. As printed only an OFF ends it.
func TestSH5_LostOFF(t *testing.T) {
	fields := func(lease time.Duration) (inTime, after uint16) {
		b, h, vms := newHosts(t, false)
		k := b.talk(0, "sender1", "receiver1")
		k.opens()
		b.grant(vms[0], k.segmentGrant(lease))
		lives := func(times int, every event.Time) {
			for range times {
				b.wait(every)
				h.Heartbeat(1, b.net.Queue.Now())
			}
		}
		lives(3, 250*event.Millisecond)
		b.wait(240 * event.Millisecond)
		inTime = k.window(1) // at 0.99 s
		lives(2, 230*event.Millisecond)
		return inTime, k.window(1)
	}
	inTime, after := fields(time.Second)
	b := &bed{t: t}
	b.expect("before the lease ends", inTime, 12)
	b.expect("after its release", after, 60_000)
	if _, printed := fields(time.Hour); printed != 12 {
		t.Errorf("printed: a window field of %d, want 12", printed)
	}
}
