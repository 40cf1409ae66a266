package remote

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/bus"
	"weir/bus/pki"
	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/result"
	"weir/experiment/store"
	"weir/internal/testlog"
)

const (
	codeOfTests  = "00112233445566778899aabbccddeeff"
	otherOfTests = "ffeeddccbbaa99887766554433221100"
)

// endedOfTests is when all runs of tests ended.
var endedOfTests = time.Now().UTC().Round(time.Second)

const small = `id: small
duration: 2s
seeds: [1, 2, 3]
topology: {kind: dumbbell, senders: 2, receivers: 1, hypervisors: false}
network: {rate: 50Mbit, rtt: 200us, buffer: 60KB}
traffic: [{name: long, from: "sender*", to: receiver1, pattern: bulk, start: 0s, stop: 1s}]
schemes: [{name: droptail}, {name: fairq}]
measure: {ports: {bottleneck: "switch->receiver1"}}
`

// planOf plans the small experiment in the simulator.
func planOf(t testing.TB) (*store.Asked, *experiment.Plan) {
	t.Helper()
	asked := &store.Asked{Name: "small.yaml", File: small, Options: experiment.Options{Worlds: []string{experiment.WorldSim}}}
	plan, err := asked.Plan(laws.All())
	if err != nil {
		t.Fatal(err)
	}
	return asked, plan
}

// entryOf makes up measurements of a run.
func entryOf(r *experiment.Run) *store.Entry {
	return &store.Entry{
		Code: codeOfTests, Weir: "v1", Kernel: "6.18", Ended: endedOfTests, Took: time.Second,
		Raw: &result.Raw{
			Duration: r.Config.Duration.Std(), Bin: 10 * time.Millisecond, Unmet: result.UnmetTexts("k", result.Note, "x"), Busy: []float64{0.5},
			Flows: []result.Flow{{
				Group: "long", Item: "long", Src: "sender1", Dst: "receiver1", End: time.Second, Done: true, Endless: true, Bytes: 1000 * r.Seed, Timeouts: -1,
				Delivered: []result.Delivery{{Bin: 0, Bytes: 500}, {Bin: 7, Bytes: 500}},
			}},
			Ports: []result.Port{{Name: "switch->receiver1", Labels: []string{"bottleneck"}, RateBps: 5e7, Buffer: 60000, Samples: []result.Sample{{Step: 50 * time.Microsecond, Count: 100, Backlog: 9}}}},
			Drops: []result.Drop{{At: 5, Port: "switch->receiver1", Bytes: 1500, Reason: "tail"}},
		},
	}
}

// kit is a bus.
type kit struct {
	t   *testing.T
	ca  *pki.CA
	url string
	log *testlog.Log // of workers, and what clients say
}

func newKit(t *testing.T) *kit {
	t.Helper()
	k := &kit{t: t, ca: &pki.CA{Dir: filepath.Join(t.TempDir(), "ca")}, log: &testlog.Log{}}
	if err := k.ca.Create(); err != nil {
		t.Fatal(err)
	}
	s, err := bus.StartServer(bus.ServerConfig{Listen: "127.0.0.1:0", Files: k.files(pki.Bus, "b1"), Store: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if t.Failed() {
			t.Logf("the log:\n%s", k.log.String())
		}
	})
	k.url = s.URL()
	return k
}

func (k *kit) files(role pki.Role, name string) pki.Files {
	k.t.Helper()
	dir := k.t.TempDir()
	var addresses []string
	if role == pki.Bus {
		addresses = []string{"127.0.0.1"}
	}
	if _, err := k.ca.Enrol(pki.Identity{Role: role, Name: name}, dir, addresses, 0); err != nil {
		k.t.Fatal(err)
	}
	files, err := pki.Find(dir)
	if err != nil {
		k.t.Fatal(err)
	}
	return files
}

func (k *kit) config(role pki.Role, name string) bus.ClientConfig {
	k.t.Helper()
	return bus.ClientConfig{URLs: []string{k.url}, Files: k.files(role, name)}
}

// do is the Do of a worker.
type do = func(context.Context, *experiment.Run, experiment.Progress) (*store.Entry, error)

// worker starts a worker. stop ends it and waits for its end.
func (k *kit) worker(name string, f do) (stop func()) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cfg := WorkerConfig{
		Client: k.config(pki.Worker, name), Weir: "v1", Codes: map[string]string{experiment.WorldSim: codeOfTests}, Slots: 1, Laws: laws.All(), Do: f,
		Log: slog.New(slog.NewTextHandler(k.log, nil)).With("worker", name),
	}
	go func() { done <- Work(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Errorf("worker %s: %v", name, err)
		}
	})
	k.t.Cleanup(stop)
	return stop
}

func (k *kit) client() *Client {
	k.t.Helper()
	c, err := Dial(context.Background(), ClientConfig{Client: k.config(pki.Operator, "ann"), Weir: "v1", Say: func(line string) { _, _ = k.log.Write([]byte(line + "\n")) }})
	if err != nil {
		k.t.Fatal(err)
	}
	return c
}

// raw is a connection of an identity that keeps to no protocol.
func (k *kit) raw(role pki.Role, name string) (*bus.Conn, jetstream.JetStream) {
	k.t.Helper()
	conn, err := bus.Dial(k.config(role, name))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(conn.Close)
	k.until("connection", conn.Connected)
	js, err := jetstream.New(conn.Client(), jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		k.t.Fatal(err)
	}
	return conn, js
}

// until waits for a condition that has no event of its own. The limit is for a test that hangs.
func (k *kit) until(what string, ok func() bool) {
	k.t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !ok() {
		if !pause(limit, 5*time.Millisecond) {
			k.t.Fatalf("no %s after a minute", what)
		}
	}
}

// empty waits until the bus has neither tasks nor results.
func (k *kit) empty(js jetstream.JetStream) {
	k.t.Helper()
	ctx := k.t.Context()
	k.until("empty queue", func() bool {
		s, err := js.Stream(ctx, bus.WorkStream)
		if err != nil {
			return false
		}
		o, err := js.ObjectStore(ctx, bus.WorkStore)
		if err != nil {
			return false
		}
		list, err := o.List(ctx)
		return s.CachedInfo().State.Msgs == 0 && (err == nil && len(list) == 0 || err != nil && strings.Contains(err.Error(), "no objects"))
	})
}

// silent is a Watcher that only keeps the names of workers.
type silent struct {
	experiment.Silent
	mu    sync.Mutex
	began []string
}

func (s *silent) Began(worker, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = append(s.began, worker)
}

// submit runs all runs of a plan.
func submit(ctx context.Context, c *Client, asked *store.Asked, runs []*experiment.Run) ([]*store.Entry, error) {
	text, err := Pack(asked)
	if err != nil {
		return nil, err
	}
	var out []*store.Entry
	for _, r := range runs {
		e, err := c.Run(ctx, text, r, codeOfTests, &silent{})
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
	return out, nil
}
