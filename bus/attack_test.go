package bus

import (
	"bufio"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"weir/bus/pki"
	"weir/bus/weirv1"
)

// refusedAt connects with files that the server must refuse, and waits until the server has counted it.
func refusedAt(t *testing.T, k *kit, s *Server, files pki.Files, reason string) {
	t.Helper()
	before := s.Counts()[reason]
	c, err := Dial(k.client(files, s.URL()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, "count of "+reason, func() bool { return s.Counts()[reason] > before })
	if c.Connected() {
		t.Errorf("%s: it is connected", reason)
	}
	if !k.log.Has("a certificate is refused", "reason="+reason) {
		t.Errorf("%s: it is not logged", reason)
	}
}

// A certificate of another CA, an expired one, a revoked one, one of a server, and none are refused, counted and logged.
func TestAttack_Certificates(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)

	other := &pki.CA{Dir: filepath.Join(k.dir, "other")}
	if err := other.Create(); err != nil {
		t.Fatal(err)
	}
	mixed := k.enrolBy(other, "agent/sw1", 0)
	mixed.CA = k.enrol("agent/sw9").CA // it trusts our server, so that the server decides
	refusedAt(t, k, s, mixed, "unknown_ca")

	past := &pki.CA{Dir: k.ca.Dir, Now: func() time.Time { return time.Now().Add(-48 * time.Hour) }}
	refusedAt(t, k, s, k.enrolBy(past, "agent/sw2", time.Hour), "expired")

	refusedAt(t, k, s, k.enrol("bus/b7"), "role")

	revoked := k.enrol("agent/sw3")
	if n, err := k.ca.Revoke("agent/sw3"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if err := copyFile(filepath.Join(k.ca.Dir, "revoked"), filepath.Join(k.dir, "ca-bus-b1", "revoked")); err != nil {
		t.Fatal(err)
	}
	until(t, "list of revoked certificates", func() bool { return s.keys.Look() > 0 })
	refusedAt(t, k, s, revoked, "revoked")

	if nc, err := nats.Connect(s.URL(), nats.TLSHandshakeFirst(), nats.ClientTLSConfig(nil, s.keys.Roots)); err == nil {
		nc.Close()
		t.Error("a client without a certificate is connected")
	}
	if nc, err := nats.Connect(strings.Replace(s.URL(), "tls://", "nats://", 1), nats.Timeout(3*time.Second)); err == nil {
		nc.Close()
		t.Error("a client without TLS is connected")
	}
	// The honest ones still connect.
	k.dial(k.enrol("agent/sw4"), s.URL())
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}

// A server with a certificate of another CA gets no client.
func TestAttack_Server(t *testing.T) {
	k, evil := newKit(t), newKit(t)
	url := evil.server(nil).URL()
	c, err := Dial(k.client(k.enrol("agent/sw1"), url))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, "refusal", func() bool { return k.log.Has("cannot connect to the bus", "certificate signed by unknown authority") })
	if c.Connected() {
		t.Error("it is connected to a server of another CA")
	}
}

// The largest message arrives, and the library sends no larger one: it knows the server's limit. TestAttack_RawClient ignores it.
func TestAttack_OversizedMessage(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	a := k.dial(k.enrol("agent/sw1"), s.URL())
	got := make(chan *nats.Msg, 10)
	watch := k.dial(k.enrol("observer/op"), s.URL())
	if err := watch.listen("weir.v1.>", 10, func(m *nats.Msg) { got <- m }); err != nil {
		t.Fatal(err)
	}
	flush(t, watch)
	if err := a.nc.Publish("weir.v1.tel.sw1", make([]byte, maxMessage+1)); err == nil {
		t.Error("the library sends it")
	}
	if err := a.nc.Publish("weir.v1.tel.sw1", make([]byte, maxMessage)); err != nil {
		t.Fatal(err)
	}
	if m := <-got; len(m.Data) != maxMessage {
		t.Errorf("%d bytes arrived", len(m.Data))
	}
}

