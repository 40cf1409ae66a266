package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/law"
	"weir/sim"
)

const sideBySide = `id: beside
duration: 1s
seeds: [1, 2]
worlds: [lab, sim]
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 50Mbit, rtt: 200us, buffer: 60KB}
guests: {cc: reno}
traffic: [{name: long, from: "sender*", to: receiver1, pattern: bulk}]
schemes: [{name: droptail}, {name: ecn, params: {threshold: 20KB}}]
`

// rttWorld records the runs, and reports rtt, or the links' delays, as the idle round-trip time.
type rttWorld struct {
	name string
	rtt  []time.Duration // one per run

	mu  sync.Mutex
	ran []*experiment.Run
	all *[]string // the order of the runs of both worlds
}

func (w *rttWorld) Name() string                { return w.name }
func (w *rttWorld) Check(*experiment.Run) error { return nil }

func (w *rttWorld) Run(_ context.Context, r *experiment.Run, p experiment.Progress) (*result.Raw, error) {
	p.Phase("running")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran = append(w.ran, r)
	*w.all = append(*w.all, w.name)
	raw := &result.Raw{Duration: time.Second, Bin: time.Millisecond}
	if len(w.rtt) > 0 {
		raw.RTT = w.rtt[0]
		w.rtt = w.rtt[1:]
		raw.Flows = []result.Flow{{Group: "long", Item: "long", Mouse: 1, Start: time.Duration(r.Seed) * time.Millisecond, Wrote: time.Microsecond}}
	} else { // four links of 50 Mbit/s, on which a probe of 55 B takes its serialisation time, as in the lab
		raw.RTT = 4*r.Config.Graph.Links[0].Delay.Std() + 4*55*160
	}
	return raw, nil
}

// The lab's runs come first. The simulator's runs use the lab's median round-trip time and flow start times. They are
// stored under their settings, and repeated if the measurements change.
func TestRunner_SimulatorTakesTheLabsRoundTrip(t *testing.T) {
	dir := t.TempDir()
	us := func(v ...time.Duration) []time.Duration {
		for i := range v {
			v[i] *= time.Microsecond
		}
		return v
	}
	run := func(resume resuming, rtts []time.Duration) (lab, sim *rttWorld, runs []*result.Run) {
		asked := &store.Asked{Name: "beside.yaml", File: sideBySide, Options: experiment.Options{Worlds: []string{"lab", "sim"}}}
		plan, err := asked.Plan(laws.All())
		if err != nil {
			t.Fatal(err)
		}
		d, err := openStore(dir, asked, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var order []string
		lab, sim = &rttWorld{name: "lab", rtt: rtts, all: &order}, &rttWorld{name: "sim", all: &order}
		r := &runner{plan: plan, worlds: map[string]experiment.World{"lab": lab, "sim": sim}, store: d, resume: resume, code: oneCode, progress: newProgress(io.Discard, plan.Runs), processors: newProcessors()}
		if runs, err = r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(order) {
			t.Errorf("it ran in the order %v", order)
		}
		return lab, sim, runs
	}
	lab, sim, runs := run(resumeNothing, us(100, 900, 300, 320))
	if len(lab.ran) != 4 || len(sim.ran) != 4 || len(runs) != 8 {
		t.Fatalf("%d and %d runs, %d results", len(lab.ran), len(sim.ran), len(runs))
	}
	for _, r := range runs {
		if r.World == "sim" && (*r.RTTus < 309.9 || *r.RTTus > 310.1) {
			t.Errorf("the simulator's round trip is %v us, want the lab's median", *r.RTTus)
		}
	}
	for _, r := range sim.ran {
		if len(r.Starts) != 1 || r.Starts[experiment.FlowName{Item: "long", Mouse: 1}] != (experiment.FlowStart{At: law.Duration(r.Seed * 1e6), Wrote: 1e3}) {
			t.Errorf("flows begin at %v: want the starts of the lab's run with that seed", r.Starts)
		}
	}
	if sim.ran[0].Config.RTT != 200e3 {
		t.Error("its traffic would not be the lab's: the jitter of starts is by Config.RTT")
	}
	if lab, sim, _ = run(resumeSame, nil); len(lab.ran)+len(sim.ran) != 0 {
		t.Errorf("with --resume %d and %d are run again", len(lab.ran), len(sim.ran))
	}
	if _, sim, runs = run(resumeNothing, us(500, 500, 500, 500)); len(sim.ran) != 4 || *runs[7].RTTus < 499.9 {
		t.Errorf("after new measurements %d runs are done anew, the last with %v us", len(sim.ran), *runs[7].RTTus)
	}
}

// A repeated run names the measurement that changed.
func TestRunner_SaysWhyAgain(t *testing.T) {
	plan, err := (&store.Asked{Name: "beside.yaml", File: sideBySide, Options: experiment.Options{Worlds: []string{"lab", "sim"}, Seeds: []int64{1}}}).Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		was  time.Duration // of the simulator's round-trip time; 0: unchanged
		done time.Time     // the simulator's run
		says string        // "": the stored run is kept
	}{
		{0, at, ""},
		{0, at.Add(-time.Second), "was repeated, and its flows began at other times"},
		{time.Millisecond, at, "round-trip time is 300"},
		{time.Millisecond, at.Add(-time.Second), "and was 1ms"},
	} {
		var out bytes.Buffer
		r := &runner{plan: plan, progress: newProgress(&out, plan.Runs), labValues: true}
		var tasks []*task
		var simulated *task
		for _, run := range plan.Runs {
			one := &task{run: run, rtt: 300 * time.Microsecond, ended: at}
			if run.World == experiment.WorldSim {
				if _, one.rtt, err = sim.AtRTT(run, one.rtt); err != nil {
					t.Fatal(err)
				}
				one.rtt, one.ended, one.stored = cmp.Or(row.was, one.rtt), row.done, true
				simulated = one
			}
			tasks = append(tasks, one)
		}
		if err := r.useLabValues(tasks); err != nil {
			t.Fatal(err)
		}
		r.progress.close()
		if text := out.String(); simulated.stored != (row.says == "") || !strings.Contains(text, row.says) || row.says == "" && strings.Contains(text, "again") {
			t.Errorf("%+v: stored %t: %s", row, simulated.stored, text)
		}
	}
}
