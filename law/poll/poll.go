// Package poll is the law that asks switches for their port counters, once in every period. Each switch has a fixed grid of
// times, which does not drift.
package poll

import (
	"maps"
	"slices"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// Law asks at start + n*period, n = 1, 2, ... If the last question has no answer yet, it skips that time: a slow switch is
// asked less often, and never twice at once. Each answer becomes a Report.
type Law struct {
	period   time.Duration
	switches map[law.Switch]*grid
	joined   int           // numbers switches, so that they are not all asked at one moment
	due      time.Duration // time of the next question; 0: no switch is connected
	asked    []law.Switch  // in this step
	report   fabric.Report // of this step
}

type grid struct {
	start  time.Duration
	next   time.Duration
	asked  bool
	counts Counts
}

// Counts holds the counters of one switch since it joined.
type Counts struct {
	Asked    uint64 `json:"asked"`
	Answered uint64 `json:"answered"`
	Skipped  uint64 `json:"skipped"` // times of the grid without a question: an answer was missing, or the tick was too late
	Failed   uint64 `json:"failed"`
}

// New makes the law. With a period of 0 it never asks.
func New(period time.Duration) *Law {
	return &Law{period: period, switches: map[law.Switch]*grid{}}
}

// Step takes one event.
func (l *Law) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	if l.period <= 0 {
		return out
	}
	switch e := e.(type) {
	case *fabric.Joined:
		const parts = 16 // of a period, over which the switches are spread
		start := now + l.period*time.Duration(l.joined%parts)/parts
		l.joined++
		l.switches[e.Switch] = &grid{start: start, next: start + l.period}
		l.first()
	case *fabric.Left:
		delete(l.switches, e.Switch)
		l.first()
	case *fabric.PortStats:
		if g := l.switches[e.Switch]; g != nil && g.asked {
			g.asked = false
			g.counts.Answered++
			l.report.Switch, l.report.Ports = e.Switch, append(l.report.Ports[:0], e.Ports...)
			out = append(out, &l.report)
		}
	case *fabric.StatsFailed:
		if g := l.switches[e.Switch]; g != nil && g.asked {
			g.asked = false
			g.counts.Failed++
		}
	}
	return l.ask(now, out)
}

func (l *Law) ask(now time.Duration, out []law.Action) []law.Action {
	if l.due == 0 || now < l.due {
		return out // most events: do not search all switches
	}
	l.asked = l.asked[:0]
	for s, g := range l.switches {
		if now >= g.next {
			l.asked = append(l.asked, s)
		}
	}
	slices.Sort(l.asked)
	for _, s := range l.asked {
		g := l.switches[s]
		passed := uint64((now - g.next) / l.period)
		g.next += l.period * time.Duration(passed+1)
		if g.asked {
			g.counts.Skipped += passed + 1
			continue
		}
		g.counts.Skipped += passed
		g.asked = true
		g.counts.Asked++
		out = append(out, fabric.AskStats{Switch: s})
	}
	l.first()
	return out
}

// first finds the time of the next question.
func (l *Law) first() {
	l.due = 0
	for _, g := range l.switches {
		if l.due == 0 || g.next < l.due {
			l.due = g.next
		}
	}
}

// Wake returns the time of the next question.
func (l *Law) Wake() time.Duration { return l.due }

// Counts returns the counters of every switch.
func (l *Law) Counts() map[law.Switch]Counts {
	out := map[law.Switch]Counts{}
	for s := range maps.Keys(l.switches) {
		out[s] = l.switches[s].counts
	}
	return out
}
