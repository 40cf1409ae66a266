package network

import (
	"slices"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

func dumbbell(t *testing.T, hypervisors bool) *experiment.Graph {
	t.Helper()
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 2, Receivers: 1, Hypervisors: hypervisors},
		experiment.Network{Rate: 1e9, Delay: 25_000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Frames of 1514 bytes take 12304 ns on a line of 1 Gbit/s. A frame of 54 bytes is padded and takes 672 ns.
func TestTimesOfOnePacket(t *testing.T) {
	for _, c := range []struct {
		bytes     int32
		frameOnly bool
		line      event.Time
	}{{1514, false, 12304}, {54, false, 672}, {60, false, 672}, {1514, true, 12112}, {54, true, 432}} {
		for _, hv := range []bool{false, true} {
			n, s := build(t, dumbbell(t, hv), Options{FrameOnly: c.frameOnly})
			src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
			n.Send(src, n.packet(src, dst, c.bytes, 9))
			n.Queue.Run(event.Second)
			want := []arrival{{dst, 2 * (c.line + 25_000), 9}}
			if !slices.Equal(s.got, want) {
				t.Errorf("%d bytes, hypervisors %v: %v, want %v", c.bytes, hv, s.got, want)
			}
		}
	}
}

// A host's NIC queues 1000 full frames, in the hypervisor's port if there is one. A slow reader of the queue sees them
// leave one by one.
func TestNIC(t *testing.T) {
	for _, hv := range []bool{false, true} {
		n, s := build(t, dumbbell(t, hv), Options{})
		src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
		nic := n.NIC(src)
		if nic != n.PortByName("sender1->switch") {
			t.Fatalf("the NIC is %s", nic.Name)
		}
		reasons := map[DropReason]int{}
		n.OnDrop = func(p *Port, pk *Packet, reason DropReason, now event.Time) {
			if p != nic || pk.tag < 1000 || now != 0 {
				t.Errorf("dropped %d at %s", pk.tag, p.Name)
			}
			reasons[reason]++
		}
		for i := range 1010 {
			n.Send(src, n.packet(src, dst, 1514, uint64(i)))
		}
		if reasons[DropTail] != 10 || len(reasons) != 1 {
			t.Errorf("drops %v, want 10 at the tail", reasons)
		}
		for k := range 1001 {
			n.Queue.Run(event.Time(k * 12304))
			if got := nic.BacklogPackets(); got != int64(1000-k) {
				t.Fatalf("after %d frames' time %d are queued", k, got)
			}
		}
		n.Queue.Run(event.Second)
		if len(s.got) != 1000 {
			t.Errorf("%d arrived", len(s.got))
		}
		conserved(t, n)
	}
}

// Packets that are queued when the link goes down, or sent while it is down, are lost. Packets on the line arrive. When
// the link is up again, packets pass at once.
func TestLinkFlap(t *testing.T) {
	for _, o := range []Options{{}, {Priorities: true}, {Shared: &Shared{Bytes: 1 << 20, Num: 1, Den: 1}}} {
		n, s := build(t, pair(1e9, 100_000, law.Limit{N: 125_000}), o)
		p := n.PortByName("switch->b")
		var down []uint64
		n.OnDrop = func(_ *Port, pk *Packet, reason DropReason, _ event.Time) {
			if reason != DropDown {
				t.Errorf("drop by %v", reason)
			}
			down = append(down, pk.tag)
		}
		send := func(tag uint64) { p.Send(n.packet(1, 2, 1514, tag)) }
		for i := range uint64(5) {
			send(i)
		}
		at(n.Queue, 2*12304, func(event.Time) { p.SetDown(true); send(5); conserved(t, n) }) // two have left, to the bit
		at(n.Queue, 50_000, func(event.Time) { send(6) })
		at(n.Queue, 60_000, func(event.Time) { p.SetDown(false); send(7) })
		n.Queue.Run(event.Second)
		want := []arrival{{2, 112_304, 0}, {2, 124_608, 1}, {2, 172_304, 7}}
		if !slices.Equal(s.got, want) || !slices.Equal(down, []uint64{2, 3, 4, 5, 6}) {
			t.Errorf("%+v: arrived %v, lost %v", o, s.got, down)
		}
		conserved(t, n)
		if b := p.Backlog(); b != 0 {
			t.Errorf("%d bytes are queued", b)
		}
	}
}

// A port whose only packet was dropped by a flap has nothing pending, and works again.
func TestFlapOfTheOnlyPacket(t *testing.T) {
	n, s := build(t, pair(1e9, 0, law.Limit{N: 125_000}), Options{})
	p := n.PortByName("switch->b")
	p.Send(n.packet(1, 2, 1514, 0))
	p.SetDown(true)
	if p.arrival.Pending() {
		t.Error("an arrival is pending")
	}
	p.SetDown(false)
	p.Send(n.packet(1, 2, 1514, 1))
	n.Queue.Run(event.Second)
	if want := []arrival{{2, 12304, 1}}; !slices.Equal(s.got, want) {
		t.Errorf("arrived %v", s.got)
	}
	conserved(t, n)
}

func TestInjectedLoss(t *testing.T) {
	n, s := build(t, dumbbell(t, false), Options{})
	src, dst := n.id(t, "sender1"), n.id(t, "receiver1")
	p := n.PortByName("switch->receiver1")
	n.Loss(func(at *Port, pk *Packet) bool { return at == p && pk.tag%3 == 0 })
	var lost []uint64
	n.OnDrop = func(at *Port, pk *Packet, reason DropReason, _ event.Time) {
		if at == p && reason == DropLoss {
			lost = append(lost, pk.tag)
		}
	}
	for i := range uint64(7) {
		n.Send(src, n.packet(src, dst, 1514, i))
	}
	n.Queue.Run(event.Second)
	if len(s.got) != 4 || !slices.Equal(lost, []uint64{0, 3, 6}) {
		t.Errorf("arrived %v, lost %v", s.got, lost)
	}
	if c := p.Counters(); c.Lost.Packets != 3 || c.Sent.Packets != 7 {
		t.Errorf("%+v", c)
	}
	conserved(t, n)
}

// The highest priority goes first. The packet on the line is not interrupted. Within a priority, order is kept.
func TestStrictPriorities(t *testing.T) {
	n, s := build(t, pair(1e9, 0, law.Limit{N: 10, Packets: true}), Options{Priorities: true})
	p := n.PortByName("switch->b")
	for i, level := range []uint8{0, 0, 7, 3, 7, 0, 1} {
		pk := n.packet(1, 2, 1514, uint64(i))
		pk.priority = level
		p.Send(pk)
	}
	n.Queue.Run(event.Second)
	var order []uint64
	for _, a := range s.got {
		order = append(order, a.tag)
	}
	if want := []uint64{0, 2, 4, 3, 6, 1, 5}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	conserved(t, n)
}

// With factor a and n queues that are always full, each queue gets a/(1+a*n) of the buffer and 1/(1+a*n) stays free
// (Choudhury and Hahne 1998, section II).
func TestDynamicThresholds(t *testing.T) {
	for _, c := range []struct{ num, den, queues int64 }{{1, 1, 1}, {1, 1, 3}, {1, 2, 2}, {2, 1, 3}, {8, 1, 2}} {
		g, err := experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 5, Receivers: 1},
			experiment.Network{Rate: 1e9, Delay: 25_000, Buffer: law.Limit{N: 1514}})
		if err != nil {
			t.Fatal(err)
		}
		const buffer, frame = 1_000_000, 100
		n, _ := build(t, g, Options{Shared: &Shared{Bytes: buffer, Num: c.num, Den: c.den}})
		ports := n.SwitchPorts([]string{"switch"})[:c.queues]
		for range buffer / frame {
			for _, p := range ports {
				p.Send(n.packet(p.Peer, p.Peer, frame, 0))
			}
		}
		used := int64(0)
		for _, p := range ports {
			want := buffer * c.num / (c.den + c.num*c.queues)
			if got := p.Backlog(); got < want-frame*c.queues || got > want+frame*c.queues {
				t.Errorf("factor %d/%d, %d queues: one of %d bytes, want %d", c.num, c.den, c.queues, got, want)
			}
			used += p.Backlog()
		}
		if got := n.buffers[0].used; got != used || used > buffer {
			t.Errorf("the buffer counts %d bytes, the ports %d", got, used)
		}
		n.Queue.Run(event.Second)
		if n.buffers[0].used != 0 {
			t.Errorf("%d bytes of an empty buffer are used", n.buffers[0].used)
		}
		conserved(t, n)
	}
}

