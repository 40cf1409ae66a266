package network

import (
	"slices"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// jitterMost is less than two frames of 1514 bytes at 1 Gbit/s.
const jitterMost = 20 * event.Microsecond

// late builds a network whose hosts delay packets by up to most.
func late(t *testing.T, g *experiment.Graph, seed int64, most event.Time) (*Network, *sink) {
	t.Helper()
	n, s := build(t, g, Options{Seed: seed})
	if err := n.DelayHosts(seed, most); err != nil {
		t.Fatal(err)
	}
	return n, s
}

func TestDelayHosts_Range(t *testing.T) {
	n, _ := build(t, dumbbell(t, false), Options{})
	for _, most := range []event.Time{-1, maxJitter + 1} {
		if n.DelayHosts(1, most) == nil || n.DelaySwitches(1, most) == nil {
			t.Errorf("%d ns is accepted", most)
		}
	}
}

// jitterReference follows the description of a NIC with jitter: when each frame of 1514 bytes has left a line of 1
// Gbit/s.
type jitterReference struct {
	draw       func() event.Time
	line, last event.Time
}

func newJitterReference(seed int64, host string) *jitterReference {
	r := event.NewRandom(seed, "host "+host)
	return &jitterReference{draw: func() event.Time { return event.Time(r.Int64N(int64(jitterMost) + 1)) }}
}

func (r *jitterReference) leaves(now event.Time) event.Time {
	r.line = max(now, r.line) + 12304
	r.last = max(r.last, r.line+r.draw())
	return r.last
}

// Each packet of a host leaves with a bounded delay, never before the one ahead of it, and is in the NIC until then.
// The random numbers of one host do not depend on the traffic of others.
func TestHostJitter(t *testing.T) {
	const seed = 3
	n, s := late(t, dumbbell(t, false), seed, jitterMost)
	dst := n.id(t, "receiver1")
	hosts := []string{"sender1", "sender2"}
	refs := []*jitterReference{newJitterReference(seed, hosts[0]), newJitterReference(seed, hosts[1])}
	var want [2][]event.Time
	var got [2][]event.Time
	for i, name := range hosts {
		n.HostPort(n.id(t, name)).Tap(func(_ *Packet, leaves event.Time) { got[i] = append(got[i], leaves) })
	}
	// Host 1 sends now and then. Host 2 sends bursts, so that packets wait for the line as well.
	for k := range 100 {
		at(n.Queue, event.Time(k)*100*event.Microsecond, func(now event.Time) {
			for i, name := range hosts {
				src := n.id(t, name)
				nic := n.NIC(src)
				for range 1 + i*(k%8) {
					n.Send(src, n.packet(src, dst, 1514, uint64(len(want[i]))))
					want[i] = append(want[i], refs[i].leaves(now))
				}
				held := int64(0)
				for _, leaves := range want[i] {
					if leaves > now {
						held++
					}
				}
				if nic.FreeAt() != refs[i].last || nic.BacklogPackets() != held || nic.Backlog() != held*1514 {
					t.Fatalf("%s at %d ns: free at %d with %d packets, want %d with %d", name, now, nic.FreeAt(), nic.BacklogPackets(), refs[i].last, held)
				}
				conserved(t, n)
			}
		})
	}
	n.Queue.Run(event.Second)
	for i := range hosts {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%s: packets left at\n%v, want\n%v", hosts[i], got[i], want[i])
		}
	}
	if len(s.got) != len(want[0])+len(want[1]) {
		t.Errorf("%d arrived", len(s.got))
	}
	conserved(t, n)
}

// If nothing waits for the line, the delays are uniform from 0 to the largest.
func TestHostJitterIsUniform(t *testing.T) {
	n, _ := late(t, dumbbell(t, false), 1, jitterMost)
	src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
	const packets = 4000
	var quarters [4]int
	least, most := jitterMost, event.Time(0)
	n.HostPort(src).Tap(func(_ *Packet, leaves event.Time) {
		late := leaves - n.Queue.Now() - 12304
		if late < 0 || late > jitterMost {
			t.Fatalf("a packet is %d ns late", late)
		}
		least, most = min(least, late), max(most, late)
		quarters[min(late*4/jitterMost, 3)]++
	})
	for k := range packets {
		n.Queue.Run(event.Time(k) * event.Millisecond)
		n.Send(src, n.packet(src, dst, 1514, 0))
	}
	// The count of a quarter has a standard deviation of 27.
	for i, count := range quarters {
		if count < packets/4-135 || count > packets/4+135 {
			t.Errorf("quarter %d has %d of %d", i, count, packets)
		}
	}
	if least > jitterMost/200 || most < jitterMost-jitterMost/200 {
		t.Errorf("from %d to %d ns", least, most)
	}
}

