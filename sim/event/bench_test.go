package event

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// scheduler is the interface of the structures that are compared.
type scheduler interface {
	Now() Time
	Set(ev *Event, at Time)
	Stop(ev *Event)
	Run(until Time)
}

var structures = []struct {
	name string
	make func() scheduler
}{
	{"wheel", func() scheduler { return NewQueue() }},
	{"heap", func() scheduler { return new(heap) }},
}

// load is what a network keeps pending. Half of it is busy links, whose next arrival is 1.2 us (a full frame at 10
// Gbit/s) or 12 us (at 1 Gbit/s) away on average. The other half is timers of 40 ms (delayed ACK) and 200 ms
// (retransmission). Every second arrival moves a timer, every eighth stops one and every eighth sets one, so that few
// timers ever expire.
type load struct {
	q      scheduler
	links  []Event
	timers []Event
	gaps   []Time // drawn in advance, so that the generator is not measured
	drawn  int
	timer  int
	left   int
	rounds []time.Time // when every round-th arrival happened, up to its capacity
}

func newLoad(q scheduler, pending int) *load {
	l := &load{q: q, links: make([]Event, pending/2), timers: make([]Event, pending/2), gaps: make([]Time, 1<<12)}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range l.gaps {
		mean := 1200.0
		if r.IntN(2) == 0 {
			mean = 12000
		}
		l.gaps[i] = Time(r.ExpFloat64() * mean)
	}
	for i := range l.links {
		l.links[i].Init(l)
		q.Set(&l.links[i], l.gap())
	}
	for i := range l.timers {
		l.timers[i].Init(expiry{q})
		q.Set(&l.timers[i], timeout(i))
	}
	return l
}

func (l *load) gap() Time {
	l.drawn++
	return l.gaps[l.drawn%len(l.gaps)]
}

func timeout(i int) Time {
	if i%2 == 0 {
		return 40 * Millisecond
	}
	return 200 * Millisecond
}

func (l *load) Happen(ev *Event, now Time) {
	if l.left--; l.left < 0 {
		return
	}
	if l.left%round == 0 && len(l.rounds) < cap(l.rounds) {
		l.rounds = append(l.rounds, time.Now())
	}
	l.q.Set(ev, now+l.gap())
	if l.left%2 == 0 {
		return
	}
	l.timer++
	if l.timer >= len(l.timers) {
		l.timer = 0
	}
	t := &l.timers[l.timer]
	if l.left%8 == 1 && t.Pending() {
		l.q.Stop(t)
		return
	}
	l.q.Set(t, now+timeout(l.timer))
}

type expiry struct{ q scheduler }

func (e expiry) Happen(ev *Event, now Time) { e.q.Set(ev, now+200*Millisecond) }

// run has n arrivals happen, and leaves all links without one.
func (l *load) run(n int) {
	l.left = n
	for i := range l.links {
		if !l.links[i].Pending() {
			l.q.Set(&l.links[i], l.q.Now()+l.gap())
		}
	}
	for l.left > 0 {
		l.q.Run(l.q.Now() + Millisecond)
	}
}

// round is the number of events that are timed at once. Read the median over the rounds, in ns/event: other work on the
// machine changes it least.
const round = 10000

// BenchmarkEvent is the cost of one arrival with its share of timers, by structure and number of pending events. The
// heap is the baseline: compare wheel and heap of the same number.
func BenchmarkEvent(b *testing.B) {
	for _, pending := range []int{8, 64, 1000, 10000, 100000} {
		for _, s := range structures {
			b.Run(fmt.Sprintf("pending=%d/%s", pending, s.name), func(b *testing.B) {
				l := newLoad(s.make(), pending)
				l.run(20 * pending)
				b.ReportAllocs()
				b.ResetTimer()
				l.rounds = make([]time.Time, 0, b.N/round+1)
				l.run(b.N)
				if ns := median(l.rounds); ns > 0 {
					b.ReportMetric(ns/round, "ns/event")
				}
			})
		}
	}
}

// median returns the median of the differences of successive times, in ns, or 0 if there are none.
func median(times []time.Time) float64 {
	if len(times) < 2 {
		return 0
	}
	var between []time.Duration
	for i, t := range times[1:] {
		between = append(between, t.Sub(times[i]))
	}
	slices.Sort(between)
	return float64(between[len(between)/2])
}
