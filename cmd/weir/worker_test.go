package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"weir/bus/pki"
	"weir/experiment"
	"weir/experiment/store"
	"weir/internal/testroot"
)

// otherBuild is weir with another source of the simulator.
func otherBuild() {
	version = "v0.0.9"
	dependsOn[experiment.WorldSim] = append(dependsOn[experiment.WorldSim], sources{"other", fstest.MapFS{"a.go": {Data: []byte("another law")}}})
	main()
}

// farm is a bus with the keys of two workers and an operator.
type farm struct {
	t   *testing.T
	dir string
	url string
}

func newFarm(t *testing.T) *farm {
	t.Helper()
	f := &farm{t: t, dir: t.TempDir()}
	ca := &pki.CA{Dir: filepath.Join(f.dir, "ca")}
	if err := ca.Create(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []pki.Identity{{Role: pki.Bus, Name: "b1"}, {Role: pki.Worker, Name: "w1"}, {Role: pki.Worker, Name: "w2"}, {Role: pki.Operator, Name: "ann"}} {
		var addresses []string
		if id.Role == pki.Bus {
			addresses = []string{"127.0.0.1"}
		}
		if _, err := ca.Enrol(id, f.keys(id.Name), addresses, 0); err != nil {
			t.Fatal(err)
		}
	}
	server := f.start("weir", "bus", "serve", "--listen", "127.0.0.1:0", "--keys", f.keys("b1"), "--store", filepath.Join(f.dir, "store"))
	server.says(" store=")
	f.url = regexp.MustCompile(`tls://127\.0\.0\.1:\d+`).FindString(server.said())
	return f
}

func (f *farm) keys(name string) string { return filepath.Join(f.dir, name) }

// command is a running command. Its output can be waited for.
type command struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // closed when there is more output, or the end
	done bool
	err  error
}

func (p *command) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	return p.text.Write(b)
}

func (p *command) wake() {
	close(p.news)
	p.news = make(chan struct{})
}

// start starts a command, and ends it with the test.
func (f *farm) start(name string, args ...string) *command {
	f.t.Helper()
	p := &command{t: f.t, cmd: exec.Command(name, args...), news: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = f.dir, p, p
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done, p.err = true, err
		p.wake()
	}()
	f.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait("its end", func(string, bool) bool { return p.done })
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", strings.Join(p.cmd.Args, " "), p.said())
		}
	})
	return p
}

func (f *farm) worker(command, name string, more ...string) *command {
	f.t.Helper()
	return f.start(command, append([]string{"worker", "--bus", f.url, "--keys", f.keys(name), "--jobs", "1"}, more...)...)
}

// wait waits until the output fulfils a condition. The limit is for a test that hangs.
func (p *command) wait(what string, ok func(said string, done bool) bool) {
	p.t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		p.mu.Lock()
		news, fulfilled := p.news, ok(p.text.String(), p.done)
		p.mu.Unlock()
		if fulfilled {
			return
		}
		select {
		case <-news:
		case <-limit.Done():
			p.t.Errorf("no %s within 3 minutes", what)
			p.t.FailNow()
		}
	}
}

// says waits for a text in the output, which the process must write before it ends.
func (p *command) says(text string) {
	p.t.Helper()
	p.wait(text, func(said string, done bool) bool { return strings.Contains(said, text) || done })
	if !strings.Contains(p.said(), text) {
		p.t.Fatalf("it ended without %q", text)
	}
}

func (p *command) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// ends waits for the end, and returns the exit code.
func (p *command) ends() int {
	p.t.Helper()
	p.wait("end", func(_ string, done bool) bool { return done })
	return p.cmd.ProcessState.ExitCode()
}

const farmed = `id: farmed
duration: 4s
seeds: [1, 2, 3]
topology: {kind: dumbbell, senders: 8, receivers: 1, hypervisors: false}
network: {rate: 300Mbit, rtt: 200us, buffer: 250KB}
traffic:
  - {name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 4s}
  - {name: mice, from: "sender*", to: receiver1, data: pull, pattern: burst, size: 5KB, start: 100ms, every: 200ms, epochs: 3}
schemes: [{name: droptail}, {name: fairq}]
measure: {ports: {bottleneck: "switch->receiver1"}, windows: {late: [1s, 4s]}}
figures: [{name: fig1, bars: [all.drops]}]
claims: ["droptail.mice.flows == 24"]
`

