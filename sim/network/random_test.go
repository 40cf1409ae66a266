package network

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// ledger is a sink that compares what arrives with what was sent.
type ledger struct {
	t                     *rapid.T
	net                   *Network
	sent, delivered, lost int64
	last                  map[uint64]uint64 // by flow and priority: the number of its last packet that arrived
	clock                 event.Time
	host                  map[uint64]NodeID // by packet: its destination
}

func (l *ledger) Deliver(host NodeID, pk *Packet, now event.Time) {
	l.see(now)
	l.delivered++
	if pk.dst != host || l.host[pk.tag] != host {
		l.t.Fatalf("packet %d for node %d arrived at %d", pk.tag, l.host[pk.tag], host)
	}
	delete(l.host, pk.tag) // a second arrival is an error
	flow := uint64(pk.hash)<<8 | uint64(pk.priority)
	if pk.tag < l.last[flow] {
		l.t.Fatalf("packet %d overtook %d of the same flow", l.last[flow], pk.tag)
	}
	l.last[flow] = pk.tag
	l.net.Free(pk)
}

func (l *ledger) see(now event.Time) {
	if now < l.clock || now != l.net.Queue.Now() {
		l.t.Fatalf("the time is %d ns after %d, the clock says %d", now, l.clock, l.net.Queue.Now())
	}
	l.clock = now
}

// check checks what is true at any time: every packet is counted once, and no buffer exceeds its limit.
func (l *ledger) check() {
	inside := int64(0)
	for _, p := range l.net.Ports {
		c := p.Counters()
		if want := c.Sent.Bytes + c.Tail.Bytes + c.Law.Bytes + c.Down.Bytes + c.Queued.Bytes + c.Taken.Bytes; c.In.Bytes != want {
			l.t.Fatalf("%s: %d bytes in, %d accounted for", p.Name, c.In.Bytes, want)
		}
		if want := c.Sent.Packets + c.Tail.Packets + c.Law.Packets + c.Down.Packets + c.Queued.Packets + c.Taken.Packets; c.In.Packets != want {
			l.t.Fatalf("%s: %d packets in, %d accounted for", p.Name, c.In.Packets, want)
		}
		held := c.Queued.Bytes
		if p.Buffer.Packets {
			held = c.Queued.Packets
		}
		if held < 0 || held > p.Buffer.N {
			l.t.Fatalf("%s has %d in a buffer of %v", p.Name, held, p.Buffer)
		}
		inside += c.Taken.Packets + int64(p.end-p.first)
		if p.server != nil {
			inside += p.server.packets
		}
	}
	for i := range l.net.arrivals {
		a := l.net.arrivals[i]
		if a.In != (Count{a.Delivered.Packets + a.Taken.Packets, a.Delivered.Bytes + a.Taken.Bytes}) {
			l.t.Fatalf("%s: %+v", l.net.Name(NodeID(i)), a)
		}
		inside += a.Taken.Packets
	}
	for _, b := range l.net.buffers {
		if b.used < 0 || b.used > b.Bytes {
			l.t.Fatalf("a shared buffer of %d bytes has %d", b.Bytes, b.used)
		}
	}
	if inside != l.net.Borrowed() || l.sent != l.delivered+l.lost+inside {
		l.t.Fatalf("%d sent, %d delivered, %d lost, %d inside, %d outside the pool", l.sent, l.delivered, l.lost, inside, l.net.Borrowed())
	}
}

// Random traffic over random networks whose links flap and lose packets. No packet is lost without a reason,
// duplicated, delivered to another host, or reordered within its flow. In the end nothing is pending.
func TestRandomNetworks(t *testing.T) {
	var names []string
	for name := range topologies {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		g := fatTree(4, true)
		if name := rapid.SampledFrom(append(names, "k=4")).Draw(t, "topology"); name != "k=4" {
			buffer := rapid.SampledFrom([]law.Limit{{N: 1514}, {N: 20_000}, {N: 1, Packets: true}, {N: 20, Packets: true}}).Draw(t, "buffer")
			rate := rapid.SampledFrom([]law.Rate{1e9, 333_333_333, 10e9}).Draw(t, "rate")
			var err error
			g, err = experiment.BuildGraph(topologies[name], experiment.Network{Rate: rate, Delay: 5000, Buffer: buffer})
			if err != nil {
				t.Fatal(err)
			}
		}
		o := Options{
			Seed: rapid.Int64().Draw(t, "seed"), Priorities: rapid.Bool().Draw(t, "priorities"),
			FrameOnly: rapid.Bool().Draw(t, "frame only"), NICFrames: rapid.Int64Range(1, 30).Draw(t, "nic"),
		}
		if rapid.Bool().Draw(t, "shared") {
			o.Shared = &Shared{Bytes: 30_000, Num: rapid.Int64Range(1, 1000).Draw(t, "num"), Den: rapid.Int64Range(1, 8).Draw(t, "den")}
		}
		n, err := Build(event.NewQueue(), configOf(g), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.DelayHosts(o.Seed, event.Time(rapid.SampledFrom([]int64{0, 1, 1230, 50_000}).Draw(t, "jitter"))); err != nil {
			t.Fatal(err)
		}
		l := &ledger{t: t, net: n, last: map[uint64]uint64{}, host: map[uint64]NodeID{}}
		n.Sink = l
		n.OnDrop = func(_ *Port, pk *Packet, _ DropReason, now event.Time) {
			l.see(now)
			l.lost++
			delete(l.host, pk.tag)
		}
		if rapid.Bool().Draw(t, "loss") {
			n.Loss(func(p *Port, pk *Packet) bool { return mix(pk.tag^uint64(p.ID)<<32)%50 == 0 })
		}
		disturb(t, l, hostsOf(g))
		n.Queue.Run(10 * event.Second)
		l.check()
		if n.Borrowed() != 0 || len(l.host) != 0 {
			t.Fatalf("%d packets are still inside, %d not heard of", n.Borrowed(), len(l.host))
		}
	})
}