// Flows spread over equal paths, and each flow stays on one. The reverse direction chooses for itself.
func TestECMP(t *testing.T) {
	g, err := experiment.BuildGraph(experiment.Topology{Kind: "leaf_spine", Leaves: 2, Spines: 4, Servers: 1},
		experiment.Network{Rate: 1e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	if err != nil {
		t.Fatal(err)
	}
	n, s := build(t, g, Options{Seed: 3})
	a, b := n.id(t, "rack1.server1"), n.id(t, "rack2.server1")
	spine := func(src, dst NodeID, sport, dport uint16) (at NodeID) {
		before := map[NodeID]int64{}
		for _, p := range n.Ports {
			before[p.Node] += p.in.Packets
		}
		pk := n.packet(src, dst, 66, 0)
		pk.hash = FlowHash(src, dst, sport, dport, TCP)
		n.Send(src, pk)
		n.Queue.Run(n.Queue.Now() + event.Millisecond)
		now := map[NodeID]int64{}
		for _, p := range n.Ports {
			now[p.Node] += p.in.Packets
		}
		for i := range 4 {
			if id := n.switches[i].id; now[id] > before[id] {
				at = id
			}
		}
		return at
	}
	count, same := map[NodeID]int{}, 0
	for port := range uint16(400) {
		there := spine(a, b, 1000+port, 80)
		if again := spine(a, b, 1000+port, 80); again != there {
			t.Fatalf("flow %d went by %s and by %s", port, n.Name(there), n.Name(again))
		}
		if spine(b, a, 80, 1000+port) == there {
			same++
		}
		count[there]++
	}
	for i := range 4 { // 100 each, standard deviation 9
		if got := count[n.switches[i].id]; got < 60 || got > 140 {
			t.Errorf("spine %d carries %d flows of 400", i+1, got)
		}
	}
	if same < 60 || same > 140 {
		t.Errorf("%d of 400 flows return over the same spine, 1 of 4 would", same)
	}
	if len(s.got) != 1200 {
		t.Errorf("%d arrived", len(s.got))
	}
}

// A bucket passes its depth at line rate, then exactly its own rate. Nothing is dropped.
func TestShape(t *testing.T) {
	for _, priorities := range []bool{false, true} {
		n, s := build(t, pair(1e9, 0, law.Limit{N: 1 << 30}), Options{Priorities: priorities})
		p := n.PortByName("switch->b")
		p.Shape(250e6, law.Duration(1e6)) // 31250 bytes: 20 frames of 1514 and a part
		const frames = 2000
		for i := range frames {
			p.Send(n.packet(1, 2, 1514, uint64(i)))
		}
		n.Queue.Run(event.Second)
		if len(s.got) != frames {
			t.Fatalf("%d of %d arrived", len(s.got), frames)
		}
		for i, a := range s.got {
			tokens := event.Time((i+1)*1514*8*4) - 1_000_000 // ns until that many bytes have come in, beyond the depth
			begin := a.at - 12304
			if begin < tokens || begin < event.Time(i*12304) {
				t.Fatalf("frame %d begins at %d ns: its tokens are there at %d", i, begin, tokens)
			}
			if late := begin - max(tokens, event.Time(i*12304)); late > 12304 {
				t.Fatalf("frame %d begins %d ns late", i, late)
			}
		}
		// After a pause of the depth the bucket is full again, and no more than full.
		again := n.Queue.Now()
		s.got = s.got[:0]
		for i := range 30 {
			p.Send(n.packet(1, 2, 1514, uint64(i)))
		}
		n.Queue.Run(again + event.Second)
		if got := s.got[19].at - again; got != 20*12304 {
			t.Errorf("20 frames from a full bucket take %d ns", got)
		}
		if got := s.got[29].at - again; got < 30*1514*8*4-1_000_000+12304 {
			t.Errorf("30 frames take %d ns: the bucket held more than its depth", got)
		}
		conserved(t, n)
	}
}

// A frame larger than the bucket waits for a full one.
func TestShapeOfSmallBucket(t *testing.T) {
	n, s := build(t, pair(1e9, 0, law.Limit{N: 1 << 30}), Options{})
	p := n.PortByName("switch->b")
	p.Shape(100e6, 10)
	for i := range 3 {
		p.Send(n.packet(1, 2, 1514, uint64(i)))
	}
	n.Queue.Run(event.Second)
	want := []arrival{{2, 12304, 0}, {2, 121120 + 12304, 1}, {2, 2*121120 + 12304, 2}}
	if !slices.Equal(s.got, want) {
		t.Errorf("%v, want %v", s.got, want)
	}
}

type lawFunc struct {
	do func(p *Port, pk *Packet, now event.Time) Verdict
}

func (f *lawFunc) Packet(p *Port, pk *Packet, now event.Time) Verdict { return f.do(p, pk, now) }

// A law sees the backlog without the packet. It may drop and mark, and both are counted.
func TestLawAtPort(t *testing.T) {
	for _, o := range []Options{{}, {Priorities: true}} {
		n, s := build(t, pair(1e9, 0, law.Limit{N: 125_000}), o)
		p := n.PortByName("switch->b")
		var seen []int64
		p.SetLaws(&lawFunc{func(p *Port, pk *Packet, _ event.Time) Verdict {
			seen = append(seen, p.Backlog())
			if pk.tag == 1 {
				return Drop
			}
			if pk.tag == 2 {
				pk.ecn = CE
			}
			return Pass
		}})
		for i := range uint64(4) {
			pk := n.packet(1, 2, 1000, i)
			pk.ecn = ECT0
			p.Send(pk)
		}
		n.Queue.Run(event.Second)
		c := p.Counters()
		if !slices.Equal(seen, []int64{0, 1000, 1000, 2000}) || c.Law != (Count{1, 1000}) || c.Marks != 1 || len(s.got) != 3 {
			t.Errorf("backlogs %v, counters %+v", seen, c)
		}
		conserved(t, n)
	}
}

// A tap sees what is sent, when it leaves.
func TestTap(t *testing.T) {
	for _, o := range []Options{{}, {Priorities: true}} {
		n, _ := build(t, pair(1e9, 500, law.Limit{N: 2, Packets: true}), o)
		var got []event.Time
		p := n.PortByName("switch->b")
		p.Tap(func(_ *Packet, leaves event.Time) { got = append(got, leaves) })
		for i := range uint64(3) {
			p.Send(n.packet(1, 2, 1514, i))
		}
		n.Queue.Run(event.Second)
		if !slices.Equal(got, []event.Time{12304, 24608}) {
			t.Errorf("%+v: %v", o, got)
		}
	}
}

// Even with a large factor the buffer is not exceeded.
func TestSharedBufferIsNotExceeded(t *testing.T) {
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 125_000}), Options{Shared: &Shared{Bytes: 10_000, Num: 1 << 20, Den: 1}})
	p := n.PortByName("switch->b")
	for range 10 {
		p.Send(n.packet(1, 2, 1514, 0))
	}
	if got := p.Backlog(); got != 6*1514 {
		t.Errorf("%d bytes are in a buffer of 10000", got)
	}
}
