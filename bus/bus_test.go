package bus

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/law"
)

func (k *kit) runner(files pki.Files, alone bool, replicas int, urls ...string) *Runner {
	k.t.Helper()
	r, err := NewRunner(RunnerConfig{
		Client: k.client(files, urls...), Buckets: 4, Term: TermFile{filepath.Join(k.t.TempDir(), "generation")}, Alone: alone, Replicas: replicas,
		Events: func(string, *weirv1.Events) {},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return r
}

// A report reaches the controller, and its command the agent, which obeys it once.
func TestBus_ReportToCommand(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	a, commands := k.agent(k.enrol("agent/sw1"), url)
	r := k.runner(k.enrol("controller/c1"), true, 0, url)
	defer r.Close()
	until(t, "lease", func() bool { _, ok := r.Holds("sw1"); return ok })

	want := law.Grant{
		Owner: 2, Kind: law.WindowGrant, Value: 2920, Lease: 500 * time.Millisecond, Cause: 9,
		Key: law.Key{Pair: law.Pair{VM: 4, Peer: netip.MustParseAddr("10.0.0.2")}},
	}
	if err := a.SendTelemetry(telemetryOf(3000)); err != nil {
		t.Fatal(err)
	}
	<-r.Control().Inbox().Telemetry()
	agent, report, ok := r.Control().Inbox().Next()
	if !ok || agent != "sw1" || report.GetPorts()[0].GetBacklogBytes() != 3000 {
		t.Fatalf("%q sent %v", agent, report)
	}
	if err := r.Command(agent, report.GetOrigin(), []law.Grant{want}); err != nil {
		t.Fatal(err)
	}
	got := <-commands
	if len(got.grants) != 1 || got.grants[0] != want {
		t.Errorf("it obeys %+v, want %+v", got.grants, want)
	}
	// The same bytes again are refused.
	b, err := weirv1.Encode(got.command)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Control().conn.nc.Publish("weir.v1.cmd.sw1", b); err != nil {
		t.Fatal(err)
	}
	until(t, "refusal", func() bool { return a.Counts()["sequence"] == 1 })
	if len(commands) != 0 {
		t.Error("a replayed command is obeyed")
	}
	if !k.log.Has("a command is refused", "reason=sequence") {
		t.Error("the refusal is not logged")
	}
}

// The newest report replaces those that wait, and agents do not displace each other.
func TestInbox_NewestWins(t *testing.T) {
	b := newInbox(slog.New(slog.DiscardHandler), nil)
	for i := range uint64(1000) {
		for _, name := range []string{"sw1", "sw2"} {
			m := telemetryOf(i)
			m.Origin = &weirv1.Origin{Incarnation: 1, Sequence: i}
			data, err := weirv1.Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			b.telemetry(&nats.Msg{Subject: telemetryPrefix + name, Data: data})
		}
	}
	for _, want := range []string{"sw1", "sw2"} {
		agent, m, ok := b.Next()
		if !ok || agent != want || m.GetPorts()[0].GetBacklogBytes() != 999 {
			t.Errorf("%q, %v, want the last report of %s", agent, m, want)
		}
	}
	if agent, _, ok := b.Next(); ok {
		t.Errorf("one more report of %s", agent)
	}
	if n := b.Counts()["replaced"]; n != 2*999 {
		t.Errorf("%d were replaced, want 1998", n)
	}
}

// An agent's share is a number of messages and of bytes. A controller drops the excess, and other agents have their own limit.
func TestInbox_LimitsAgents(t *testing.T) {
	for _, row := range []struct{ size, most int }{{0, MaxMessages}, {maxMessage, MaxBytes / maxMessage}} {
		b := newInbox(slog.New(slog.DiscardHandler), nil)
		begin, accepted := time.Now(), 0
		for range 2 * row.most {
			if b.accept(&nats.Msg{Subject: eventsPrefix + "sw1", Data: make([]byte, row.size)}, eventsPrefix) != nil {
				accepted++
			}
		}
		more := int(time.Since(begin).Seconds()*float64(row.most)) + 1
		if accepted < row.most || accepted > row.most+more || b.Counts()["rate"] != uint64(2*row.most-accepted) {
			t.Errorf("%d of %d messages of %d bytes are accepted, want %d and at most %d more: %v", accepted, 2*row.most, row.size, row.most, more, b.Counts())
		}
		if b.accept(&nats.Msg{Subject: eventsPrefix + "sw2", Data: make([]byte, row.size)}, eventsPrefix) == nil {
			t.Error("another agent is refused")
		}
	}
}

// Attempts to connect are spread, and never more than lastWait apart.
func TestWait_IsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		for _, attempts := range []int{0, 3, soonAttempts - 1, soonAttempts, 1000} {
			d := wait(attempts)
			if d < firstWait/2 || d > lastWait {
				t.Fatalf("attempt %d waits %v", attempts, d)
			}
			if late := attempts >= soonAttempts; late && d < lastWait/2 || !late && d > soonWait {
				t.Errorf("attempt %d waits %v", attempts, d)
			}
			seen[d] = true
		}
	}
	if len(seen) < 4900 {
		t.Errorf("%d different waits of 5000", len(seen))
	}
}