// disturb sets random packets, flaps and checks for the first milliseconds. One host gets half of the packets,
// and its port half of the flaps.
func disturb(t *rapid.T, l *ledger, hosts []NodeID) {
	n := l.net
	hot := rapid.SampledFrom(hosts).Draw(t, "hot")
	when := rapid.Int64Range(0, int64(event.Millisecond)/2)
	for range rapid.IntRange(1, 60).Draw(t, "bursts") {
		src, dst := rapid.SampledFrom(hosts).Draw(t, "src"), rapid.SampledFrom(hosts).Draw(t, "dst")
		if src == dst {
			continue
		}
		if rapid.Bool().Draw(t, "to the hot one") && src != hot {
			dst = hot
		}
		start, count := event.Time(when.Draw(t, "at")), rapid.IntRange(1, 40).Draw(t, "count")
		bytes, level := rapid.Int32Range(54, 1514).Draw(t, "bytes"), rapid.Uint8Range(0, 7).Draw(t, "priority")
		at(n.Queue, start, func(event.Time) {
			for range count {
				l.sent++
				pk := n.packet(src, dst, bytes, uint64(l.sent))
				pk.hash, pk.priority = FlowHash(src, dst, 1, 2, UDP), level
				l.host[pk.tag] = dst
				n.Send(src, pk)
			}
		})
	}
	for range rapid.IntRange(0, 10).Draw(t, "flaps") {
		p := rapid.SampledFrom(n.Ports).Draw(t, "port")
		if rapid.Bool().Draw(t, "hot port") {
			p = n.places[hot].access
		}
		at(n.Queue, event.Time(when.Draw(t, "down")), func(event.Time) { p.SetDown(true); l.check() })
		at(n.Queue, 3*event.Millisecond, func(event.Time) { p.SetDown(false) })
		at(n.Queue, event.Time(when.Draw(t, "up")), func(event.Time) { p.SetDown(false) })
	}
	for range 10 {
		at(n.Queue, event.Time(when.Draw(t, "check")), func(event.Time) { l.check() })
	}
	rates(t, l, when)
	holds(t, l, when)
}

// rates sets, changes and removes rates at random ports.
func rates(t *rapid.T, l *ledger, when *rapid.Generator[int64]) {
	for range rapid.IntRange(0, 3).Draw(t, "ports with rates") {
		p := rapid.SampledFrom(l.net.Ports).Draw(t, "port")
		set := func(rate law.Rate, bucket law.Bytes) {
			if err := p.SetRate(rate, bucket); err != nil {
				t.Fatal(err)
			}
			l.check()
		}
		for range rapid.IntRange(1, 4).Draw(t, "rates") {
			rate := rapid.SampledFrom([]law.Rate{0, 1e6, 100e6, 999_999_937, 10e9}).Draw(t, "rate")
			bucket := rapid.SampledFrom([]law.Bytes{0, 3000, 50_000}).Draw(t, "bucket")
			at(l.net.Queue, event.Time(when.Draw(t, "set")), func(event.Time) { set(rate, bucket) })
		}
		at(l.net.Queue, 3*event.Millisecond, func(event.Time) { set(0, 0) })
	}
}

// holder is a law and a guard that keeps all packets while it is shut, and some of those of hosts.
type holder struct {
	net  *Network
	shut bool
	held []*Packet
}

func (h *holder) keep(pk *Packet) Verdict {
	if !h.shut && len(h.held) == 0 { // packets that come while it opens go behind the others
		return Pass
	}
	h.held = append(h.held, pk)
	return Take
}

func (h *holder) Packet(_ *Port, pk *Packet, _ event.Time) Verdict { return h.keep(pk) }

func (h *holder) Out(_ NodeID, pk *Packet, _ event.Time) Verdict { return h.keep(pk) }

func (h *holder) In(_ NodeID, pk *Packet, _ event.Time) Verdict { return h.keep(pk) }

// open returns the kept packets in order. Packets that come meanwhile join the end.
func (h *holder) open() {
	h.shut = false
	for len(h.held) > 0 {
		pk := h.held[0]
		h.net.Return(pk)
		h.held = h.held[1:]
	}
}

// holds has laws at random ports, and guards, keep packets for a time.
func holds(t *rapid.T, l *ledger, when *rapid.Generator[int64]) {
	n := l.net
	var all []*holder
	add := func() *holder {
		h := &holder{net: n}
		all = append(all, h)
		return h
	}
	for range rapid.IntRange(0, 4).Draw(t, "laws") {
		p := rapid.SampledFrom(n.Ports).Draw(t, "port")
		p.SetLaws(append(p.Laws(), add())...)
	}
	for range rapid.IntRange(0, 2).Draw(t, "guards") {
		n.SetGuards(append(n.Guards(), add())...)
	}
	for _, h := range all {
		at(n.Queue, event.Time(when.Draw(t, "shut")), func(event.Time) { h.shut = true })
		at(n.Queue, event.Time(when.Draw(t, "open")), func(event.Time) { h.open(); l.check() })
		at(n.Queue, 3*event.Millisecond, func(event.Time) { h.open() })
	}
}