func (f *farm) tree() string {
	f.t.Helper()
	dir := filepath.Join(f.dir, "tree")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		f.t.Fatal(err)
	}
	for _, id := range []string{"farmed", "second"} {
		text := strings.Replace(farmed, "id: farmed", "id: "+id, 1)
		if err := os.WriteFile(filepath.Join(dir, id+".yaml"), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	return dir
}

// Two workers carry out the experiments of a tree, and one of them is killed during a run. The results are those of this machine alone,
// byte by byte: only when each run ended and how long it took are set to zero before the comparison, and the reports made again.
func TestFiguresOnWorkers_OneKilled(t *testing.T) {
	f := newFarm(t)
	tree := f.tree()
	if code := f.start("weir", "figures", "--experiments", tree, "--out", "alone").ends(); code != 0 {
		t.Fatalf("alone: exit code %d", code)
	}
	w1, w2 := f.worker("weir", "w1"), f.worker("weir", "w2")
	many := f.start("weir", "figures", "--experiments", tree, "--out", "many", "--on", f.url, "--keys", f.keys("ann"))
	w1.says("a run begins")
	if err := w1.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w1.ends()
	if begun, finished := strings.Count(w1.said(), "a run begins"), strings.Count(w1.said(), "a run is finished"); begun != finished+1 {
		t.Fatalf("w1 began %d runs and finished %d: it was not killed at work", begun, finished)
	}
	killed := time.Now()
	w2.says("try=2")
	if d := time.Since(killed); d > 50*time.Second {
		t.Errorf("the run of the killed worker began again after %v", d)
	}
	if code := many.ends(); code != 0 {
		t.Fatalf("on workers: exit code %d", code)
	}
	if strings.Contains(many.said(), "sent again") {
		t.Error("a task was lost, and sent again a minute later")
	}
	for _, id := range []string{"farmed", "second"} {
		alone, by := f.withoutTimes("alone", id), f.withoutTimes("many", id)
		sameTree(t, alone, by)
		for _, sub := range []string{"figures", "flows.parquet", "series.parquet"} { // as they were written
			sameTree(t, filepath.Join(f.dir, "alone", id, sub), filepath.Join(f.dir, "many", id, sub))
		}
	}
}

// withoutTimes copies the stored runs of an experiment without their times, makes the report again, and returns its directory.
func (f *farm) withoutTimes(out, id string) string {
	f.t.Helper()
	from, to := filepath.Join(f.dir, out, id), filepath.Join(f.t.TempDir(), id)
	in, d := store.Read(from), (*store.Dir)(nil)
	asked, err := in.Asked()
	if err == nil {
		d, _, err = store.Open(to)
	}
	if err == nil {
		err = d.Ask(asked)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	runs, err := filepath.Glob(filepath.Join(from, "runs", "*.run"))
	if err != nil || len(runs) != 6 {
		f.t.Fatalf("%s has %d runs (%v), want 6", out, len(runs), err)
	}
	for _, run := range runs {
		key := strings.TrimSuffix(filepath.Base(run), ".run")
		e, err := in.Load(key)
		if err != nil {
			f.t.Fatal(err)
		}
		if e.Ended.IsZero() || e.Took <= 0 {
			f.t.Errorf("%s: ended %v, took %v", key, e.Ended, e.Took)
		}
		e.Ended, e.Took = time.Time{}, 0
		if err := d.Save(key, e); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		f.t.Fatal(err)
	}
	if code := f.start("weir", "figures", to).ends(); code != 0 {
		f.t.Fatalf("figures of %s: exit code %d", out, code)
	}
	return to
}

// sameTree compares all files of two directories, or two files.
func sameTree(t *testing.T, one, other string) {
	t.Helper()
	files := func(root string) map[string]string {
		out := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			out[strings.TrimPrefix(path, root)] = string(text)
			return err
		})
		if err != nil || len(out) == 0 {
			t.Fatalf("%s has %d files (%v)", root, len(out), err)
		}
		return out
	}
	a, b := files(one), files(other)
	for name, text := range a {
		if b[name] != text {
			t.Errorf("%s of %s and %s differ: %d and %d bytes", name, one, other, len(text), len(b[name]))
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d files and %d", len(a), len(b))
	}
}

// A worker of another build gets no run, and both sides say what to do. Runs in the lab need a worker with --lab.
func TestRunOnWorkers_OthersAreRefused(t *testing.T) {
	f := newFarm(t)
	file := filepath.Join(f.tree(), "farmed.yaml")
	other := f.worker("weir-other", "w1")
	args := []string{"run", file, "--on", f.url, "--keys", f.keys("ann"), "--seed", "1", "--scheme", "droptail", "--world"}
	simulated := f.start("weir", append(slices.Clone(args), "sim")...)
	simulated.says("no worker of this build answers; start 'weir worker --bus " + f.url + "'; waiting for one")
	if said := simulated.said(); !strings.Contains(said, "worker w1 is of another build (weir v0.0.9), so it gets no runs of this one") {
		t.Errorf("it says %q", said)
	}
	other.says("a job is of another build, so this worker gets none of its runs: install the same build here")
	f.worker("weir", "w2")
	if code := simulated.ends(); code != 0 || !strings.Contains(simulated.said(), "runs by worker: w2 1\n") {
		t.Errorf("exit code %d, %s", code, simulated.said())
	}
	if strings.Contains(other.said(), "a run begins") {
		t.Error("the other build ran it")
	}
	lab := f.start("weir", append(args, "lab")...)
	lab.says("start 'weir worker --bus " + f.url + " --lab'; waiting for one")
	if said := lab.said(); !strings.Contains(said, "worker w2 does not run the lab: start it with --lab") {
		t.Errorf("it says %q", said)
	}
	if err := lab.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := lab.ends(); code != exitError || !strings.Contains(lab.said(), "stopped") {
		t.Errorf("exit code %d", code)
	}
}

// A worker with --lab carries out a run in the lab.
func TestRunOnWorkers_Lab(t *testing.T) {
	testroot.Need(t, "namespaces and kernel programs")
	f := newFarm(t)
	file := filepath.Join(f.tree(), "farmed.yaml")
	f.worker("weir", "w1", "--lab")
	run := f.start("weir", "run", file, "--on", f.url, "--keys", f.keys("ann"), "--seed", "1", "--scheme", "fairq", "--world", "lab",
		"--set", "duration=1s", "--set", "traffic.long.stop=1s", "--set", "network.rate=50Mbit", "--set", "measure.windows.late=[500ms, 1s]", "--out", "lab")
	if code := run.ends(); code != 0 || !strings.Contains(run.said(), "runs by worker: w1 1\n") {
		t.Fatalf("exit code %d", code)
	}
	runs, err := filepath.Glob(filepath.Join(f.dir, "lab", "runs", "*.run"))
	if err != nil || len(runs) != 1 {
		t.Errorf("%d stored runs (%v), want 1", len(runs), err)
	}
}

// Options without an effect on workers, and missing keys, are refused before anything is sent.
func TestRunOnWorkers_Usage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "farmed.yaml")
	if err := os.WriteFile(file, []byte(farmed), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		says string
	}{
		{[]string{"worker"}, "worker needs --bus URL"},
		{[]string{"worker", "--bus", "tls://127.0.0.1:1", "--jobs", "0"}, "--jobs 0 is out of range"},
		{[]string{"worker", "--bus", "tls://127.0.0.1:1", "--keys", dir}, dir + " has 0 certificates of its own, want one: enrol this machine (weir bus enrol), or give its name"},
		{[]string{"bus", "serve"}, "serve needs --listen ADDRESS:PORT"},
		{[]string{"run", file, "--on", "tls://127.0.0.1:1", "--world", "sim", "--out", dir, "--trace"}, "--on excludes --pcap, --trace, --record and --without-measuring"},
		{[]string{"run", file, "--on", "tls://127.0.0.1:1", "--world", "sim", "--out", dir, "--record"}, "--on excludes --pcap, --trace, --record and"},
		{[]string{"run", file, "--on", "tls://127.0.0.1:1", "--world", "lab,sim"}, "--on takes one world"},
		{[]string{"run", file, "--on", "tls://127.0.0.1:1", "--world", "sim", "--keys", dir}, "want one: enrol this machine (weir bus enrol)"},
		{[]string{"figures", dir, "--on", "tls://127.0.0.1:1"}, "--on has no effect on the finished runs of DIR"},
	} {
		var said bytes.Buffer
		if code := run(t.Context(), row.args, &said, &said); code != exitUsage || !strings.Contains(said.String(), row.says) {
			t.Errorf("weir %s: exit code %d, %q; want %q", strings.Join(row.args, " "), code, said.String(), row.says)
		}
	}
}