// Two servers: the embedded one, and one that NATS makes from the generated file. Both allow and refuse the same.
func TestPermissions(t *testing.T) {
	clients := []string{"agent/sw1", "agent/sw2", "controller/c1", "observer/op", "operator/alice", "worker/w1", "operator/ann"}
	for _, kind := range []string{"embedded", "external"} {
		t.Run(kind, func(t *testing.T) {
			k := newKit(t)
			var url string
			if kind == "embedded" {
				url = k.server(nil).URL()
			} else {
				url = k.external(clients...)
			}
			conns := map[string]*Conn{}
			for _, id := range clients {
				conns[id] = k.dial(k.enrol(id), url)
			}
			for i, row := range permissionRows {
				c := conns[row.who]
				before := c.Refused()
				if row.publish {
					if err := c.nc.Publish(row.subject, []byte("x")); err != nil {
						t.Fatal(err)
					}
				} else {
					s, err := c.nc.SubscribeSync(row.subject)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = s.Unsubscribe() }()
				}
				// Nobody may publish to the next subject. Errors are handled in order, so that of the row, if any, is counted then.
				last := fmt.Sprint("not.allowed.", i)
				if err := c.nc.Publish(last, nil); err != nil {
					t.Fatal(err)
				}
				until(t, "refusal of "+last, func() bool { return k.log.Has("the bus refuses a subject", last+`\"`) })
				if refused := c.Refused()-before > 1; refused == row.allowed {
					t.Errorf("%s: %s (publish: %v) is refused: %v", row.who, row.subject, row.publish, refused)
				}
			}
		})
	}
}

