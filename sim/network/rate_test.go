package network

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// slowLimit is a port with a token bucket, advanced nanosecond by nanosecond: slow and obvious.
type slowLimit struct {
	buffer     int64 // bytes
	byteNs     int64 // of the line
	rate, full int64 // 0: no limit; units of byteUnits
	tokens     int64
	waiting    []refPacket
	line       *refPacket // on the line
	gone       []arrival
	drops      int
}

// step does everything that happens at the time now.
func (m *slowLimit) step(now event.Time) {
	if m.rate > 0 {
		m.tokens = min(m.full, m.tokens+m.rate)
	}
	m.leave(now)
	m.begin(now)
}

func (m *slowLimit) leave(now event.Time) {
	if m.line != nil && m.line.leaves == now {
		m.gone = append(m.gone, arrival{at: now, tag: m.line.tag})
		m.line = nil
	}
}

func (m *slowLimit) begin(now event.Time) {
	for m.line == nil && len(m.waiting) > 0 {
		p := m.waiting[0]
		need := p.bytes * byteUnits
		if m.rate > 0 {
			if m.tokens < min(need, m.full) {
				return
			}
			m.tokens -= need
		}
		m.waiting = m.waiting[1:]
		p.leaves = now + event.Time(p.bytes*m.byteNs)
		m.line = &p
		m.leave(now) // a line that takes no time
	}
}

func (m *slowLimit) backlog() (bytes, packets int64) {
	list := m.waiting
	if m.line != nil {
		list = append([]refPacket{*m.line}, list...)
	}
	for _, p := range list {
		bytes += p.bytes
	}
	return bytes, int64(len(list))
}

func (m *slowLimit) send(bytes int64, tag uint64, now event.Time) {
	if held, _ := m.backlog(); held+bytes > m.buffer {
		m.drops++
		return
	}
	m.waiting = append(m.waiting, refPacket{bytes: bytes, tag: tag})
	m.begin(now)
}

func (m *slowLimit) setRate(rate, bucket int64, now event.Time) {
	was := m.rate
	m.rate, m.full = rate, max(bucket, FullFrame)*byteUnits
	if m.tokens = min(m.tokens, m.full); was == 0 {
		m.tokens = m.full
	}
	m.begin(now)
}

// order is an operation of a test on a port, at a time.
type order struct {
	at     event.Time
	send   int32 // bytes; 0: SetRate
	rate   law.Rate
	bucket law.Bytes
}

// orders draws the operations: bursts, and rates that are set, changed and removed while packets wait.
func orders(t *rapid.T) []order {
	var list []order
	now := event.Time(0)
	for range rapid.IntRange(1, 30).Draw(t, "orders") {
		now += event.Time(rapid.SampledFrom([]int64{0, 0, 1, 777, 1514, 1514 * 8, 40_000}).Draw(t, "gap"))
		o := order{at: now}
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			o.send = rapid.SampledFrom([]int32{60, 61, 800, 1514, 1514, 4000}).Draw(t, "bytes")
		} else {
			o.rate = rapid.SampledFrom([]law.Rate{0, 100e6, 333_333_333, 999_999_937, 8e9, 40e9}).Draw(t, "rate")
			o.bucket = rapid.SampledFrom([]law.Bytes{0, 1514, 1515, 3000, 20_000}).Draw(t, "bucket")
		}
		list = append(list, o)
	}
	return append(list, order{at: now + 1_000_000}) // the limit ends: packets that still wait leave
}

// A port whose rate is set, changed and removed while packets wait acts as the slow one: the same departures to the
// nanosecond, the same backlogs and drops. So does a guest's wire to its hypervisor, which is a line that takes no
// time.
func TestRateIsTheSlowOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, name := pair(1e9, 0, law.Limit{N: 20_000}), "switch->b"
		m := &slowLimit{buffer: 20_000, byteNs: 8}
		o := Options{FrameOnly: true, Priorities: rapid.Bool().Draw(t, "served"), NICFrames: 10}
		if rapid.Bool().Draw(t, "VM") {
			var err error
			if g, err = experiment.BuildGraph(experiment.Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: true},
				experiment.Network{Rate: 1e9, Buffer: law.Limit{N: 20_000}}); err != nil {
				t.Fatal(err)
			}
			name, m.byteNs, m.buffer = experiment.PortName("sender1", g.Nodes[findHypervisor(g, "sender1")].Name), 0, 10*FullFrame
		}
		n, err := Build(event.NewQueue(), configOf(g), o)
		if err != nil {
			t.Fatal(err)
		}
		n.Sink = &sink{net: n}
		p := n.PortByName(name)
		var tapped []arrival
		p.Tap(func(pk *Packet, leaves event.Time) { tapped = append(tapped, arrival{at: leaves, tag: pk.tag}) })
		list := orders(t)
		next := 0
		for now := event.Time(0); next < len(list); now++ {
			m.step(now)
			for ; next < len(list) && list[next].at == now; next++ {
				n.Queue.Run(now)
				do := list[next]
				if do.send > 0 {
					m.send(int64(do.send), uint64(next), now)
					src, dst := p.Node, NodeID(2)
					if m.byteNs == 0 {
						dst, _ = n.Node("receiver1")
					}
					p.Send(n.packet(src, dst, do.send, uint64(next)))
				} else {
					m.setRate(int64(do.rate), int64(do.bucket), now)
					if err := p.SetRate(do.rate, do.bucket); err != nil {
						t.Fatal(err)
					}
				}
				n.Queue.Run(now)
				bytes, packets := m.backlog()
				if p.Backlog() != bytes || p.BacklogPackets() != packets {
					t.Fatalf("order %d at %d ns: backlog %d B, %d packets; want %d and %d", next, now, p.Backlog(), p.BacklogPackets(), bytes, packets)
				}
			}
		}
		for now := list[len(list)-1].at; now < list[len(list)-1].at+200_000; now++ {
			m.leave(now)
			m.begin(now)
		}
		n.Queue.Run(n.Queue.Now() + event.Second)
		got := tapped
		if m.byteNs > 0 { // no delay: they arrive as they leave. A FIFO calls its tap in advance, with the old rate
			got = n.Sink.(*sink).got
			for i := range got {
				got[i].host = 0
			}
		}
		if !slices.Equal(got, m.gone) || len(tapped) != len(got) {
			t.Fatalf("left\n%v, want\n%v, %d tapped", got, m.gone, len(tapped))
		}
		if c := p.Counters(); c.Tail.Packets != int64(m.drops) || c.Queued.Packets != 0 || n.Borrowed() != 0 {
			t.Fatalf("%+v, %d packets in use; want %d drops", c, n.Borrowed(), m.drops)
		}
	})
}

