package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weir/bus/lease"
	"weir/bus/weirv1"
	"weir/law"
)

// pair is two controllers that share the buckets, and agents that report again and again.
type pair struct {
	k        *kit
	runners  []*Runner
	agents   []*Agent
	commands []chan obeyed
	stop     chan struct{}
}

var grantOfTests = []law.Grant{{Kind: law.RateGrant, Value: 1e8, Lease: time.Second}}

// answer commands each agent that reports, as a law would.
func answer(r *Runner, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-r.Control().Inbox().Telemetry():
		}
		for {
			agent, t, ok := r.Control().Inbox().Next()
			if !ok {
				break
			}
			r.Saw(agent)
			_ = r.Command(agent, t.GetOrigin(), grantOfTests) // refused if the other controller holds the bucket
		}
	}
}

func newPair(k *kit, replicas, agents int, urls ...string) *pair {
	p := &pair{k: k, stop: make(chan struct{})}
	for i := range 2 {
		r := k.runner(k.enrol(fmt.Sprint("controller/c", i+1)), false, replicas, urls...)
		p.runners = append(p.runners, r)
		go answer(r, p.stop)
	}
	for i := range agents {
		a, c := k.agent(k.enrol(fmt.Sprint("agent/sw", i)), urls...)
		p.agents, p.commands = append(p.agents, a), append(p.commands, c)
		go p.report(a)
	}
	k.t.Cleanup(func() { close(p.stop) })
	return p
}

// report sends telemetry every 10 ms, and the agent's state every 100 ms.
func (p *pair) report(a *Agent) {
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for n := uint64(1); ; n++ {
		select {
		case <-p.stop:
			return
		case <-every.C:
		}
		_ = a.SendTelemetry(telemetryOf(n)) // without a connection it is lost
		if n%10 == 0 {
			_ = a.SendEvents(&weirv1.Events{Switch: 1, State: a.State("test")})
		}
	}
}

// held returns how many buckets each controller holds.
func (p *pair) held() (counts [2]int) {
	for i, r := range p.runners {
		if r == nil {
			continue
		}
		r.mu.Lock()
		for _, term := range r.commands.terms {
			if term > 0 {
				counts[i]++
			}
		}
		r.mu.Unlock()
	}
	return counts
}

// takeOver kills the controller that an agent obeys, and returns how long it takes until the other one is obeyed.
func (p *pair) takeOver(agent int) time.Duration {
	p.k.t.Helper()
	for len(p.commands[agent]) > 0 {
		<-p.commands[agent]
	}
	first := <-p.commands[agent]
	for i, r := range p.runners {
		if r != nil && r.self.Name == first.command.GetController().GetName() {
			p.runners[i] = nil
			r.control.conn.nc.Close() // as a kill -9: the socket ends, and nothing is sent
			killed := time.Now()
			p.k.t.Cleanup(r.Close)
			for {
				c := <-p.commands[agent]
				if c.command.GetController().GetName() != first.command.GetController().GetName() {
					if c.command.GetTerm() <= first.command.GetTerm() {
						p.k.t.Errorf("term %d after %d", c.command.GetTerm(), first.command.GetTerm())
					}
					return c.at.Sub(killed)
				}
			}
		}
	}
	p.k.t.Fatal("no controller is obeyed")
	return 0
}

// Two controllers share the buckets. When one dies, the other commands its agents, with higher terms.
func TestRunner_TakesOver(t *testing.T) {
	k := newKit(t)
	p := newPair(k, 0, 6, k.server(nil).URL())
	until(t, "owner of each bucket", func() bool { c := p.held(); return c[0]+c[1] == 4 })
	took := p.takeOver(0)
	t.Logf("the other controller is obeyed %v after the kill (busy machine)", took)
	if took < lease.Silence-lease.HeartbeatEvery-50*time.Millisecond {
		t.Errorf("it took over after %v: the holder may have lived", took)
	}
	until(t, "owner of each bucket", func() bool { c := p.held(); return c[0]+c[1] == 4 })
	for i, a := range p.agents {
		for len(p.commands[i]) > 0 {
			<-p.commands[i]
		}
		c := <-p.commands[i]
		if seen := a.State("").GetTerms()[0]; seen.GetTerm() != c.command.GetTerm() {
			t.Errorf("agent %d reports term %d and obeys %d", i, seen.GetTerm(), c.command.GetTerm())
		}
	}
}