// Guests of one hypervisor keep the order of the NIC that they share. Packets between them are never on a line, and not
// delayed.
func TestHostJitterBehindHypervisor(t *testing.T) {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: true, VMs: 2},
		experiment.Network{Rate: 1e9, Delay: 25_000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	const seed = 9
	n, s := late(t, g, seed, jitterMost)
	guests := []NodeID{n.id(t, "sender1.vm1"), n.id(t, "sender1.vm2")}
	dst := n.id(t, "receiver1.vm1")
	nic := n.NIC(guests[0])
	if nic != n.NIC(guests[1]) {
		t.Fatal("they do not share a NIC")
	}
	ref := newJitterReference(seed, n.Name(nic.Node))
	var got, want []event.Time
	nic.Tap(func(_ *Packet, leaves event.Time) { got = append(got, leaves) })
	for k := range 40 {
		n.Send(guests[k%2], n.packet(guests[k%2], dst, 1514, uint64(k)))
		want = append(want, ref.leaves(0))
	}
	if !slices.Equal(got, want) || nic.FreeAt() != ref.last {
		t.Errorf("packets leave at\n%v, want\n%v", got, want)
	}
	n.Queue.Run(event.Second)
	if len(s.got) != 40 {
		t.Fatalf("%d arrived", len(s.got))
	}
	for k, a := range s.got {
		if a.tag != uint64(k) {
			t.Errorf("%v is the packet number %d", a, k)
		}
	}
	// 1538 bytes take 1230.4 ns at 10 Gbit/s.
	n.Send(guests[0], n.packet(guests[0], guests[1], 1514, 99))
	now := n.Queue.Now()
	n.Queue.Run(2 * event.Second)
	if last := s.got[40]; last != (arrival{guests[1], now + 1230, 99}) {
		t.Errorf("%v, want it at %d ns", last, now+1230)
	}
	conserved(t, n)
}

// A flap removes packets that have not left from the NIC, and frees their time on the line.
func TestHostJitterAndFlap(t *testing.T) {
	n, s := late(t, dumbbell(t, false), 0, event.Second)
	src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
	for i := range uint64(5) {
		n.Send(src, n.packet(src, dst, 1514, i))
	}
	nic := n.NIC(src)
	nic.SetDown(true)
	if nic.FreeAt() != 0 || nic.Backlog() != 0 || nic.Counters().Down.Packets != 5 {
		t.Errorf("free at %d, %+v", nic.FreeAt(), nic.Counters())
	}
	nic.SetDown(false)
	n.Send(src, n.packet(src, dst, 1514, 5))
	n.Queue.Run(3 * event.Second)
	if len(s.got) != 1 || s.got[0].tag != 5 {
		t.Errorf("arrived %v", s.got)
	}
	conserved(t, n)
}

// A served port drops at a flap what waits. The packet on the line arrives, late as it is, and no later packet overtakes
// it.
func TestHostJitterAndFlap_ServedPort(t *testing.T) {
	for seed := range int64(20) {
		n, s := late(t, dumbbell(t, false), seed, event.Second)
		src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
		nic := n.NIC(src)
		if err := nic.SetRate(1e9, 0); err != nil {
			t.Fatal(err)
		}
		for tag := range uint64(3) {
			n.Send(src, n.packet(src, dst, 1514, tag))
		}
		n.Queue.Run(12_304)
		nic.SetDown(true)
		nic.SetDown(false)
		n.Send(src, n.packet(src, dst, 1514, 3))
		n.Queue.Run(3 * event.Second)
		if len(s.got) != 2 || s.got[0].tag != 0 || s.got[1].tag != 3 || nic.Counters().Down.Packets != 2 {
			t.Errorf("seed %d: arrived %v, %+v; want the packets 0 and 3", seed, s.got, nic.Counters())
		}
		conserved(t, n)
	}
}

// A FIFO that becomes a served port forgets how late its waiting packets would have been: they are drawn again.
func TestHostJitterAndSetRate(t *testing.T) {
	n, _ := late(t, dumbbell(t, false), 0, event.Second)
	src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
	nic := n.NIC(src)
	for i := range uint64(50) {
		n.Send(src, n.packet(src, dst, 1514, i))
	}
	last := nic.FreeAt()
	if err := nic.SetRate(0, 0); err != nil {
		t.Fatal(err)
	}
	if nic.jitter.last != 0 {
		t.Errorf("the next packet leaves at %d ns or later, want any time: none is on the line (the last one would have left at %d)", nic.jitter.last, last)
	}
}

// A flap of a wire between two guests loses nothing that is on its way, and lets nothing overtake it.
func TestWireAndFlap(t *testing.T) {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: true, VMs: 2},
		experiment.Network{Rate: 1e9, Delay: 25_000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	n, s := build(t, g, Options{})
	a, b := n.id(t, "sender1.vm1"), n.id(t, "sender1.vm2")
	wire := n.HostPort(b).Reverse()
	for i := range uint64(5) {
		n.Send(a, n.packet(a, b, 1514, i))
	}
	wire.SetDown(true)
	wire.SetDown(false)
	for i := range uint64(5) {
		n.Send(a, n.packet(a, b, 54, 5+i))
	}
	n.Queue.Run(event.Second)
	if len(s.got) != 10 {
		t.Fatalf("%d packets arrived, want 10", len(s.got))
	}
	for i, arrived := range s.got {
		if arrived.tag != uint64(i) {
			t.Errorf("packet %d arrived at place %d", arrived.tag, i)
		}
	}
	conserved(t, n)
}
