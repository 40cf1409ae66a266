package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/controller"
	"weir/datapath/testnet"
	"weir/experiment"
	"weir/internal/testroot"
	"weir/law"
	"weir/law/fairqctl"
	"weir/law/forward"
	"weir/law/gcc"
	"weir/law/sed"
	"weir/law/sicc"
)

// childController runs `weir controller -f FILE`.
func childController(file string) error {
	c, err := controller.Load(file, law.Specs{everybodySpec(), sicc.Spec(), fairqctl.Spec(), gcc.Spec(), sed.Spec()})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return controller.Run(ctx, c)
}

// testController starts this test program as a controller.
func testController(tb testing.TB) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return []string{"env", "WEIR_TEST_CHILD=controller", self}
}

// upControlled builds a lab of Open vSwitches with a controller, which ends with the test.
func upControlled(tb testing.TB, suffix string, g *graphBuilder) *Lab {
	tb.Helper()
	onOVS(tb, g)
	l, err := Up(tb.Context(), testName(suffix), g.config(), Options{Owned: true, Experiment: "test", Controller: testController(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		log, err := os.ReadFile(l.claim.controllerFile("log"))
		if tb.Failed() && err == nil {
			tb.Logf("controller:\n%s", log)
		}
		if err := l.Down(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// When a lab with several paths is up, its controller knows all of it, and every guest reaches every other,
// although no guest sends ARP requests. Nothing is flooded, before or after.
func TestController_KnowsAllBeforeTraffic(t *testing.T) {
	before := hostState(t)
	t.Run("labs", func(t *testing.T) {
		for _, hypervisors := range []bool{false, true} {
			t.Run(fmt.Sprintf("hypervisors %t", hypervisors), func(t *testing.T) {
				t.Parallel()
				knowsAllBeforeTraffic(t, hypervisors)
			})
		}
	})
	sameHost(t, before, "after Down")
}

func knowsAllBeforeTraffic(t *testing.T, hypervisors bool) {
	t.Helper()
	l := upControlled(t, fmt.Sprintf("ctl%t", hypervisors), leafSpine(3, 2, hypervisors))
	s := l.status(t)
	if !s.Well() || len(s.Forward.Switches) != 5 || len(s.Forward.Links) != 6 || len(s.Forward.Hosts) != 6 {
		t.Errorf("hypervisors %t: at first %+v", hypervisors, s.Forward)
	}
	for _, h := range s.Forward.Hosts {
		if !slices.ContainsFunc(l.plan.guests(), func(n *node) bool {
			return n.ports[0].mac.String() == h.MAC && slices.Equal(h.Addresses, []string{n.addr(0).String()})
		}) {
			t.Errorf("no guest is %+v", h)
		}
	}
	for _, from := range l.plan.guests() {
		for _, to := range l.plan.guests() {
			if from == to {
				continue
			}
			if err := talk(l, from.name, to.name, 0); err != nil {
				t.Error(err)
			}
		}
	}
	if c := l.status(t).Forward.Counts; c.Floods != 0 || c.Delivered != 0 || c.Answered != 0 {
		t.Errorf("the controller sent guests' frames: %+v", c)
	}
	if lines := append(l.Unmet(), slices.Concat(l.troubleOfSwitches(), l.troubleOfController(t.Context()))...); len(lines) > 0 {
		t.Errorf("unmet: %v", lines)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
}

// Only the lab's switches have its certificates: a client without a certificate, or with another lab's, is
// refused.
func TestController_LetsInItsSwitchesOnly(t *testing.T) {
	t.Parallel()
	l := upControlled(t, "ctltls", leafSpine(2, 1, false))
	if log, err := os.ReadFile(l.claim.controllerFile("log")); err != nil || !strings.Contains(string(log), "tls=true") {
		t.Errorf("%v, it says\n%s", err, log)
	}
	ours, err := tls.LoadX509KeyPair(l.claim.certificateFile("leaf1.pem"), l.claim.certificateFile("leaf1.key"))
	if err != nil {
		t.Fatal(err)
	}
	other := &Lab{plan: l.plan, claim: &claim{record: record{Name: l.Name() + "/other"}}}
	if err := os.Mkdir(filepath.Join(labsDir, l.Name(), "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.makeCertificates(); err != nil {
		t.Fatal(err)
	}
	theirs, err := tls.LoadX509KeyPair(other.claim.certificateFile("leaf1.pem"), other.claim.certificateFile("leaf1.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		shown   []tls.Certificate
		refused bool
	}{"ours": {[]tls.Certificate{ours}, false}, "none": {nil, true}, "another lab's": {[]tls.Certificate{theirs}, true}} {
		var conn *tls.Conn
		err := l.Enter("leaf1", func() error {
			raw, err := net.DialTimeout("tcp4", l.plan.controllerAddress().String(), testnet.Patience)
			if err != nil {
				return err
			}
			conn = tls.Client(raw, &tls.Config{Certificates: c.shown, InsecureSkipVerify: true}) //nolint:gosec // the other side is tested
			return conn.SetDeadline(time.Now().Add(testnet.Patience))
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(make([]byte, 8)) // its hello
		if (err != nil) != c.refused {
			t.Errorf("with %s: %v", name, err)
		}
		_ = conn.Close()
	}
}

// status requests the status of the lab's controller.
func (l *Lab) status(tb testing.TB) *controller.Status {
	tb.Helper()
	s, err := l.controllerStatus(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// kill ends the lab's controller like a crash.
func (p *process) kill(tb testing.TB) {
	tb.Helper()
	if err := p.Kill(); err != nil {
		tb.Fatal(err)
	}
	<-p.ended
}

// A controller that ends during a run is reported, with the end of its log, and the switches continue without it.
// A switch that restarts meanwhile forwards nothing: it does not start to learn by itself.
func TestController_Ends(t *testing.T) {
	t.Parallel()
	l := upControlled(t, "ctlends", leafSpine(2, 1, false))
	from, to := "leaf1.server1", "leaf2.server1"
	l.controller.kill(t)
	if err := talk(l, from, to, 0); err != nil {
		t.Errorf("without the controller: %v", err)
	}
	lines := l.troubleOfController(t.Context())
	if len(lines) != 1 || !strings.HasPrefix(lines[0],
		"topology.switch ovs: the controller has ended: signal: killed; switches keep their flows, and frames that they lost are not counted; its log ends with ") {
		t.Errorf("trouble: %q", lines)
	}
	if err := l.RestartSwitch("leaf1"); err != nil {
		t.Fatal(err)
	}
	if flows := askOVS(t, l, "leaf1", "bridge/dump-flows", bridgeName); strings.Contains(flows, "NORMAL") {
		t.Errorf("a switch forwards by itself: %s", flows)
	}
	if err := l.startController(); err != nil {
		t.Fatal(err)
	}
	if err := l.awaitController(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	if err := talk(l, from, to, 0); err != nil {
		t.Errorf("with another controller: %v", err)
	}
	if lines := l.troubleOfController(t.Context()); len(lines) > 0 {
		t.Errorf("trouble: %q", lines)
	}
}

// The objects that a controller has lost at the end of a run are named.
func TestController_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	l := upControlled(t, "ctlmiss", leafSpine(2, 1, false))
	d, err := l.ovsDaemons(l.plan.byName["spine2"])
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Enter("spine2", d.endForwarder); err != nil {
		t.Fatal(err)
	}
	testnet.Until(t, "the controller misses it", func() bool {
		lines := l.troubleOfController(t.Context())
		return len(lines) == 1 && strings.HasPrefix(lines[0], "topology.switch ovs: the controller has lost spine2, 2 links (spine2->leaf1 ...)")
	})
}

// If a controller cannot start, the error has the end of its log, and nothing is left.
func TestController_ThatDoesNotBegin(t *testing.T) {
	testroot.Need(t, "makes network namespaces")
	g := onOVS(t, leafSpine(2, 1, false))
	before := hostState(t)
	script := filepath.Join(t.TempDir(), "controller")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho cannot begin\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Up(t.Context(), testName("ctlno"), g.config(), Options{Owned: true, Controller: []string{script}})
	if err == nil || !strings.Contains(err.Error(), `the controller has ended: exit status 3; its log ends with "cannot begin"`) {
		t.Errorf("%v", err)
	}
	sameHost(t, before, "after a controller that does not begin")
}

// The list of missing objects is short, however many there are.
func TestController_SaysWhatItLooksFor(t *testing.T) {
	p, err := newPlan(leafSpine(3, 2, false).config())
	if err != nil {
		t.Fatal(err)
	}
	s := &controller.Status{}
	if got, want := p.unknown(s).String(), "5 switches (spine1 ...), 6 links (spine1->leaf1 ...), 6 guests (leaf1.server1 ...)"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, n := range p.nodes {
		if n.kind == experiment.Guest {
			s.Forward.Hosts = append(s.Forward.Hosts, forward.HostStatus{MAC: n.ports[0].mac.String()})
		}
	}
	if got := p.unknown(s).String(); strings.Contains(got, "guests") {
		t.Errorf("%s", got)
	}
}
