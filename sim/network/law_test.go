package network

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/law"
	"weir/sim/event"
)

// The laws of TestLawsAreTheSlowOnes do one of these things with a packet, each with the same probability.
const (
	doPass = iota
	doPassToo
	doDrop
	doTake
	doTakeAndReturnOldest // takes it, and returns the packet that this law has had longest: itself, if it has no other
	doInjectBehind
	doInjectBefore // all laws see it
	doInjectAndTake
	doDiscardOldest
	doMark
	doKinds
)

// tagOne is the tag of the first packet that is injected.
const tagOne = 1000

// decide returns what law number law does when it sees the packet tag for the n-th time.
func decide(seed, tag uint64, law, n int) int {
	kind := int(mix(seed^mix(tag*64+uint64(law)*8+uint64(n))) % doKinds)
	if tag >= 4*tagOne || n > 3 {
		return doPass
	}
	return kind
}

// slowLaws is a port with laws in the simplest form: lists, and no packets.
type slowLaws struct {
	seed    uint64
	laws    int
	seen    map[[2]uint64]int // by law and tag: how often
	log     []string
	held    [][]slowHeld // by law
	pending []func()
	ref     *reference
	now     event.Time
	bytes   map[uint64]int64
	ce      map[uint64]bool
	next    uint64
	law     int64 // dropped by laws
	own     int64
	marks   int64
	rescued int64
}

type slowHeld struct {
	tag uint64
	ce  bool
}

func (m *slowLaws) visit(law int, tag uint64) int {
	k := [2]uint64{uint64(law), tag}
	m.seen[k]++
	return m.seen[k]
}

// arrive passes a packet to the laws from the number i on.
func (m *slowLaws) arrive(tag uint64, i int) {
	before := m.ce[tag]
	for ; i < m.laws; i++ {
		n := m.visit(i, tag)
		m.log = append(m.log, fmt.Sprintf("%d: law %d sees %d", m.now, i, tag))
		switch decide(m.seed, tag, i, n) {
		case doDrop:
			m.law++
			m.settle()
			return
		case doTake:
			m.take(i, tag, before)
			m.settle()
			return
		case doTakeAndReturnOldest:
			m.take(i, tag, before)
			m.pending = append(m.pending, m.release(i, m.held[i][0].tag))
			m.settle()
			return
		case doInjectBehind:
			m.inject(tag, i+1)
		case doInjectBefore:
			m.inject(tag, 0)
		case doInjectAndTake:
			m.inject(tag, i+1)
			m.take(i, tag, before)
			m.settle()
			return
		case doDiscardOldest:
			if len(m.held[i]) > 0 {
				m.held[i] = m.held[i][1:]
				m.law++
			}
		case doMark:
			m.ce[tag] = true
		}
	}
	m.queue(tag)
	m.settle()
}

func (m *slowLaws) take(i int, tag uint64, ce bool) {
	m.held[i] = append(m.held[i], slowHeld{tag, ce})
}

// queue is the buffer. The last law rescues every second packet for which there is no room.
func (m *slowLaws) queue(tag uint64) {
	drops := m.ref.drops
	if m.ref.send(m.now, m.bytes[tag], tag); m.ref.drops == drops {
		if m.ce[tag] { // no packet comes with CE
			m.marks++
		}
		return
	}
	if last := m.laws - 1; last >= 0 && m.visit(last, tag)%2 == 0 {
		m.ref.drops--
		m.rescued++
		m.take(last, tag, m.ce[tag])
	}
}

// release removes a packet from a law's list now. The function that it returns continues the packet.
func (m *slowLaws) release(i int, tag uint64) func() {
	at := slices.IndexFunc(m.held[i], func(h slowHeld) bool { return h.tag == tag })
	m.held[i] = slices.Delete(m.held[i], at, at+1)
	return func() { m.arrive(tag, i+1) }
}

func (m *slowLaws) inject(by uint64, from int) {
	m.next += tagOne
	tag := by%tagOne + m.next
	m.bytes[tag] = 500
	m.pending = append(m.pending, func() { m.own++; m.arrive(tag, from) })
}

func (m *slowLaws) settle() {
	for len(m.pending) > 0 {
		first := m.pending[0]
		m.pending = m.pending[1:]
		first()
	}
}

// scriptedLaw does the same at a port of the network.
type scriptedLaw struct {
	*script
	number int
	stands Law // this law, as it stands at the port
	held   []*Packet
}

type script struct {
	seed uint64
	seen map[[2]uint64]int
	log  []string
	next uint64
	laws []*scriptedLaw
}

