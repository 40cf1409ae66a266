package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
)

const threeRuns = `id: three
duration: 10s
seeds: [1, 2, 3]
worlds: [lab]
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 50Mbit, rtt: 200us, buffer: 60KB}
traffic: [{name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 1s}]
schemes: [{name: droptail}, {name: fairq}]
`

// fakeWorld counts its runs, and stops or fails at one of them.
type fakeWorld struct {
	ran    []string
	failAt string
	stop   context.CancelFunc // called at failAt, instead of failing
}

func (w *fakeWorld) Name() string                { return "lab" }
func (w *fakeWorld) Check(*experiment.Run) error { return nil }

func (w *fakeWorld) Run(_ context.Context, r *experiment.Run, p experiment.Progress) (*result.Raw, error) {
	p.Phase("running")
	name := fmt.Sprintf("%s %d", r.Scheme, r.Seed)
	w.ran = append(w.ran, name)
	raw := &result.Raw{Duration: time.Second, Bin: 10 * time.Millisecond, Flows: []result.Flow{
		{Group: "long", Start: 0, End: time.Second, Done: true, Endless: true, Bytes: 1000 * r.Seed, Timeouts: -1},
	}}
	if name == w.failAt {
		if w.stop == nil {
			return nil, errors.New("the world broke")
		}
		w.stop()
		raw.Partial = true
	}
	return raw, nil
}

func runThree(t *testing.T, dir string, w *fakeWorld, resume resuming, file string) ([]*result.Run, error) {
	t.Helper()
	return runThreeWith(t, dir, w, resume, file, oneCode, io.Discard)
}

