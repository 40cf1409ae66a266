package poll

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/fabric"
	"weir/law/lawtest"
)

const ms = time.Millisecond

// Answers come late or never, and the controller's ticks are late. Still all questions are on the grid of the first one, and at
// most one waits for its answer. Each time of the grid has a question or counts as skipped.
func TestGridDoesNotDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.IntRange(1, 20).Draw(t, "period")) * ms
		l := New(period)
		now := time.Duration(rapid.IntRange(0, 1000).Draw(t, "begin")) * 100 * time.Microsecond
		l.Step(now, &fabric.Joined{Switch: 1}, nil)
		start, open := now, false
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			var e law.Event = law.Tick{}
			if open && rapid.Bool().Draw(t, "answer") {
				e = &fabric.PortStats{Switch: 1}
				if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
					e = &fabric.StatsFailed{Switch: 1}
				}
				open = false
			} else {
				late := time.Duration(rapid.IntRange(0, 50).Draw(t, "late")) * 100 * time.Microsecond
				now = max(now, l.Wake()) + late
			}
			before := l.switches[1].next
			asked := slices.Contains(l.Step(now, e, nil), law.Action(fabric.AskStats{Switch: 1}))
			if asked && (open || now < before) {
				t.Fatalf("at %v: asked with a question open: %v, moment %v", now, open, before)
			}
			open = open || asked
			if wake := l.Wake(); (wake-start)%period != 0 || wake <= now || wake > now+period {
				t.Fatalf("at %v: next at %v: not on the grid from %v by %v", now, wake, start, period)
			}
		}
		c := l.Counts()[1]
		if moments := uint64((now - start) / period); c.Asked+c.Skipped != moments || c.Answered+c.Failed > c.Asked {
			t.Fatalf("%+v of %d moments", c, moments)
		}
	})
}

// A law that plans from the last answer drifts: after 1000 answers of 1 ms each it is a second late. On the grid the next
// question is on time.
func TestPlannedFromTheAnswerWouldDrift(t *testing.T) {
	l := New(10 * ms)
	l.Step(0, &fabric.Joined{Switch: 1}, nil)
	naive := 10 * ms
	for range 1000 {
		l.Step(l.Wake(), law.Tick{}, nil)
		l.Step(l.Wake()-9*ms, &fabric.PortStats{Switch: 1}, nil)
		naive += 1*ms + 10*ms
	}
	if l.Wake() != 1001*10*ms || naive-l.Wake() != time.Second {
		t.Errorf("next at %v, planned from answers %v", l.Wake(), naive)
	}
	if c := l.Counts()[1]; c.Asked != 1000 || c.Skipped != 0 {
		t.Errorf("%+v", c)
	}
}

// The law reports only answers to its own questions.
func TestAnswersAreReported(t *testing.T) {
	l := New(ms)
	l.Step(0, &fabric.Joined{Switch: 2}, nil)
	answer := func(n uint64) []law.Action {
		return l.Step(l.Wake()-1, &fabric.PortStats{Switch: 2, Ports: []fabric.Counters{{Port: 9, TxBytes: n}}}, nil)
	}
	if got := answer(4); len(got) != 0 {
		t.Errorf("nobody asked: %+v", got)
	}
	for n := range uint64(3) {
		l.Step(l.Wake(), law.Tick{}, nil)
		got := answer(n)
		if len(got) != 1 {
			t.Fatalf("answer %d: %+v", n, got)
		}
		r, ok := got[0].(*fabric.Report)
		if !ok || r.Switch != 2 || !slices.Equal(r.Ports, []fabric.Counters{{Port: 9, TxBytes: n}}) {
			t.Errorf("answer %d: %+v", n, got[0])
		}
	}
	l.Step(l.Wake(), &fabric.Left{Switch: 2}, nil)
	if l.Wake() != 0 {
		t.Error("it would ask a switch that left")
	}
}

// The law keeps no borrowed memory.
func TestKeepsNothing(t *testing.T) {
	lawtest.Keeps(t, func() law.Law { return New(50 * ms) })
}