// A flood of one agent: the others' reports arrive, the flood is counted, and its sender is disconnected and refused for a time. A
// report can be lost while messages come faster than the controller reads them. So each is sent again, as an agent sends the
// next one.
func TestAttack_Flood(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	evil := k.dial(k.enrol("agent/evil"), s.URL())
	good, _ := k.agent(k.enrol("agent/good"), s.URL())
	c, err := NewControl(ControlConfig{
		Client: k.client(k.enrol("controller/c1"), s.URL()), Events: func(string, *weirv1.Events) {}, Heartbeat: func(*weirv1.Heartbeat) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, "connection", c.conn.Connected)
	flush(t, c.conn)

	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		sent := 0
		defer func() { ended <- sent }()
		bad := []byte("\xff\xff no protobuf")
		for {
			select {
			case <-stop:
				return
			default:
				if evil.nc.Publish("weir.v1.tel.evil", bad) == nil {
					sent++
				}
			}
		}
	}()
	next, again := uint64(0), 0
	var worst time.Duration
	var banned bool
	for !banned || next < 500 {
		next++
		begin := time.Now()
		send := func() {
			if err := good.SendTelemetry(telemetryOf(next)); err != nil {
				t.Fatal(err)
			}
		}
		send()
		for arrived := false; !arrived; {
			select {
			case <-c.Inbox().Telemetry():
			case <-time.After(100 * time.Millisecond):
				again++
				send()
			}
			for {
				agent, m, ok := c.Inbox().Next()
				if !ok {
					break
				}
				if agent == "good" && m.GetPorts()[0].GetBacklogBytes() == next {
					arrived = true
				}
			}
		}
		worst = max(worst, time.Since(begin))
		banned = s.Counts()["flood"] > 0
	}
	close(stop)
	t.Logf("%d messages of the flood; %d reports of another agent arrived, each within %v (busy machine), %d sent again; dropped: %v", <-ended, next, worst, again, c.Inbox().Counts())
	if n := c.Inbox().Counts(); n["malformed"] == 0 || n["rate"] == 0 {
		t.Errorf("dropped: %v, want malformed ones and such above the rate", n)
	}
	until(t, "refusal of its next connection", func() bool { return s.Counts()["banned"] > 0 })
	for _, want := range [][]string{{"a connection is ended", "agent/evil", "reason=flood"}, {"a message is dropped", "agent=evil", "reason=malformed"}} {
		if !k.log.Has(want...) {
			t.Errorf("not logged: %v", want)
		}
	}
}

// Malformed commands are refused, counted and logged, and change nothing.
func TestAttack_MalformedCommand(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	a, commands := k.agent(k.enrol("agent/sw1"), s.URL())
	c := k.dial(k.enrol("controller/c1"), s.URL())
	for _, data := range [][]byte{nil, {0xff}, []byte(strings.Repeat("\x3a\x00", 2000)), make([]byte, maxMessage)} {
		if err := c.nc.Publish("weir.v1.cmd.sw1", data); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "four refusals", func() bool { return a.Counts()["malformed"] == 4 })
	if len(commands) > 0 || a.State("").GetTerms() != nil {
		t.Error("something is obeyed")
	}
	if !k.log.Has("a command is refused", "reason=malformed") {
		t.Error("it is not logged")
	}
}

// More subscriptions than allowed end the connection.
func TestAttack_Subscriptions(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	a := k.dial(k.enrol("agent/sw1"), s.URL())
	for range MaxSubscriptions + 10 {
		if _, err := a.nc.SubscribeSync("weir.v1.cmd.sw1"); err != nil {
			break
		}
	}
	until(t, "refusal", func() bool { return k.log.Has("maximum subscriptions exceeded") })
}

// A client that does not read loses its own messages, and nobody else's.
func TestAttack_SlowConsumer(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	hold := make(chan struct{})
	defer close(hold)
	a, _ := k.agent(k.enrol("agent/sw1"), s.URL())

	// Two observers: one has a queue of ten messages and does not read, and the other gets all.
	slow, fast := k.dial(k.enrol("observer/slow"), s.URL()), k.dial(k.enrol("observer/fast"), s.URL())
	got := make(chan *nats.Msg, 1000)
	err := errors.Join(slow.listen("weir.v1.tel.*", 10, func(*nats.Msg) { <-hold }), fast.listen("weir.v1.tel.*", 1000, func(m *nats.Msg) { got <- m }))
	if err != nil {
		t.Fatal(err)
	}
	flush(t, slow)
	flush(t, fast)
	for i := range uint64(100) {
		if err := a.SendTelemetry(telemetryOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		<-got
	}
	until(t, "count of dropped messages", func() bool { return slow.Dropped() > 0 })
	if fast.Dropped() > 0 || !slow.Connected() {
		t.Errorf("the other dropped %d, and the slow one is connected: %v", fast.Dropped(), slow.Connected())
	}
}

// Certificates are renewed while connected: new ones for client and server, then a new CA with both accepted, then without the old one.
func TestRotation(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	a, _ := k.agent(k.enrol("agent/sw1"), s.URL())
	serial := func() string { own, _ := a.conn.keys.Own(); return own.Leaf.SerialNumber.Text(16) }
	reconnects := func() uint64 { return a.conn.nc.Stats().Reconnects }
	first, old := serial(), k.enrol("agent/old") // it keeps the certificate of the old CA
	holdout := k.dial(old, s.URL())

	// Each enrolment leads to one connection with the new certificate.
	n := reconnects()
	k.enrol("agent/sw1")
	until(t, "connection with the new certificate", func() bool { return serial() != first && reconnects() > n && a.conn.Connected() })
	if got := reconnects() - n; got != 1 {
		t.Errorf("%d reconnects", got)
	}
	if err := k.ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	looks := s.keys.Look()
	k.enrol("bus/b1") // the server gets a certificate of the new CA, and trusts both
	until(t, "new certificate of the server", func() bool { return s.keys.Look() > looks })
	// A peer that trusts the old CA only must get the new bundle before its next connection.
	for _, dir := range []string{"ca-agent-sw1", "ca-agent-old"} {
		if err := copyFile(filepath.Join(k.ca.Dir, "ca.pem"), filepath.Join(k.dir, dir, "ca.pem")); err != nil {
			t.Fatal(err)
		}
	}
	n = reconnects()
	until(t, "connection with the new bundle", func() bool { return holdout.nc.Stats().Reconnects > 0 && holdout.Connected() })
	k.enrol("agent/sw1")
	until(t, "connection with a certificate of the new CA", func() bool { return reconnects() > n && a.conn.Connected() })
	if err := a.SendTelemetry(telemetryOf(1)); err != nil {
		t.Error(err)
	}
	// The old CA is retired: its certificates end.
	if err := k.ca.Retire(); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(k.ca.Dir, "ca.pem"), filepath.Join(k.dir, "ca-bus-b1", "ca.pem")); err != nil {
		t.Fatal(err)
	}
	until(t, "end of the connection with the old certificate", func() bool { return s.Counts()["ended"] > 0 && !holdout.Connected() })
	until(t, "refusal of its next connection", func() bool { return s.Counts()["unknown_ca"] > 0 })
	until(t, "connection of the other agent", a.conn.Connected)
}

