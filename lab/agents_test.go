package lab

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/agent/agentd"
	"weir/datapath/testnet"
	"weir/experiment"
	"weir/experiment/result"
	"weir/internal/testroot"
	"weir/law"
	"weir/law/gcc"
	"weir/law/hygenicc"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// everybodyParams configures a law that grants every VM the same window, as soon as a switch has reported.
type everybodyParams struct {
	Window law.Bytes    `json:"window" jsonschema_description:"of every VM"`
	Every  law.Duration `json:"every" jsonschema_description:"T"`
}

type everybody struct {
	window   uint64
	vms      map[law.Host][]inventory.VM
	switches map[law.Switch]int // ports
	granted  time.Duration
}

func (l *everybody) Wake() time.Duration { return 0 }

func (l *everybody) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	switch e := e.(type) {
	case *inventory.Host:
		l.vms[e.At] = slices.Clone(e.VMs)
	case *inventory.Switch:
		l.switches[e.At] = len(e.Ports)
	case *telemetry.Telemetry:
		if l.switches[e.At] == 0 || l.granted > 0 && now-l.granted < 200*time.Millisecond {
			return out
		}
		l.granted = now
		for _, vms := range l.vms {
			for _, vm := range vms {
				out = append(out, law.Grant{Kind: law.WindowGrant, Key: law.Key{Pair: law.Pair{VM: vm.Number}}, Value: l.window, Lease: time.Second})
			}
		}
	}
	return out
}

func everybodySpec() law.Spec {
	return law.Spec{
		Name: "everybody", Sites: []law.Site{law.Controller}, Signals: []law.Signal{law.Backlog}, Params: func() any { return &everybodyParams{Every: 1e6} },
		Interval: func(p any) law.Duration { return p.(*everybodyParams).Every },
		New: func(_ law.Site, p any, _ *law.Topology) (law.Law, error) {
			return &everybody{window: uint64(p.(*everybodyParams).Window), vms: map[law.Host][]inventory.VM{}, switches: map[law.Switch]int{}}, nil
		},
	}
}

