package event

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// list is the slow and obvious queue: a list sorted by time, and by the order of Set for the same time.
type list struct {
	now    Time
	events []*Event
}

func (l *list) Now() Time { return l.now }

func (l *list) Set(ev *Event, at Time) {
	l.Stop(ev)
	ev.at = at
	i := len(l.events)
	for i > 0 && l.events[i-1].at > at {
		i--
	}
	l.events = slices.Insert(l.events, i, ev)
}

func (l *list) Stop(ev *Event) {
	if i := slices.Index(l.events, ev); i >= 0 {
		l.events = slices.Delete(l.events, i, i+1)
	}
}

func (l *list) Run(until Time) {
	for len(l.events) > 0 && l.events[0].at <= until {
		ev := l.events[0]
		l.events = l.events[1:]
		l.now = ev.at
		ev.handler.Happen(ev, ev.at)
	}
	l.now = until
}

// step is one operation on a queue, from outside or within an event.
type step struct {
	what  string // set, stop, run
	event int
	delay Time
}

// script is steps from outside, and two steps each for the first events to do when they happen.
type script struct {
	outside, within []step
}

// player plays a script on a queue and logs what happens.
type player struct {
	q      scheduler
	events [12]numbered
	within []step
	log    []string
}

type numbered struct {
	Event
	number int
	player *player
}

func (n *numbered) Happen(ev *Event, now Time) {
	p := n.player
	p.log = append(p.log, fmt.Sprintf("%d at %d, clock %d", n.number, now, p.q.Now()))
	if ev != &n.Event {
		p.log = append(p.log, "with another's event")
	}
	for range min(2, len(p.within)) {
		s := p.within[0]
		p.within = p.within[1:]
		p.do(s)
	}
}

func (p *player) do(s step) {
	ev := &p.events[s.event].Event
	at := p.q.Now() + s.delay
	if at < 0 {
		at = math.MaxInt64 // past the end of time
	}
	switch s.what {
	case "set":
		p.q.Set(ev, at)
	case "stop":
		p.q.Stop(ev)
	case "run":
		p.q.Run(at)
		p.log = append(p.log, fmt.Sprintf("clock %d", p.q.Now()))
	}
}

func play(q scheduler, s script) []string {
	p := &player{q: q, within: s.within}
	for i := range p.events {
		p.events[i] = numbered{number: i, player: p}
		p.events[i].Init(&p.events[i])
	}
	for _, step := range s.outside {
		p.do(step)
	}
	p.do(step{what: "run", delay: math.MaxInt64})
	return p.log
}

// Delays are often 0 and often equal. Others are near the end of a level, or of a word of its bitmap, and the rest have
// every size up to 292 years.
func drawSteps(t *rapid.T, label string, what ...string) []step {
	delay := rapid.OneOf(
		rapid.SampledFrom([]Time{0, 0, 1, 63, 64, 1200, slots - 1, slots, slots * 63, slots * 64, slots*slots - 1, slots * slots, Second}),
		rapid.Map(rapid.Uint64(), func(x uint64) Time { return Time(x >> 1 >> (x % 63)) }),
		rapid.Map(rapid.IntRange(0, 20000), func(x int) Time { return Time(x) }),
	)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what:  rapid.SampledFrom(what).Draw(t, "what"),
			event: rapid.IntRange(0, len(player{}.events)-1).Draw(t, "event"),
			delay: delay.Draw(t, "delay"),
		}
	}), 0, 150).Draw(t, label)
}

// Events that are set, moved and stopped, from outside and within events, happen as in a sorted list.
func TestQueue_DoesAsASortedList(t *testing.T) {
	for _, s := range structures {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := s
				played := script{
					outside: drawSteps(t, "outside", "set", "set", "set", "stop", "run", "run"),
					within:  drawSteps(t, "within", "set", "set", "set", "stop"),
				}
				want, got := play(new(list), played), play(s.make(), played)
				for i := range max(len(want), len(got)) {
					if i >= len(want) || i >= len(got) || want[i] != got[i] {
						t.Fatalf("from line %d on: %q, want %q", i, got[min(i, len(got)):], want[min(i, len(want)):])
					}
				}
			})
		})
	}
}

