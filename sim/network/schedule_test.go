package network

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/law"
	"weir/sim/event"
)

// choice returns what the scheduler of TestSchedulerIsTheSlowOne chooses among packets with these tags: an index, or
// the number of tags for none of them.
func choice(seed uint64, tags []uint64) int {
	for _, tag := range tags {
		seed = mix(seed ^ tag)
	}
	return int(seed % uint64(len(tags)+1))
}

// chooser chooses at the port.
type chooser struct {
	seed uint64
	full int // how often Victim was called
}

func (c *chooser) Packet(*Port, *Packet, event.Time) Verdict { return Pass }

func (c *chooser) Victim(p *Port, pk *Packet, _ event.Time) *Packet {
	c.full++
	return c.choose(p, pk)
}

func (c *chooser) Next(p *Port, _ event.Time) *Packet { return c.choose(p, nil) }

func (c *chooser) choose(p *Port, pk *Packet) *Packet {
	list := slices.Collect(p.Waiting())
	var tags []uint64
	for _, w := range list {
		tags = append(tags, w.tag)
	}
	if k := choice(c.seed, tags); k < len(list) {
		return list[k]
	}
	return pk
}

// slowScheduler is the same with a list, advanced nanosecond by nanosecond.
type slowScheduler struct {
	seed    uint64
	buffer  int64
	waiting []refPacket // the highest priority first
	line    *refPacket
	gone    []arrival
	dropped []uint64
}

func (m *slowScheduler) tags() (tags []uint64) {
	for _, p := range m.waiting {
		tags = append(tags, p.tag)
	}
	return tags
}

func (m *slowScheduler) step(now event.Time) {
	if m.line != nil && m.line.leaves == now {
		m.gone = append(m.gone, arrival{at: now, tag: m.line.tag, host: 2})
		m.line = nil
	}
	if m.line != nil || len(m.waiting) == 0 {
		return
	}
	k := choice(m.seed, m.tags())
	if k == len(m.waiting) {
		k = 0
	}
	p := m.waiting[k]
	m.waiting = slices.Delete(m.waiting, k, k+1)
	p.leaves = now + event.Time(p.bytes*8)
	m.line = &p
}

func (m *slowScheduler) send(bytes int64, tag uint64, now event.Time) {
	held := int64(0)
	if m.line != nil {
		held = m.line.bytes
	}
	for _, p := range m.waiting {
		held += p.bytes
	}
	for held+bytes > m.buffer {
		k := choice(m.seed, m.tags())
		if k == len(m.waiting) {
			m.dropped = append(m.dropped, tag)
			return
		}
		m.dropped = append(m.dropped, m.waiting[k].tag)
		held -= m.waiting[k].bytes
		m.waiting = slices.Delete(m.waiting, k, k+1)
	}
	at := slices.IndexFunc(m.waiting, func(p refPacket) bool { return p.tag%Priorities < tag%Priorities })
	if at < 0 {
		at = len(m.waiting)
	}
	m.waiting = slices.Insert(m.waiting, at, refPacket{bytes: bytes, tag: tag})
	m.step(now)
}

// A law chooses at random which packets are dropped and sent next. The port drops and sends the same packets as the
// slow one, at the same times. It was a served port before, or becomes one by the law.
func TestSchedulerIsTheSlowOne(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		seed, buffer := rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int64{1514, 5000, 12_000}).Draw(t, "buffer")
		n := buildOn(t, event.NewQueue(), 1e9, 0, law.Limit{N: buffer}, Options{FrameOnly: true, Priorities: rapid.Bool().Draw(t, "served")})
		p, c, m := n.PortByName("switch->b"), &chooser{seed: seed}, &slowScheduler{seed: seed, buffer: buffer}
		p.SetLaws(c)
		var dropped []uint64
		n.OnDrop = func(_ *Port, pk *Packet, reason DropReason, _ event.Time) {
			if dropped = append(dropped, pk.tag); reason != DropTail {
				t.Fatalf("dropped by %v", reason)
			}
		}
		now := event.Time(0)
		for i := range uint64(rapid.IntRange(1, 40).Draw(t, "packets")) {
			for range rapid.SampledFrom([]int64{0, 0, 0, 1, 500, 12_112, 20_000}).Draw(t, "gap") {
				now++
				m.step(now)
			}
			n.Queue.Run(now)
			bytes := rapid.SampledFrom([]int32{60, 800, 1514}).Draw(t, "bytes")
			m.send(int64(bytes), i, now)
			pk := n.packet(1, 2, bytes, i)
			pk.priority = uint8(i % Priorities)
			p.Send(pk)
		}
		for m.line != nil {
			now++
			m.step(now)
		}
		n.Queue.Run(event.Second)
		if got := n.Sink.(*sink).got; !slices.Equal(got, m.gone) || !slices.Equal(dropped, m.dropped) {
			t.Fatalf("arrived %v, dropped %v; want %v and %v", got, dropped, m.gone, m.dropped)
		}
		if held := p.Counters().Queued.Packets; held != 0 || n.Borrowed() != 0 {
			t.Fatalf("%d packets are queued, %d in use", held, n.Borrowed())
		}
		asked += c.full
	})
	if asked == 0 {
		t.Error("no buffer was ever full")
	}
}

// The victim of a scheduler is offered to a law that rescues.
func TestVictimIsRescued(t *testing.T) {
	n, s := build(t, pair(1e9, 0, law.Limit{N: 2, Packets: true}), Options{})
	p := n.PortByName("switch->b")
	r := &firstGoes{}
	p.SetLaws(r)
	for i := range uint64(3) {
		p.Send(n.packet(1, 2, 1000, i))
	}
	if r.rescued == nil || r.rescued.tag != 1 {
		t.Fatalf("rescued %v", r.rescued)
	}
	conserved(t, n)
	at(n.Queue, event.Millisecond, func(event.Time) { n.Return(r.rescued) })
	n.Queue.Run(event.Second)
	if c := p.Counters(); len(s.got) != 3 || s.got[1].tag != 2 || s.got[2].tag != 1 || c.Tail.Packets != 0 || c.Taken.Packets != 0 {
		t.Errorf("arrived %v, %+v", s.got, c)
	}
	conserved(t, n)
}

// firstGoes makes the first waiting packet the victim when the buffer is full, and rescues it.
type firstGoes struct{ rescued *Packet }

func (*firstGoes) Packet(*Port, *Packet, event.Time) Verdict { return Pass }

func (*firstGoes) Next(*Port, event.Time) *Packet { return nil }

func (*firstGoes) Victim(p *Port, _ *Packet, _ event.Time) *Packet {
	for pk := range p.Waiting() {
		return pk
	}
	return nil
}

func (f *firstGoes) Full(_ *Port, pk *Packet, _ event.Time) Verdict {
	f.rescued = pk
	return Take
}
