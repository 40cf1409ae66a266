package bus

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/law"
)

// Somebody with a controller's certificate sends what it recorded, and changes of it. The fence refuses each, with its reason in
// the counts and in the log, and carries out nothing. The controller's own commands continue.
func TestAttack_ForgedCommands(t *testing.T) {
	k := newKit(t)
	url := k.server(nil).URL()
	a, commands := k.agent(k.enrol("agent/sw1"), url)
	reports := make(chan *weirv1.Origin, 100)
	c, err := NewControl(ControlConfig{
		Client: k.client(k.enrol("controller/c1"), url), Heartbeat: func(*weirv1.Heartbeat) {},
		Events: func(_ string, e *weirv1.Events) { reports <- e.GetOrigin() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	evil := k.dial(k.enrol("controller/c2"), url)
	until(t, "connection", c.conn.Connected)
	flush(t, c.conn)
	sequence := uint64(0)
	genuine := func() *weirv1.Command {
		if err := a.SendEvents(&weirv1.Events{Host: 1}); err != nil {
			t.Fatal(err)
		}
		origin := <-reports
		sequence++
		m := &weirv1.Command{
			Bucket: a.Bucket(), Term: 5, Controller: &weirv1.Controller{Name: "c1", Run: 7}, Sequence: sequence, Incarnation: origin.GetIncarnation(), EchoNs: origin.GetStampNs(),
			Grants: []*weirv1.Grant{weirv1.NewGrant(law.Grant{Kind: law.RateGrant, Value: 1e8, Lease: time.Second})},
		}
		if err := c.Command("sw1", m); err != nil {
			t.Fatal(err)
		}
		if got := <-commands; got.command.GetSequence() != sequence {
			t.Fatalf("command %d arrives, want %d", got.command.GetSequence(), sequence)
		}
		return m
	}
	for _, row := range []struct {
		name, reason string
		change       func(*weirv1.Command)
	}{
		{"replayed", "sequence", func(*weirv1.Command) {}},
		{"of a lower term", "stale_term", func(m *weirv1.Command) { m.Term, m.Sequence = 4, 1<<40 }},
		{"of the same term in another name", "other", func(m *weirv1.Command) { m.Controller.Name, m.Sequence = "c2", 1<<40 }},
		{"of another run of the controller", "other", func(m *weirv1.Command) { m.Controller.Run, m.Sequence = 8, 1<<40 }},
		{"of another bucket", "bucket", func(m *weirv1.Command) { m.Bucket, m.Term = (m.GetBucket()+1)%4, 9 }},
		{"late", "late", func(m *weirv1.Command) { m.Sequence, m.EchoNs = 1<<40, m.GetEchoNs()-uint64(30*time.Second) }},
		{"with a stamp of the future", "future", func(m *weirv1.Command) { m.Sequence, m.EchoNs = 1<<40, m.GetEchoNs()+uint64(time.Hour) }},
		{"for an earlier run of the agent", "incarnation", func(m *weirv1.Command) { m.Sequence, m.Incarnation = 1<<40, m.GetIncarnation()^2 }},
	} {
		m := proto.Clone(genuine()).(*weirv1.Command)
		row.change(m)
		b, err := weirv1.Encode(m)
		if err != nil {
			t.Fatal(row.name, err)
		}
		before := a.Counts()
		if err := evil.nc.Publish("weir.v1.cmd.sw1", b); err != nil {
			t.Fatal(err)
		}
		until(t, "refusal of a command "+row.name, func() bool { return a.Counts()[row.reason] == before[row.reason]+1 })
		if len(commands) > 0 || a.State("").GetTerms()[0].GetTerm() != 5 {
			t.Errorf("a command %s has an effect", row.name)
		}
		if !k.log.Has("a command is refused", "reason="+row.reason) {
			t.Errorf("%s: it is not logged", row.name)
		}
	}
	genuine()
}

// Peers that begin and never end: no handshake of TLS, and no CONNECT after it. The server ends both, and serves others meanwhile.
func TestAttack_Endless(t *testing.T) {
	k := newKit(t)
	s := k.server(nil)
	address := s.nats.Addr().String()
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	keys, err := pki.Load(k.enrol("agent/sw1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	own, _ := keys.Own()
	config := keys.ClientTLS()
	config.Certificates, config.ServerName = []tls.Certificate{own}, "127.0.0.1"
	config.RootCAs, _ = keys.Roots()
	idle, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	other := k.dial(k.enrol("agent/sw2"), s.URL())
	for name, c := range map[string]net.Conn{"without a handshake": silent, "without CONNECT": idle} {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_, err := io.Copy(io.Discard, c)
		if wait := net.Error(nil); errors.As(err, &wait) && wait.Timeout() {
			t.Errorf("a connection %s lasts", name)
		}
	}
	flush(t, other)
}