func (l *scriptedLaw) Packet(p *Port, pk *Packet, now event.Time) Verdict {
	k := [2]uint64{uint64(l.number), pk.tag}
	l.seen[k]++
	l.log = append(l.log, fmt.Sprintf("%d: law %d sees %d", now, l.number, pk.tag))
	switch decide(l.seed, pk.tag, l.number, l.seen[k]) {
	case doDrop:
		return Drop
	case doTake:
		l.held = append(l.held, pk)
		return Take
	case doTakeAndReturnOldest:
		l.held = append(l.held, pk)
		oldest := l.held[0]
		l.held = l.held[1:]
		p.net.Return(oldest)
		return Take
	case doInjectBehind:
		l.inject(p, l.stands, pk.tag)
	case doInjectBefore:
		l.inject(p, nil, pk.tag)
	case doInjectAndTake:
		l.inject(p, l.stands, pk.tag)
		l.held = append(l.held, pk)
		return Take
	case doDiscardOldest:
		if len(l.held) > 0 {
			oldest := l.held[0]
			l.held = l.held[1:]
			p.net.Discard(oldest)
		}
	case doMark:
		pk.ecn = CE
	}
	return Pass
}

func (l *scriptedLaw) inject(p *Port, by Law, tag uint64) {
	l.next += tagOne
	p.Inject(by, p.net.packet(1, 2, 500, tag%tagOne+l.next))
}

// rescuingLaw is the last law.
type rescuingLaw struct{ *scriptedLaw }

func (l rescuingLaw) Full(_ *Port, pk *Packet, _ event.Time) Verdict {
	k := [2]uint64{uint64(l.number), pk.tag}
	if l.seen[k]++; l.seen[k]%2 != 0 {
		return Drop
	}
	l.held = append(l.held, pk)
	return Take
}

// Laws at a port that pass, drop, take, return, discard and inject packets act as the slow ones. Each sees the same
// packets at the same times, the same packets leave the port at the same times, and the counters are equal. No packet
// is lost or duplicated while laws keep some.
func TestLawsAreTheSlowOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := law.Limit{N: rapid.SampledFrom([]int64{1514, 4000, 100_000}).Draw(t, "buffer")}
		o := Options{Priorities: rapid.Bool().Draw(t, "served")}
		q := event.NewQueue()
		n := buildOn(t, q, 1e9, 0, limit, o)
		p := n.PortByName("switch->b")
		sc := &script{seed: rapid.Uint64().Draw(t, "seed"), seen: map[[2]uint64]int{}}
		laws := rapid.IntRange(1, 3).Draw(t, "laws")
		m := &slowLaws{
			seed: sc.seed, laws: laws, seen: map[[2]uint64]int{}, held: make([][]slowHeld, laws), bytes: map[uint64]int64{}, ce: map[uint64]bool{},
			ref: &reference{rate: 1e9, limit: limit},
		}
		for i := range laws {
			sc.laws = append(sc.laws, &scriptedLaw{script: sc, number: i})
			sc.laws[i].stands = sc.laws[i]
			if i == laws-1 {
				sc.laws[i].stands = rescuingLaw{sc.laws[i]}
			}
			p.SetLaws(append(p.Laws(), sc.laws[i].stands)...)
		}
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(t, "steps")
		now := event.Time(0)
		for i, kind := range steps {
			now += event.Time([]int64{0, 0, 1, 5000, 12_304, 30_000, 0, 700, 12_304, 0}[kind])
			at(q, now, func(now event.Time) {
				m.now = now
				if kind < 6 {
					m.bytes[uint64(i)] = 1514
					m.arrive(uint64(i), 0)
					p.Send(n.packet(1, 2, 1514, uint64(i)))
				} else { // a law's timer: it returns, or discards, one of those that it has taken
					which := i % laws
					if l := sc.laws[which]; len(l.held) > 0 && len(m.held[which]) > 0 {
						k := i % len(l.held)
						pk := l.held[k]
						l.held = slices.Delete(l.held, k, k+1)
						goOn := m.release(which, pk.tag)
						if kind == 9 {
							m.law++
							n.Discard(pk)
						} else {
							goOn()
							n.Return(pk)
						}
					}
				}
				lookAtLaws(t, p, m, sc)
			})
		}
		q.Run(event.Second)
		if !slices.Equal(sc.log, m.log) {
			t.Fatalf("the laws saw\n%v, want\n%v", sc.log, m.log)
		}
		for i := range m.ref.arrived {
			m.ref.arrived[i].host = 2
		}
		if got := n.Sink.(*sink).got; !slices.Equal(got, m.ref.arrived) {
			t.Fatalf("arrived\n%v, want\n%v", got, m.ref.arrived)
		}
	})
}