// A certificate that is revoked while it is connected is disconnected.
func TestRotation_RevokedAtWork(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	c := k.dial(k.enrol("agent/sw1"), s.URL())
	other := k.dial(k.enrol("agent/sw2"), s.URL())
	until(t, "look at both connections", func() bool { // a later change must lead to another one
		s.mu.Lock()
		defer s.mu.Unlock()
		looked := 0
		for _, c := range s.clients {
			looked += int(c.verified)
		}
		return looked == 2
	})
	if _, err := k.ca.Revoke("agent/sw1"); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(k.ca.Dir, "revoked"), filepath.Join(k.dir, "ca-bus-b1", "revoked")); err != nil {
		t.Fatal(err)
	}
	until(t, "end of the connection", func() bool { return s.Counts()["ended"] == 1 && !c.Connected() })
	until(t, "refusal of the next one", func() bool { return s.Counts()["revoked"] > 0 })
	if !other.Connected() || other.nc.Stats().Reconnects > 0 {
		t.Error("another agent was disconnected")
	}
}

// A connection ends when its certificate expires.
func TestRotation_ExpiresAtWork(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	c := k.dial(k.enrolBy(k.ca, "agent/sw1", 3*time.Second), s.URL())
	until(t, "end of the connection", func() bool { return !c.Connected() })
	until(t, "refusal of the next one", func() bool { return s.Counts()["expired"] > 0 })
}

// A client of its own making, on a real certificate, gets around the checks of the library and not around those of the server:
// a long message, and another name than that of the certificate.
func TestAttack_RawClient(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	keys, err := pki.Load(k.enrol("agent/sw1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	own, _ := keys.Own()
	config := keys.ClientTLS()
	config.Certificates, config.ServerName = []tls.Certificate{own}, "127.0.0.1"
	config.RootCAs, _ = keys.Roots()
	for _, row := range []struct{ sent, want string }{
		{"PUB weir.v1.tel.sw1 200000\r\n", "Maximum Payload Violation"},
		{"PUB weir.v1.cmd.sw1 1\r\nx\r\n", "Permissions Violation for Publish"},
		{"SUB weir.v1.tel.* 1\r\n", "Permissions Violation for Subscription"},
		{"PUB " + strings.Repeat("a", 2*MaxControlLine) + " 1\r\nx\r\n", "maximum control line exceeded"}, // the connection ends at once, so only the log has the reason
	} {
		conn, err := tls.Dial("tcp", s.nats.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("CONNECT {\"verbose\":false,\"user\":\"controller/c1\",\"name\":\"controller/c1\"}\r\n" + row.sent + "PING\r\n")); err != nil {
			t.Fatal(err)
		}
		lines, found := bufio.NewScanner(conn), false
		for !found && lines.Scan() {
			found = strings.Contains(lines.Text(), row.want)
		}
		if !found && !k.log.Has(row.want) {
			t.Errorf("%.40q: no %q: %v", row.sent, row.want, lines.Err())
		}
		_ = conn.Close()
	}
}
