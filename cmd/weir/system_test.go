package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/bus"
	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/cmd/weir/laws"
	"weir/controller"
	"weir/datapath/testnet"
	"weir/law"
)

// system is a controller with a bus, and agents that a test plays.
type system struct {
	t    *testing.T
	ca   *pki.CA
	dir  string
	url  string
	keys string // of an operator
	stop func()
}

func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{t: t, dir: t.TempDir()}
	s.ca = &pki.CA{Dir: filepath.Join(s.dir, "ca")}
	if err := s.ca.Create(); err != nil {
		t.Fatal(err)
	}
	address := testnet.FreeAddress(t)
	s.url, s.keys = "tls://"+address, s.enrol("operator/op")
	file := filepath.Join(s.dir, "c.yaml")
	text := fmt.Sprintf("kind: Controller\nname: system%d\nlisten: 127.0.0.1:0\nmetrics: {listen: \"\"}\ngeneration: %s/generation\nbus: {listen: %q, server_keys: %q, keys: %q, buckets: 4}\nlaws: {sicc: {on_fraction: 0.01, off_rule: or}}\n",
		os.Getpid(), s.dir, address, s.enrol("bus/b1"), s.enrol("controller/c1"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := controller.Load(file, laws.All().Specs())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Ready, cfg.Version = func(net.Addr) { close(ready) }, "test"
	go func() { ended <- controller.Run(ctx, cfg) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *system) enrol(id string) string {
	s.t.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		s.t.Fatal(err)
	}
	var addresses []string
	if who.Role == pki.Bus {
		addresses = []string{"127.0.0.1"}
	}
	out := filepath.Join(s.dir, strings.ReplaceAll(id, "/", "-"))
	if _, err := s.ca.Enrol(who, out, addresses, 0); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// agent plays an agent. It carries out grants in no time, and answers operators as an agent does.
type agent struct {
	*bus.Agent
	mu     sync.Mutex
	obeyed []agentd.Obeyed
	brief  agentd.Brief
}

func (s *system) agent(name string, brief agentd.Brief) *agent {
	s.t.Helper()
	begun := time.Now()
	clock := func() time.Duration { return time.Since(begun) + time.Minute }
	a := &agent{brief: brief}
	var err error
	dir := s.enrol("agent/" + name)
	a.Agent, err = bus.NewAgent(bus.AgentConfig{
		Client: bus.ClientConfig{URLs: []string{s.url}, Files: pki.In(dir, name)}, Buckets: 4, Terms: bus.TermFile{Path: filepath.Join(dir, "term")}, Clock: clock,
		Obey: func(c *weirv1.Command, g []law.Grant) {
			a.mu.Lock()
			defer a.mu.Unlock()
			now := clock()
			a.obeyed = append(a.obeyed, agentd.Obeyed{
				Controller: c.GetController().GetName(), Run: c.GetController().GetRun(), Cause: g[0].Cause, Grants: len(g), EchoNs: time.Duration(c.GetEchoNs()),
				CameNs: now, SetNs: now + 50*time.Microsecond, Watched: g[0].Key.VM, UnseenNs: now + time.Millisecond, SeenNs: now + 2*time.Millisecond,
			})
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(a.Close)
	if err := a.Conn().Answer(func(q *bus.Question) (any, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if q.What == bus.AskTrace {
			return a.obeyed, nil
		}
		a.brief.Name = name
		return a.brief, nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// run runs a command of an operator.
func (s *system) run(args ...string) (code int, out, complaints string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(s.t.Context(), append(args, "--bus", s.url, "--keys", s.keys), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// until runs the command until its output is as wanted.
func (s *system) until(what string, ok func(code int, out string) bool, args ...string) (out string) {
	s.t.Helper()
	code, complaints := 0, ""
	for end := time.Now().Add(60 * time.Second); ; {
		if code, out, complaints = s.run(args...); ok(code, out) {
			return out
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within a minute: exit code %d\n%s%s", what, code, out, complaints)
		}
	}
}

// send reports. Without a connection the report is lost, as an agent's is.
func (a *agent) send(e *weirv1.Events) {
	e.State = a.State("1.4")
	_ = a.SendEvents(e)
}

// An operator sees the whole system, and each decision from the report to the limited packet. A part that does not work is first, and
// the exit code says so.
func TestSystem(t *testing.T) {
	s := newSystem(t)
	sw := s.agent("tor1", agentd.Brief{Version: "1.4", Roles: []string{"switch"}, Ports: 1})
	h := s.agent("h1", agentd.Brief{Version: "1.4", Roles: []string{"host"}, VMs: 1, Live: 1})
	ports, err := (&weirv1.Inventory{Serial: 1, Ports: []*weirv1.SwitchPort{{Port: 3, Name: "swp3", Rate: 1e9, BufferBytes: 85300}}}).Split()
	if err != nil {
		t.Fatal(err)
	}
	guests, err := (&weirv1.Inventory{Serial: 1, Guests: []*weirv1.Guest{{Vm: 12, Name: "web1", Addresses: []*weirv1.Range{{Address: []byte{10, 0, 0, 1}, Bits: 32}}}}}).Split()
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() { // reports of 24 new flows, again and again
		defer close(ended)
		every := time.NewTicker(50 * time.Millisecond)
		defer every.Stop()
		for n := uint64(1); ; n++ {
			select {
			case <-stop:
				return
			case <-every.C:
			}
			h.send(&weirv1.Events{Host: 7, Inventory: guests[0]})
			sw.send(&weirv1.Events{Switch: 1, Inventory: ports[0], Arrivals: []*weirv1.Arrivals{{Port: 3, Syn: 24 * n,
				Pairs: []*weirv1.NewPair{{Source: []byte{10, 0, 0, 1}, Destination: []byte{10, 0, 0, 9}, Kinds: 1}}}}})
			_ = sw.SendTelemetry(&weirv1.Telemetry{Switch: 1, IntervalNs: 1e6, Ports: []*weirv1.PortReport{{Port: 3, BacklogBytes: 1000 * n}}})
		}
	}()
	out := s.until("all is well", func(code int, out string) bool { return code == 0 && strings.Contains(out, "h1 ") }, "status")
	t.Logf("\n%s", out)
	for _, part := range []string{"all is well\n", "c1          test     ", "4 buckets", "sicc", "h1     1.4      host", "tor1   1.4      switch"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	out = s.until("a decision", func(_ int, out string) bool {
		return strings.Contains(out, "was limited") && strings.Contains(out, "flows began")
	}, "trace", "--last", "3")
	t.Logf("\n%s", out)
	for _, part := range []string{
		"why: port 3: incast: 24 flows began, so ", "B are predicted in a buffer of 85300 B", "grant: window 1 for VM 12 and 10.0.0.9, lease 1s", "tor1  +0s",
		"the report arrives", "for h1: sent (term ", "on the bus, there and back", "+50µs", "an ACK of VM 12 was limited; none at +1ms", "Clocks of machines are not compared",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
	// It asks the agents over the bus, and reports those that a slow machine keeps from answering in time.
	out = s.until("decisions as JSON", func(code int, _ string) bool { return code == 0 }, "trace", "--vm", "h1/web1", "--json", "--last", "2")
	var chains []chain
	if err := json.Unmarshal([]byte(out), &chains); err != nil || len(chains) != 2 || len(chains[0].Hosts) != 1 || chains[0].Hosts[0].Agent != "h1" ||
		chains[0].Hosts[0].Cause != chains[0].Serial {
		t.Errorf("%v\n%s", err, out)
	}
	if code, _, complaints := s.run("trace", "--vm", "web2"); code != exitUsage || !strings.Contains(complaints, "no agent has reported a VM of this name") {
		t.Errorf("%d, %q", code, complaints)
	}
	h.mu.Lock()
	h.brief.Problems = []string{"VM tap0: there is no device tap0: waiting for it"}
	h.mu.Unlock()
	out = s.until("a problem", func(code int, _ string) bool { return code == exitError }, "status")
	if !strings.HasPrefix(out, "1 wrong\n") || strings.Index(out, "h1 ") > strings.Index(out, "tor1 ") || !strings.Contains(out, "wrong: VM tap0: there is no device tap0") {
		t.Errorf("\n%s", out)
	}
	s.stop()
	if code, out, complaints := s.run("status"); code != exitError {
		t.Errorf("without a controller and a bus: %d\n%s%s", code, out, complaints)
	}
}

// An agent that reports is not forgotten. One that ended is no target of policies any more, and one that returns is again.
func TestSystem_Forget(t *testing.T) {
	s := newSystem(t)
	guests, err := (&weirv1.Inventory{Serial: 1, Guests: []*weirv1.Guest{{Vm: 12, Name: "web1", Addresses: []*weirv1.Range{{Address: []byte{10, 0, 0, 1}, Bits: 32}}}}}).Split()
	if err != nil {
		t.Fatal(err)
	}
	h := s.agent("h1", agentd.Brief{Version: "1.4", Roles: []string{"host"}, VMs: 1})
	reports := func() (end func()) {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for every := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-stop:
					return
				case <-every.C:
					h.send(&weirv1.Events{Host: 7, Inventory: guests[0]})
				}
			}
		}()
		return sync.OnceFunc(func() { close(stop); <-ended })
	}
	end := reports()
	defer end()
	s.until("the VM is in the inventory", func(code int, _ string) bool { return code == 0 }, "policy", "explain", "web1")
	if code, out, complaints := s.run("policy", "forget", "h1"); code != exitError || out != "" || !strings.Contains(complaints, "controller c1 heard the agent h1 ") || !strings.Contains(complaints, "nothing was removed") {
		t.Errorf("while it reports: %d\n%s%s", code, out, complaints)
	}
	if code, out, complaints := s.run("policy", "forget", "h2"); code != exitUsage || !strings.Contains(complaints, `no agent "h2" is in the inventory; allowed: h1`) {
		t.Errorf("another agent: %d\n%s%s", code, out, complaints)
	}
	end()
	if code, out, complaints := s.run("policy", "forget", "h1", "--dry-run"); code != 0 || out != "dry run: would remove the agent h1: 1 VMs, 0 ports\n" {
		t.Errorf("dry run: %d\n%s%s", code, out, complaints)
	}
	if code, out, complaints := s.run("policy", "explain", "web1"); code != 0 {
		t.Errorf("after a dry run: %d\n%s%s", code, out, complaints)
	}
	out := s.until("it is removed", func(code int, _ string) bool { return code == 0 }, "policy", "forget", "h1", "--json")
	var got forgotten
	if err := json.Unmarshal([]byte(out), &got); err != nil || got != (forgotten{Agent: "h1", Host: true, VMs: 1}) {
		t.Errorf("%v\n%s", err, out)
	}
	if code, out, complaints := s.run("policy", "explain", "web1"); code == 0 {
		t.Errorf("a removed VM is a target: %d\n%s%s", code, out, complaints)
	}
	defer reports()()
	s.until("the VM is in the inventory again", func(code int, _ string) bool { return code == 0 }, "policy", "explain", "web1")
}