// lookAtLaws compares all that can be observed at one time.
func lookAtLaws(t *rapid.T, p *Port, m *slowLaws, sc *script) {
	if p.server != nil {
		p.server.catchUp(m.now) // its event comes after this one
	}
	bytes, packets := m.ref.backlog(m.now)
	held := Count{}
	for i := range m.held {
		if len(m.held[i]) != len(sc.laws[i].held) {
			t.Fatalf("law %d has taken %d, want %d", i, len(sc.laws[i].held), len(m.held[i]))
		}
		for _, h := range m.held[i] {
			held.Packets++
			held.Bytes += m.bytes[h.tag]
		}
	}
	c := p.Counters()
	if c.Queued != (Count{packets, bytes}) || c.Taken != held || c.Law.Packets != m.law || c.Tail.Packets != int64(m.ref.drops) || c.Own.Packets != m.own || c.Marks != m.marks {
		t.Fatalf("at %d: %+v; want held %d, %d B, taken %+v, law %d, tail %d, own %d, marks %d", m.now, c, packets, bytes, held, m.law, m.ref.drops, m.own, m.marks)
	}
	if sum := c.Sent.Bytes + c.Tail.Bytes + c.Law.Bytes + c.Down.Bytes + c.Queued.Bytes + c.Taken.Bytes; c.In.Bytes != sum {
		t.Fatalf("%d bytes in, %d accounted for: %+v", c.In.Bytes, sum, c)
	}
	inside := int64(p.end-p.first) + c.Taken.Packets
	if p.server != nil {
		inside += p.server.packets
	}
	if p.net.Borrowed() != inside {
		t.Fatalf("%d packets are outside the pool, %d inside", p.net.Borrowed(), inside)
	}
}

// markAll sets every packet to CE.
type markAll struct{}

func (markAll) Packet(_ *Port, pk *Packet, _ event.Time) Verdict {
	pk.SetECN(CE)
	return Pass
}

// Marks counts the packets that arrive with CE because of the port: not those that came with CE, those that the full
// buffer drops, nor those that a flap drops.
func TestMarksArePacketsThatLeave(t *testing.T) {
	for _, served := range []bool{false, true} {
		q := event.NewQueue()
		n, err := Build(q, configOf(pair(1e9, 0, law.Limit{N: 4 * 1514})), Options{Priorities: served})
		if err != nil {
			t.Fatal(err)
		}
		n.Sink = &sink{net: n}
		p := n.PortByName("switch->b")
		p.SetLaws(markAll{})
		send := func(tag uint64) {
			pk := n.packet(1, 2, 1514, tag)
			if tag%4 == 3 {
				pk.SetECN(CE)
			}
			p.Send(pk)
		}
		at(q, 0, func(event.Time) {
			for tag := range uint64(10) { // four fit
				send(tag)
			}
		})
		at(q, 20*event.Microsecond, func(event.Time) { // one has left
			p.SetDown(true)
			p.SetDown(false)
			for tag := range uint64(8) {
				send(tag)
			}
		})
		q.Run(event.Second)
		arrived, came := int64(len(n.Sink.(*sink).got)), int64(1)
		if c := p.Counters(); arrived != 5 || c.Tail.Packets != 10 || c.Down.Packets != 3 || c.Marks != arrived-came {
			t.Errorf("served %v: %d arrived with CE, %d of them came with it: want %d marks: %+v", served, arrived, came, arrived-came, c)
		}
	}
}

// A packet that a law has taken is not lost when the link goes down. It is lost if it comes back while the link is
// down.
func TestTakenPacketsAndFlaps(t *testing.T) {
	for _, o := range []Options{{}, {Priorities: true}} {
		n, s := build(t, pair(1e9, 0, law.Limit{N: 125_000}), o)
		p := n.PortByName("switch->b")
		var held []*Packet
		p.SetLaws(&lawFunc{func(_ *Port, pk *Packet, _ event.Time) Verdict {
			held = append(held, pk)
			return Take
		}})
		for i := range uint64(2) {
			p.Send(n.packet(1, 2, 1000, i))
		}
		p.SetDown(true)
		if c := p.Counters(); c.Taken != (Count{2, 2000}) || c.Down.Packets != 0 {
			t.Errorf("%+v: %+v", o, c)
		}
		n.Return(held[0])
		p.SetDown(false)
		n.Return(held[1])
		n.Queue.Run(event.Second)
		if c := p.Counters(); c.Taken.Packets != 0 || c.Down.Packets != 1 || len(s.got) != 1 || s.got[0].tag != 1 {
			t.Errorf("%+v: %+v, arrived %v", o, c, s.got)
		}
		conserved(t, n)
	}
}

// Mistakes of a law panic where they are made.
func TestMistakesOfLawsPanic(t *testing.T) {
	n, _ := build(t, pair(1e9, 0, law.Limit{N: 125_000}), Options{})
	p := n.PortByName("switch->b")
	var held *Packet
	l := &lawFunc{func(_ *Port, pk *Packet, _ event.Time) Verdict {
		held = pk
		return Take
	}}
	p.SetLaws(l)
	p.Send(n.packet(1, 2, 1000, 1))
	for name, mistake := range map[string]func(){
		"freed":              func() { n.Free(held) },
		"twice at a port":    func() { p.SetLaws(l, l) },
		"more than 64":       func() { p.SetLaws(make([]Law, 65)...) },
		"returned, not held": func() { n.Return(n.packet(1, 2, 1000, 2)) },
		"discarded twice": func() {
			n.Discard(held)
			n.Discard(held)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: went unnoticed", name)
				}
			}()
			mistake()
		}()
	}
}