// childAgent runs an agent, as `weir agent --unpinned -f FILE` does.
func childAgent(file string) error {
	c, err := agentd.Load(file)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c.Options = agentd.Options{Unpinned: true, Specs: law.Specs{gcc.Spec(), hygenicc.Spec()}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	c.OneProcessor()
	return agentd.Run(ctx, c)
}

// upWithAgents builds a lab with a controller and agents for laws.
func upWithAgents(t testing.TB, suffix string, g *graphBuilder, agent []string) *Lab {
	t.Helper()
	testroot.Need(t, "namespaces")
	l, err := Up(t.Context(), testName(suffix), g.config(), Options{Owned: true, Controller: testController(t), Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func testAgent(tb testing.TB) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return []string{"env", "WEIR_TEST_CHILD=agent", self}
}

// The grants of a law at the lab's controller are on the wire: switches report to it, hypervisors carry them out. When the law
// has ended, none of its processes is left, and windows are as large as before.
func TestControlled_OnTheWire(t *testing.T) {
	const window = 20_000
	g := dumbbell(2, true)
	l := upWithAgents(t, "agents", g, testAgent(t))
	r := &experiment.Run{
		Scheme: "s", Config: *g.config(), Laws: []string{"everybody"}, At: []string{"switch"},
		Params: map[string]any{"everybody": everybodyParams{Window: window, Every: 1e6}},
	}
	works := Laws{"everybody": Controlled(everybodySpec())}
	if err := works.Check(r); err != nil {
		t.Fatal(err)
	}
	guest := testnet.NewTap(t, portOf(t, l, "sender1->sender1.hv"))
	largest := func(granted func(windows []uint32, unit uint32) bool) bool {
		ok := false
		err := dial(l, "sender1", "receiver1", 0, func(client, server *net.TCPConn) error {
			windows, err := sendLimited(t, guest, client, server, 200_000)
			if err == nil {
				ok = granted(windows, 1<<testnet.ReadTCPInfo(t, client).PeerScale)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	stop, err := l.Enforce(t.Context(), r, works)
	if err != nil {
		t.Fatal(err)
	}
	limited := func(windows []uint32, unit uint32) bool { return slices.Max(windows) <= window+unit }
	testnet.Until(t, "every window is at most the grant", func() bool { return largest(limited) })
	tally, err := l.laws[0].Tally()
	if err != nil || tally["grants"] == 0 {
		t.Errorf("tally %v, %v", tally, err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if largest(limited) {
		t.Error("windows are limited after the law has ended")
	}
	if left, err := executed(&l.claim.record); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(labsDir, l.claim.Name, agentsDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of the agents are left: %v", err)
	}
}

// A part of the control plane that is silent or has ended leaves the claims about the run undecided.
func TestControlled_BreaksDuringARun(t *testing.T) {
	g := dumbbell(1, true)
	l := upWithAgents(t, "agentdies", g, testAgent(t))
	r := &experiment.Run{Config: *g.config(), Laws: []string{"everybody"}, At: []string{"switch"}, Params: map[string]any{"everybody": everybodyParams{Window: 1, Every: 1e6}}}
	stop, err := l.Enforce(t.Context(), r, Laws{"everybody": Controlled(everybodySpec())})
	if err != nil {
		t.Fatal(err)
	}
	fatal := func(text string) bool {
		_, unmet := l.lawTotals()
		return slices.ContainsFunc(unmet, func(u result.Unmet) bool { return u.Severity == result.Fatal && strings.Contains(u.Text, text) })
	}
	agent := l.laws[0].Attached.(*controlled).agents[agentName(l.plan.byName["sender1.hv"])]
	if fatal("") {
		t.Error("it is broken from the start")
	}
	if err := agent.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "the agent that stopped is fatal", func() bool { return fatal("does not command [" + agentName(l.plan.byName["sender1.hv"])) })
	agent.kill(t)
	if !fatal("has ended: signal: killed") {
		_, unmet := l.lawTotals()
		t.Errorf("the agent has ended: %v", unmet)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An agent that cannot begin ends the run with the reason.
func TestControlled_AgentThatFails(t *testing.T) {
	g := dumbbell(1, true)
	script := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho cannot begin\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := upWithAgents(t, "agentno", g, []string{script})
	r := &experiment.Run{Config: *g.config(), Laws: []string{"everybody"}, At: []string{"switch"}, Params: map[string]any{"everybody": everybodyParams{Window: 1, Every: 1e6}}}
	_, err := l.Enforce(t.Context(), r, Laws{"everybody": Controlled(everybodySpec())})
	if err == nil || !strings.Contains(err.Error(), `has ended: exit status 3`) || !strings.Contains(err.Error(), `"cannot begin"`) {
		t.Errorf("%v", err)
	}
	if left, err := executed(&l.claim.record); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
}

// A process that was reaped is not signalled: its number may be that of another.
func TestEndProcess_Reaped(t *testing.T) {
	other := exec.Command("cat")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	if err := endProcess("agent", &process{Process: other.Process, ended: ended}); err != nil {
		t.Error(err)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := out.Read(make([]byte, 1)); n != 1 {
		t.Errorf("the other process has ended: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

// An interrupt ends the waiting for agents that never report.
func TestControlled_Interrupted(t *testing.T) {
	g := dumbbell(1, true)
	dir := t.TempDir()
	script, begun := filepath.Join(dir, "agent"), filepath.Join(dir, "begun")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+begun+"\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := upWithAgents(t, "agentstop", g, []string{script})
	r := &experiment.Run{Config: *g.config(), Laws: []string{"everybody"}, At: []string{"switch"}, Params: map[string]any{"everybody": everybodyParams{Window: 1, Every: 1e6}}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.Enforce(ctx, r, Laws{"everybody": Controlled(everybodySpec())})
		done <- err
	}()
	testnet.Until(t, "an agent has begun", func() bool { _, err := os.Stat(begun); return err == nil })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "does not command") {
		t.Errorf("%v, want an interrupt and no wait until agentsPatience", err)
	}
	if left, err := executed(&l.claim.record); err != nil || len(left) > 0 {
		t.Errorf("processes %v are left, %v", left, err)
	}
}

// A law of a controller needs hypervisors.
func TestControlled_NeedsHypervisors(t *testing.T) {
	r := &experiment.Run{Config: *dumbbell(1, false).config(), Laws: []string{"everybody"}, Params: map[string]any{"everybody": everybodyParams{}}}
	err := Laws{"everybody": Controlled(everybodySpec())}.Check(r)
	if err == nil || !strings.Contains(err.Error(), "set topology.hypervisors: true") {
		t.Errorf("%v", err)
	}
}