// runThreeWith is runThree for a build with other sources; it returns the output, too.
func runThreeWith(t *testing.T, dir string, w *fakeWorld, resume resuming, file string, code func(string) (string, error), said io.Writer) ([]*result.Run, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if w.stop != nil {
		w.stop = cancel
	}
	asked := &store.Asked{Name: "three.yaml", File: file}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	d, err := openStore(dir, asked, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := &runner{plan: plan, worlds: map[string]experiment.World{"lab": w}, store: d, resume: resume, code: code, progress: newProgress(said, plan.Runs), processors: newProcessors()}
	return r.run(ctx)
}

// oneCode is a build whose sources never change.
func oneCode(string) (string, error) { return "c", nil }

func bytesOf(runs []*result.Run) []int64 {
	var out []int64
	for _, r := range runs {
		out = append(out, r.Groups["long"].Bytes)
	}
	return out
}

// A finished run is not repeated; a failed or interrupted one is. A change of the file repeats the runs that it
// affects.
func TestRunner_Resumes(t *testing.T) {
	for name, broken := range map[string]*fakeWorld{
		"fails":  {failAt: "fairq 2"},
		"stops":  {failAt: "fairq 2", stop: func() {}},
		"at end": {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			runs, err := runThree(t, dir, broken, resumeSame, threeRuns)
			all := []string{"droptail 1", "fairq 1", "droptail 2", "fairq 2", "droptail 3", "fairq 3"}
			todo := all[3:]
			if broken.failAt == "" {
				todo = nil
			} else if err == nil || len(runs) < 3 || !strings.Contains(err.Error(), "fairq seed 2") {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			if want := all[:len(all)-max(0, len(todo)-1)]; !slices.Equal(broken.ran, want) {
				t.Errorf("first it ran %q, want %q: seed by seed", broken.ran, want)
			}
			again := &fakeWorld{}
			runs, err = runThree(t, dir, again, resumeSame, threeRuns)
			if err != nil || !slices.Equal(again.ran, todo) {
				t.Errorf("then it ran %q (%v), want %q", again.ran, err, todo)
			}
			if got, want := bytesOf(runs), []int64{1000, 2000, 3000, 1000, 2000, 3000}; !slices.Equal(got, want) {
				t.Errorf("the results are %v, want %v: in the order of the plan", got, want)
			}
			changed := &fakeWorld{}
			file := strings.Replace(threeRuns, "{name: fairq}", "{name: fairq, params: {target_fraction: 0.4}}", 1)
			if _, err := runThree(t, dir, changed, resumeSame, file); err != nil || !slices.Equal(changed.ran, []string{"fairq 1", "fairq 2", "fairq 3"}) {
				t.Errorf("after a change of fairq it ran %q (%v)", changed.ran, err)
			}
			anew := &fakeWorld{}
			if _, err := runThree(t, dir, anew, resumeNothing, threeRuns); err != nil || len(anew.ran) != 6 {
				t.Errorf("without --resume it ran %q (%v), want all", anew.ran, err)
			}
		})
	}
}

// The remaining time is estimated from finished runs: the time of the same run with another seed, or a time in
// proportion to the longest duration.
func TestEstimate(t *testing.T) {
	asked := &store.Asked{Name: "three.yaml", File: threeRuns}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	e := newEstimate(plan.Runs)
	if left, known := e.left(); known != isLongest || left != 6*15*time.Second {
		t.Errorf("%v, known %v; nothing is known but 10 s of traffic each, and 5 around it", left, known)
	}
	e.done(plan.Runs[0], 6*time.Second) // droptail, seed 1
	if left, known := e.left(); known != isMeasured || left != 5*6*time.Second {
		t.Errorf("%v, known %v; want 6 s for each of 5", left, known)
	}
	e.done(plan.Runs[3], 12*time.Second) // fairq, seed 1
	if left, _ := e.left(); left != 2*6*time.Second+2*12*time.Second {
		t.Errorf("%v; want twice 6 s and twice 12 s", left)
	}
	e.passed(plan.Runs[1], time.Second, 0.001)   // too early
	e.passed(plan.Runs[1], 10*time.Second, 0.25) // droptail, seed 2
	if left, _ := e.left(); left != 40*time.Second+6*time.Second+2*12*time.Second {
		t.Errorf("%v; want 40 s, 6 s and twice 12 s", left)
	}
	for d, want := range map[time.Duration]string{
		9 * time.Second: "9s", 300 * time.Second: "5m", 3*time.Hour + 5*time.Minute + time.Second: "3h05m", 119*time.Minute + 40*time.Second: "2h00m",
	} {
		if got := roughly(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestEstimate_Simulator: the simulator may be slower than its traffic, so the time left is known only after a part of a run.
func TestEstimate_Simulator(t *testing.T) {
	asked := &store.Asked{Name: "three.yaml", File: strings.Replace(threeRuns, "[lab]", "[sim]", 1)}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := newProgress(&b, plan.Runs)
	p.estimate.slots = func() int { return 2 }
	p.begins(6)
	if got := p.leftText(); got != "the time left is not known yet" {
		t.Errorf("before the first run: %q", got)
	}
	p.begin(plan.Runs[0], "")
	p.estimate.passed(plan.Runs[0], 30*time.Second, 0.1) // 300 s, where the longest duration is 15 s: twenty times
	if got := p.leftText(); got != "about 15m left" {
		t.Errorf("six runs of 5 minutes, two at a time: %q", got)
	}
	at := p.running[plan.Runs[0]]
	at.said = at.said.Add(-sayEvery)
	p.running[plan.Runs[0]] = at
	of := p.of(plan.Runs[0])
	of.At(2e9, 10e9, 3)
	of.At(3e9, 10e9, 4) // within the minute
	if got := b.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "\nrun 1 of 6: sim droptail seed 1: [====                ] 2 of 10 s, 3 flows done (") {
		t.Errorf("%q", got)
	}
}

func TestProgress_SaysWhatIsLeft(t *testing.T) {
	asked := &store.Asked{Name: "three.yaml", File: threeRuns}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p := newProgress(&b, plan.Runs)
	p.kept(plan.Runs[0], 6*time.Second)
	p.begins(5)
	p.begin(plan.Runs[1], "")
	p.close()
	want := "1 of 6 runs are finished already\nrun 1 of 5: lab droptail seed 2 (at most 10s of traffic; about 30s left)\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