var permissionRows = []struct {
	who     string
	publish bool
	subject string
	allowed bool
}{
	{"agent/sw1", true, "weir.v1.tel.sw1", true},
	{"agent/sw1", true, "weir.v1.evt.sw1", true},
	{"agent/sw1", false, "weir.v1.cmd.sw1", true},
	{"agent/sw1", false, "_INBOX.weir.agent.sw1.x", true},
	{"agent/sw1", true, "weir.v1.mrk.sw1.sw2", true},
	{"agent/sw1", false, "weir.v1.mrk.*.sw1", true},
	{"agent/sw1", true, "weir.v1.mrk.sw2.sw1", false},
	{"agent/sw1", true, "weir.v1.mrk.sw2.sw3", false},
	{"agent/sw1", false, "weir.v1.mrk.*.sw2", false},
	{"agent/sw1", false, "weir.v1.mrk.>", false},
	{"controller/c1", true, "weir.v1.mrk.sw1.sw2", false},
	{"agent/sw1", false, "weir.v1.ask.agent.sw1", true},
	{"agent/sw1", false, "weir.v1.ask.agent.sw2", false},
	{"agent/sw1", true, "weir.v1.ask.agent.sw2", false},
	{"agent/sw1", true, "_INBOX.weir.operator.alice.x", false},
	{"controller/c1", false, "weir.v1.ask.controller.c1", true},
	{"controller/c1", false, "weir.v1.ask.controller.c2", false},
	{"controller/c1", true, "_INBOX.weir.operator.alice.x", false},
	{"observer/op", true, "weir.v1.ask.agent.sw1", false},
	{"worker/w1", true, "weir.v1.ask.agent.sw1", false},
	{"operator/alice", true, "weir.v1.ask.agent.sw1", true},
	{"operator/alice", true, "weir.v1.ask.controller.c1", true},
	{"operator/alice", false, "weir.v1.ctl.*", true},
	{"operator/alice", false, "weir.v1.ask.agent.sw1", false},
	{"operator/alice", true, "weir.v1.ctl.c1", false},
	{"agent/sw1", true, "weir.v1.tel.sw2", false},
	{"agent/sw1", true, "weir.v1.evt.sw2", false},
	{"agent/sw1", true, "weir.v1.cmd.sw1", false},
	{"agent/sw1", true, "weir.v1.cmd.sw2", false},
	{"agent/sw1", true, "weir.v1.ctl.c1", false},
	{"agent/sw1", true, "$JS.API.INFO", false},
	{"agent/sw1", true, "$JS.API.STREAM.CREATE.KV_weir-leases", false},
	{"agent/sw1", true, "$KV.weir-leases.0", false},
	{"agent/sw1", true, "$SYS.REQ.SERVER.PING", false},
	{"agent/sw1", true, "_INBOX.weir.controller.c1.x", false},
	{"agent/sw1", false, "weir.v1.cmd.sw2", false},
	{"agent/sw1", false, "weir.v1.cmd.*", false},
	{"agent/sw1", false, "weir.v1.tel.*", false},
	{"agent/sw1", false, "weir.v1.ctl.*", false},
	{"agent/sw1", false, "_INBOX.weir.agent.sw2.>", false},
	{"agent/sw1", false, "_INBOX.>", false},
	{"agent/sw1", false, "$KV.>", false},
	{"agent/sw1", false, ">", false},
	{"controller/c1", true, "weir.v1.cmd.sw1", true},
	{"controller/c1", true, "weir.v1.ctl.c1", true},
	{"controller/c1", false, "weir.v1.tel.*", true},
	{"controller/c1", true, "$KV.weir-leases.0", true},
	{"controller/c1", true, "weir.v1.ctl.c2", false},
	{"controller/c1", true, "weir.v1.tel.sw1", false},
	{"controller/c1", true, "$JS.API.STREAM.CREATE.other", false},
	{"controller/c1", true, "$JS.API.STREAM.DELETE.KV_weir-leases", false},
	{"controller/c1", true, "$JS.API.STREAM.PURGE.KV_weir-leases", false},
	{"controller/c1", false, "_INBOX.weir.controller.c2.>", false},
	{"observer/op", false, "weir.v1.>", true},
	{"observer/op", false, "weir.v1.cmd.sw1", true},
	{"observer/op", true, "weir.v1.cmd.sw1", false},
	{"observer/op", true, "$JS.API.INFO", false},
	{"observer/op", false, "$KV.>", false},
	{"operator/alice", true, "$KV.weir-policy.head", true},
	{"operator/alice", true, "$KV.weir-policy.text.operator.alice.x", true},
	{"operator/alice", true, "$KV.weir-policy.change.1-x.operator.alice", true},
	{"operator/alice", true, "$JS.API.DIRECT.GET.KV_weir-policy.$KV.weir-policy.head", true},
	{"operator/ann", true, "$JS.API.DIRECT.GET.OBJ_weir-work", true},
	{"operator/alice", true, "$KV.weir-policy.text.operator.bob.x", false},
	{"operator/alice", true, "$KV.weir-policy.change.1-x.operator.bob", false},
	{"operator/alice", true, "$KV.weir-policy.inventory.h1", false},
	{"operator/alice", true, "$KV.weir-leases.0", false},
	{"operator/alice", true, "$JS.API.STREAM.CREATE.KV_weir-policy", false},
	{"operator/alice", true, "$JS.API.STREAM.UPDATE.KV_weir-policy", false},
	{"operator/alice", true, "$JS.API.CONSUMER.CREATE.KV_weir-policy.x", false},
	{"operator/alice", true, "weir.v1.cmd.sw1", false},
	{"operator/alice", false, "weir.v1.>", false},
	{"operator/alice", false, "$KV.>", false},
	{"worker/w1", true, "weir.v1.wrk.w1", true},
	{"worker/w1", true, "$JS.API.CONSUMER.MSG.NEXT.WEIR_WORK.sim-c", true},
	{"worker/w1", true, "$O.weir-work.C.x", true},
	{"worker/w1", false, "weir.v1.job.*", true},
	{"worker/w1", true, "weir.v1.wrk.w2", false},
	{"worker/w1", true, "weir.v1.work.sim.c.j", false},
	{"worker/w1", true, "weir.v1.job.ann", false},
	{"worker/w1", true, "$JS.API.STREAM.CREATE.WEIR_WORK", false},
	{"worker/w1", true, "$JS.API.STREAM.PURGE.OBJ_weir-work", false},
	{"worker/w1", true, "$JS.API.CONSUMER.CREATE.WEIR_WORK.x", false},
	{"worker/w1", true, "$JS.API.CONSUMER.CREATE.OBJ_weir-work.x", false},
	{"worker/w1", true, "$JS.API.CONSUMER.MSG.NEXT.KV_weir-leases.x", false},
	{"worker/w1", true, "$KV.weir-leases.0", false},
	{"worker/w1", true, "$JS.API.DIRECT.GET.OBJ_weir-work", false},
	{"worker/w1", true, "$JS.API.DIRECT.GET.OBJ_weir-work.$O.weir-work.C.x", false},
	{"worker/w1", false, "weir.v1.work.>", false},
	{"worker/w1", false, "weir.v1.cmd.*", false},
	{"worker/w1", false, "_INBOX.weir.operator.ann.>", false},
	{"operator/ann", true, "weir.v1.work.sim.c.j", true},
	{"operator/ann", true, "weir.v1.job.ann", true},
	{"operator/ann", true, "$JS.API.STREAM.CREATE.OBJ_weir-work", true},
	{"operator/ann", false, "weir.v1.wrk.*", true},
	{"operator/ann", false, "weir.v1.job.*", true},
	{"operator/ann", true, "weir.v1.job.ben", false},
	{"operator/ann", true, "weir.v1.wrk.w1", false},
	{"operator/ann", true, "weir.v1.cmd.sw1", false},
	{"operator/ann", true, "$JS.API.STREAM.DELETE.WEIR_WORK", false},
	{"operator/ann", true, "$JS.API.CONSUMER.MSG.NEXT.WEIR_WORK.sim-c", false},
	{"operator/ann", true, "$JS.API.STREAM.CREATE.other", false},
	{"operator/ann", true, "$O.weir-work.C.x", false},
	{"operator/ann", true, "$KV.weir-policy.x", false},
	{"operator/ann", false, "_INBOX.weir.worker.w1.>", false},
}

