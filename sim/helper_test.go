package sim

import (
	"context"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/event"
)

// base is a dumbbell of one bottleneck. A test replaces TRAFFIC, and other parts if it must.
const base = `id: base
duration: 2s
seeds: [1]
worlds: [sim]
topology: {kind: dumbbell, senders: 4, receivers: 1, hypervisors: false}
network: {rate: 100Mbit, rtt: 400us, buffer: 60KB}
guests: {cc: reno}
traffic:
  TRAFFIC
schemes: [{name: droptail}]
measure: {ports: {bottleneck: "switch->receiver1"}}
`

func baseWith(traffic ...string) string {
	return strings.Replace(base, "TRAFFIC", "- "+strings.Join(traffic, "\n  - "), 1)
}

// planned returns the runs of a file.
func planned(t testing.TB, text string, set ...string) []*experiment.Run {
	t.Helper()
	f, err := laws.All().Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(experiment.Options{Worlds: []string{"sim"}, AssumeAll: true, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return p.Runs
}

// quiet is a Progress that discards everything.
type quiet struct{}

func (quiet) Phase(string)                       {}
func (quiet) At(law.Duration, law.Duration, int) {}

// carriedOut runs the only run of a file.
func carriedOut(t testing.TB, text string, set ...string) *result.Raw {
	t.Helper()
	return ran(t, &World{Laws: laws.Sim()}, planned(t, text, set...)[0])
}

func ran(t testing.TB, w *World, r *experiment.Run) *result.Raw {
	t.Helper()
	if err := w.Check(r); err != nil {
		t.Fatal(err)
	}
	raw, err := w.Run(context.Background(), r, quiet{})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// act is a function that runs at a time.
type act struct {
	ev event.Event
	do func()
}

// Happen runs it.
func (a *act) Happen(*event.Event, event.Time) { a.do() }

func doAt(q *event.Queue, t event.Time, do func()) {
	a := &act{do: do}
	a.ev.Init(a)
	q.Set(&a.ev, t)
}

// within fails unless got is in [from, to].
func within[N int | int64 | float64](t *testing.T, what string, got, from, to N) {
	t.Helper()
	if got < from || got > to {
		t.Errorf("%s is %v, want %v to %v", what, got, from, to)
	}
}

// build builds a run, with the laws of this build.
func build(r *experiment.Run) (*simulation, error) {
	return buildWith(r, laws.Sim(), networkOptions(r))
}