// calls is a handler that calls a function.
type calls func(ev *Event, now Time)

func (c calls) Happen(ev *Event, now Time) { c(ev, now) }

func TestQueue_TiesHappenInTheOrderOfSet(t *testing.T) {
	const n = 1000
	q := NewQueue()
	var got []int
	events := make([]Event, n)
	var tick Event
	tick.Init(calls(func(*Event, Time) {}))
	for i := range events {
		events[i].Init(calls(func(*Event, Time) { got = append(got, i) }))
		// All are for the same second. The clock moves ever nearer to it, so that they begin on different levels.
		q.Set(&events[i], Second)
		if i%40 == 0 {
			next := Second - (Second-q.Now())/2
			q.Set(&tick, next)
			q.Run(next)
		}
	}
	q.Set(&events[0], Second) // moved to the same time: after all others
	q.Run(Second)
	for i := range got {
		if want := (i + 1) % n; got[i] != want {
			t.Fatalf("event %d is number %d, want %d", i, got[i], want)
		}
	}
	if len(got) != n {
		t.Fatalf("%d events happened, want %d", len(got), n)
	}
}

func TestQueue_HaltReturnsAfterTheEvent(t *testing.T) {
	q := NewQueue()
	var first, second Event
	first.Init(calls(func(*Event, Time) { q.Halt() }))
	second.Init(calls(func(*Event, Time) {}))
	q.Set(&first, 5)
	q.Set(&second, 5)
	q.Run(10)
	if q.Now() != 5 || q.Happened() != 1 || !second.Pending() || first.Pending() {
		t.Fatalf("after Halt: clock %d, %d events, second pending %t", q.Now(), q.Happened(), second.Pending())
	}
	q.Run(10)
	if q.Now() != 10 || q.Happened() != 2 || second.Pending() {
		t.Fatalf("after the next Run: clock %d, %d events, second pending %t", q.Now(), q.Happened(), second.Pending())
	}
}

func TestQueue_RunAgainAndAgainBeforeAFarEvent(t *testing.T) {
	q := NewQueue()
	var happened []Time
	var events [3]Event
	for i := range events {
		events[i].Init(calls(func(_ *Event, now Time) { happened = append(happened, now) }))
	}
	q.Set(&events[0], 3*Second)
	q.Set(&events[1], 3*Second+1)
	for now := Time(0); now < 3*Second; now += 7 * Millisecond {
		q.Run(now)
		q.Set(&events[2], now+4*Second) // moved, never due
	}
	q.Run(3*Second + 1)
	if want := []Time{3 * Second, 3*Second + 1}; !slices.Equal(happened, want) {
		t.Fatalf("events at %d, want %d", happened, want)
	}
}

// Run passes into the slot of two events, but not up to them. Then an event is set before them.
func TestQueue_SetBeforeThoseThatRunHasPassedBy(t *testing.T) {
	q := NewQueue()
	var happened []Time
	var events [3]Event
	for i := range events {
		events[i].Init(calls(func(_ *Event, now Time) { happened = append(happened, now) }))
	}
	q.Set(&events[0], 6000)
	q.Set(&events[1], 7000)
	q.Run(4200)
	q.Set(&events[2], 4300)
	q.Run(8000)
	if want := []Time{4300, 6000, 7000}; !slices.Equal(happened, want) {
		t.Fatalf("events at %d, want %d", happened, want)
	}
}

func TestQueue_RefusesThePast(t *testing.T) {
	q := NewQueue()
	q.Run(100)
	var ev Event
	ev.Init(calls(func(*Event, Time) { q.Run(300) }))
	for name, f := range map[string]func(){
		"Set before now":      func() { q.Set(&ev, 99) },
		"Run until before":    func() { q.Run(99) },
		"Run within an event": func() { q.Set(&ev, 200); q.Run(200) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestQueue_DoesNotAllocate(t *testing.T) {
	for _, pending := range []int{8, 1000, 10000} {
		l := newLoad(NewQueue(), pending)
		l.run(20 * pending)
		if n := testing.AllocsPerRun(10, func() { l.run(10 * pending) }); n != 0 {
			t.Errorf("%d events pending: %v allocations in %d events", pending, n, 10*pending)
		}
	}
}