// findHypervisor returns the node of a guest's hypervisor.
func findHypervisor(g *experiment.Graph, guest string) int {
	for _, l := range g.Links {
		for i := range g.Nodes {
			if g.Nodes[i].Kind == experiment.Hypervisor && (l.A == guest && l.B == g.Nodes[i].Name || l.B == guest && l.A == g.Nodes[i].Name) {
				return i
			}
		}
	}
	return -1
}

// Over any time a port sends at most the first bucket and the tokens of the rate, with any changes in between. With
// packets waiting it sends no less, except for the frame that waits.
func TestRateIsKept(t *testing.T) {
	n, _ := build(t, pair(10e9, 0, law.Limit{N: 1 << 30}), Options{FrameOnly: true})
	p := n.PortByName("switch->b")
	rates := []law.Rate{100e6, 1e9, 50e6, 400e6}
	sent := int64(0)
	p.Tap(func(pk *Packet, _ event.Time) { sent += int64(pk.bytes) })
	if err := p.SetRate(rates[0], 3000); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3000) {
		p.Send(n.packet(1, 2, 1514, i))
	}
	granted := int64(0) // bytes
	for i := range 40 {
		rate := rates[i%len(rates)]
		if err := p.SetRate(rate, 3000); err != nil {
			t.Fatal(err)
		}
		n.Queue.Run(n.Queue.Now() + 250*event.Microsecond)
		granted += int64(rate) / 8 * 250e3 / 1e9
		if sent > granted+3000+1514 || sent < granted-1514 {
			t.Fatalf("change %d: %d bytes sent, %d granted", i, sent, granted)
		}
	}
	conserved(t, n)
}

// A rate or bucket out of range is refused, and the error names the port.
func TestRateIsRefused(t *testing.T) {
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 20_000}), Options{})
	p := n.PortByName("switch->b")
	for _, c := range []struct {
		rate   law.Rate
		bucket law.Bytes
	}{{-1, 0}, {1 << 54, 0}, {1e9, -1}, {1e9, mostBucket + 1}} {
		if err := p.SetRate(c.rate, c.bucket); err == nil || p.Served() {
			t.Errorf("%v with a bucket of %v: %v", c.rate, c.bucket, err)
		}
	}
	if err := p.SetRate(5e6, 100); err != nil {
		t.Fatal(err)
	}
	if rate, bucket := p.Limit(); rate != 5e6 || bucket != FullFrame {
		t.Errorf("limit %v, %v", rate, bucket)
	}
	if err := p.SetRate(0, 0); err != nil {
		t.Fatal(err)
	}
	if rate, _ := p.Limit(); rate != 0 {
		t.Errorf("limit %v", rate)
	}
}

// A tap sees each packet once, including those that waited when the port was a FIFO, and those after a flap.
func TestRate_TapSeesEachOnce(t *testing.T) {
	for _, flap := range []bool{false, true} {
		n, s := build(t, pair(1e9, 0, law.Limit{N: 1 << 20}), Options{})
		p := n.PortByName("switch->b")
		var tapped []uint64
		p.Tap(func(pk *Packet, _ event.Time) { tapped = append(tapped, pk.tag) })
		for i := range uint64(4) {
			p.Send(n.packet(1, 2, 1514, i))
		}
		if err := p.SetRate(100e6, 0); err != nil {
			t.Fatal(err)
		}
		if flap {
			p.SetDown(true)
			p.SetDown(false)
		}
		p.Send(n.packet(1, 2, 1514, 4))
		n.Queue.Run(event.Second)
		if want := []uint64{0, 1, 2, 3, 4}; !slices.Equal(tapped, want) || len(s.got) != map[bool]int{false: 5, true: 1}[flap] {
			t.Errorf("flap %v: tapped %v, want %v; arrived %v", flap, tapped, want, s.got)
		}
		conserved(t, n)
	}
}