// The commands of a controller that was believed dead are refused, and it steps down.
func TestRunner_FencesTheOldHolder(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	p := newPair(k, 0, 1, url)
	first := <-p.commands[0]
	// A third controller with the right credentials announces a higher term, without the lease.
	intruder, err := NewControl(ControlConfig{
		Client: k.client(k.enrol("controller/c3"), url), Events: func(string, *weirv1.Events) {}, Heartbeat: func(*weirv1.Heartbeat) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer intruder.Close()
	until(t, "connection", intruder.conn.Connected)
	higher := first.command.GetTerm() + 5
	c := &weirv1.Command{Bucket: first.command.GetBucket(), Term: higher, Controller: &weirv1.Controller{Name: "c3", Run: 1}, Sequence: 1}
	if err := intruder.Command("sw0", c); err != nil {
		t.Fatal(err)
	}
	until(t, "the higher term at the agent", func() bool { return p.agents[0].State("").GetTerms()[0].GetTerm() >= higher })
	// The agent reports the term, and the holder raises its own above it. It may do so before its next command is refused.
	for {
		c := <-p.commands[0]
		if c.command.GetTerm() > higher {
			break
		}
	}
	// A lower term of anybody, and the same term of another, are refused.
	before := p.agents[0].Counts()["stale_term"]
	c.Sequence = 1000
	if err := intruder.Command("sw0", c); err != nil {
		t.Fatal(err)
	}
	until(t, "refusal of the intruder", func() bool { return p.agents[0].Counts()["stale_term"] > before })
}

// A controller that is alone takes over and commands without the store. After a restart its terms are higher.
func TestRunner_AloneNeedsNoStore(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	if err := s.nats.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	url := s.URL()
	r := k.runner(k.enrol("controller/c1"), true, 0, url)
	stop := make(chan struct{})
	defer close(stop)
	go answer(r, stop)
	a, commands := k.agent(k.enrol("agent/sw0"), url)
	p := &pair{k: k, stop: stop}
	go p.report(a)
	first := <-commands
	r.Close()
	// It restarts with its file lost: the agents know the term.
	again := k.runner(k.enrol("controller/c1"), true, 0, url)
	defer again.Close()
	go answer(again, stop)
	for {
		c := <-commands
		if c.command.GetController().GetRun() != first.command.GetController().GetRun() {
			if c.command.GetTerm() <= first.command.GetTerm() {
				t.Errorf("term %d after %d", c.command.GetTerm(), first.command.GetTerm())
			}
			break
		}
	}
}

// Two buckets are taken over in one step, the one with the lower term last. The file has the higher term, and is written once.
func TestRunner_StoresTheHighestTerm(t *testing.T) {
	file := TermFile{filepath.Join(t.TempDir(), "generation")}
	r := &Runner{cfg: RunnerConfig{Term: file}}
	r.carryOut(t.Context(), []lease.Order{lease.Store{Bucket: 0, Term: 21}})
	before, err := os.Stat(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	orders := []lease.Order{lease.Store{Bucket: 2, Term: 21}, lease.Store{Bucket: 1, Term: 8}}
	if answers := r.carryOut(t.Context(), orders); !slices.Equal(answers, []lease.Event{lease.Stored{Bucket: 2, Term: 21}, lease.Stored{Bucket: 1, Term: 8}}) {
		t.Errorf("the answers are %v", answers)
	}
	if s, err := file.Load(); err != nil || s.Term != 21 {
		t.Errorf("the file has %v, %v, want term 21", s, err)
	}
	if after, err := os.Stat(file.Path); err != nil || !after.ModTime().Equal(before.ModTime()) { // inodes are used again
		t.Errorf("the file is written again: %v", err)
	}
	r.carryOut(t.Context(), []lease.Order{lease.Store{Bucket: 1, Term: 22}})
	if s, err := file.Load(); err != nil || s.Term != 22 {
		t.Errorf("the file has %v, %v, want term 22", s, err)
	}
}

func TestTermFile(t *testing.T) {
	f := TermFile{filepath.Join(t.TempDir(), "term")}
	if s, err := f.Load(); err != nil || s != (lease.Seen{}) {
		t.Errorf("no file: %v, %v", s, err)
	}
	want := lease.Seen{Term: 7, Holder: lease.Holder{Name: "c1", Run: 1<<64 - 1}}
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Load(); err != nil || s != want {
		t.Errorf("%v, %v, want %v", s, err, want)
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(f.Path, []byte(`{"Term":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil {
		t.Error("half a file is read")
	}
	if err := (TermFile{filepath.Join(t.TempDir(), "none", "term")}).Save(want); err == nil {
		t.Error("saved in a directory that does not exist")
	}
}