// A role cannot be used for another one.
func TestRoles(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	agent, controller := k.enrol("agent/sw1"), k.enrol("controller/c1")
	if a, err := NewAgent(AgentConfig{Client: k.client(controller, url), Buckets: 1, Terms: TermFile{filepath.Join(t.TempDir(), "term")}, Clock: clock}); err == nil {
		a.Close()
		t.Error("a controller's certificate makes an agent")
	}
	if c, err := NewControl(ControlConfig{Client: k.client(agent, url)}); err == nil {
		c.Close()
		t.Error("an agent's certificate makes a controller")
	}
	if s, err := StartServer(ServerConfig{Listen: "127.0.0.1:0", Files: agent, Store: t.TempDir()}); err == nil {
		s.Close()
		t.Error("an agent's certificate makes a server")
	}
}

// A server whose address is in use says so at once, rather than after the time that a start may take.
func TestStartServer_AddressInUse(t *testing.T) {
	k := newKit(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s, err := StartServer(ServerConfig{Listen: l.Addr().String(), Files: k.enrol("bus/b1"), Store: t.TempDir()})
	if err == nil {
		s.Close()
		t.Fatal("the server has an address that another one uses")
	}
	if text := err.Error(); !strings.Contains(text, l.Addr().String()) || !strings.Contains(text, "in use") {
		t.Errorf("%v, want the address and the cause", err)
	}
}

// A controller sends no command to an agent whose bucket it does not hold.
func TestRunner_CommandsItsBucketsOnly(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	if err := s.nats.DisableJetStream(); err != nil { // so that it gets no lease
		t.Fatal(err)
	}
	a, _ := k.agent(k.enrol("agent/sw1"), s.URL())
	r := k.runner(k.enrol("controller/c1"), false, 0, s.URL())
	defer r.Close()
	until(t, "connection", r.control.conn.Connected)
	cause := &weirv1.Origin{Incarnation: a.incarnation, Sequence: 1}
	if err := r.Command("sw1", cause, grantOfTests); !errors.Is(err, ErrNotHeld) {
		t.Errorf("the error is %v, want %v", err, ErrNotHeld)
	}
}

// An agent learns of each connection, and of each announcement. It then sends its whole state.
func TestAgent_Calls(t *testing.T) {
	k := newKit(t)
	listen := testnet.FreeAddress(t)
	server := func() *Server {
		s, err := StartServer(ServerConfig{Listen: listen, Files: k.enrol("bus/b1"), Store: t.TempDir(), Log: logger(k.log)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := server()
	connected, announced := make(chan struct{}, 100), make(chan struct{}, 100)
	cfg := AgentConfig{
		Client: k.client(k.enrol("agent/sw1"), "tls://"+listen), Buckets: 4, Terms: TermFile{filepath.Join(t.TempDir(), "term")}, Clock: clock,
		Obey: func(*weirv1.Command, []law.Grant) {}, Announced: func() { announced <- struct{}{} },
	}
	cfg.Client.Connected = func() { connected <- struct{}{} }
	a, err := NewAgent(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	<-connected
	r := k.runner(k.enrol("controller/c1"), true, 0, "tls://"+listen)
	defer r.Close()
	until(t, "lease", func() bool { _, ok := r.Holds("sw1"); return ok })
	r.Saw("sw1")
	<-announced
	if err := a.SendTelemetry(telemetryOf(1)); err != nil {
		t.Fatal(err)
	}
	<-r.Control().Inbox().Telemetry()
	_, report, _ := r.Control().Inbox().Next()
	if err := r.Command("sw1", report.GetOrigin(), grantOfTests); err != nil {
		t.Fatal(err)
	}
	until(t, "command", func() bool { return a.Counts()["obeyed"] == 2 })
	if len(announced) != 0 || len(connected) != 0 {
		t.Errorf("a command with grants is an announcement, or there is another connection")
	}
	first.Close()
	second := server()
	defer second.Close()
	<-connected
}

// NATS ends the store of a server whose disk is full. It works again, with what was in it, without a start of the server.
func TestServer_KeepsStore(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	r := k.runner(k.enrol("controller/c1"), false, 1, s.URL())
	defer r.Close()
	streams := func() int {
		info, err := s.nats.Jsz(nil)
		if err != nil {
			return 0
		}
		return info.Streams
	}
	until(t, "the store has buckets", func() bool { return streams() > 0 })
	had := streams()
	if err := s.nats.DisableJetStream(); err != nil || s.nats.JetStreamEnabled() {
		t.Fatalf("the store works, although it was ended: %v", err)
	}
	until(t, "the store works again", func() bool { return s.nats.JetStreamEnabled() && streams() >= had })
}
