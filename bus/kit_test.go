package bus

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"weir/bus/pki"
	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/internal/testlog"
	"weir/law"
)

// begun is the origin of the agents' clocks in the tests: a minute ago, so that a stamp can be late.
var begun = time.Now().Add(-time.Minute)

func clock() time.Duration { return time.Since(begun) }

func logger(l *testlog.Log) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// kit is a CA with enrolled identities and servers.
type kit struct {
	t   *testing.T
	ca  *pki.CA
	dir string
	log *testlog.Log
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t, dir: t.TempDir(), log: &testlog.Log{}}
	k.ca = &pki.CA{Dir: filepath.Join(k.dir, "ca")}
	if err := k.ca.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text := k.log.String()
			t.Logf("the log:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return k
}

// enrol makes the files of an identity, or makes them again.
func (k *kit) enrol(id string) pki.Files { return k.enrolBy(k.ca, id, 0) }

func (k *kit) enrolBy(ca *pki.CA, id string, validity time.Duration) pki.Files {
	k.t.Helper()
	who, err := pki.ParseIdentity(id)
	if err != nil {
		k.t.Fatal(err)
	}
	var addresses []string
	if who.Role == pki.Bus {
		addresses = []string{"127.0.0.1"}
	}
	out := filepath.Join(k.dir, filepath.Base(ca.Dir)+"-"+strings.ReplaceAll(id, "/", "-"))
	if _, err := ca.Enrol(who, out, addresses, validity); err != nil {
		k.t.Fatal(err)
	}
	return pki.In(out, who.Name)
}

func (k *kit) server(change func(*ServerConfig)) *Server {
	k.t.Helper()
	cfg := ServerConfig{Listen: "127.0.0.1:0", Files: k.enrol("bus/b1"), Store: k.t.TempDir(), Log: logger(k.log)}
	if change != nil {
		change(&cfg)
	}
	s, err := StartServer(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(s.Close)
	return s
}

// external starts a nats-server from a generated file.
func (k *kit) external(clients ...string) (url string) {
	k.t.Helper()
	e := External{Name: "b1", Listen: testnet.FreeAddress(k.t), Store: k.t.TempDir(), Files: k.enrol("bus/b1")}
	for _, c := range clients {
		id, err := pki.ParseIdentity(c)
		if err != nil {
			k.t.Fatal(err)
		}
		e.Clients = append(e.Clients, id)
	}
	k.start(&e)
	return "tls://" + e.Listen
}

func (k *kit) start(e *External) *server.Server {
	k.t.Helper()
	text, err := e.ServerFile()
	if err != nil {
		k.t.Fatal(err)
	}
	file := filepath.Join(k.t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		k.t.Fatalf("%v\n%s", err, text)
	}
	o.NoSigs = true
	s, err := server.NewServer(o)
	if err != nil {
		k.t.Fatal(err)
	}
	s.SetLoggerV2(newNATSLog(logger(k.log)), false, false, false)
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		k.t.Fatal("the external server does not start")
	}
	k.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func (k *kit) client(files pki.Files, urls ...string) ClientConfig {
	return ClientConfig{URLs: urls, Files: files, Log: logger(k.log)}
}

// dial connects as an identity and waits until it is connected.
func (k *kit) dial(files pki.Files, urls ...string) *Conn {
	k.t.Helper()
	c, err := Dial(k.client(files, urls...))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(c.Close)
	until(k.t, "the connection of "+c.id.String(), c.Connected)
	return c
}

// obeyed is a command that an agent carried out.
type obeyed struct {
	command *weirv1.Command
	grants  []law.Grant
	at      time.Time
}

func (k *kit) agent(files pki.Files, urls ...string) (*Agent, chan obeyed) {
	k.t.Helper()
	out := make(chan obeyed, 100000)
	a, err := NewAgent(AgentConfig{
		Client: k.client(files, urls...), Buckets: 4, Terms: TermFile{filepath.Join(k.t.TempDir(), "term")}, Clock: clock,
		Obey: func(c *weirv1.Command, g []law.Grant) { out <- obeyed{c, g, time.Now()} },
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(a.Close)
	until(k.t, "the connection of "+a.conn.id.String(), a.conn.Connected)
	return a, out
}

// patience is how long a test waits for an event. Only a failure, or a processor quota, takes so long.
const patience = 5 * time.Minute

// until waits for a condition that has no event of its own. The limit is for a test that hangs.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("no %s after %v", what, patience)
		case <-look.C:
		}
	}
}

// flush waits until the server has read what the connection sent, and answered.
func flush(t *testing.T, c *Conn) {
	t.Helper()
	if err := c.nc.FlushTimeout(30 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func telemetryOf(n uint64) *weirv1.Telemetry {
	return &weirv1.Telemetry{Switch: 3, IntervalNs: 5e6, Ports: []*weirv1.PortReport{{Port: 1, BacklogBytes: n}}}
}
