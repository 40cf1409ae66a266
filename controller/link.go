package controller

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"weir/bus"
	"weir/bus/inband"
	"weir/bus/pki"
	"weir/config"
)

// fileBus is the key `bus` of a file: how the controller reaches agents.
type fileBus struct {
	Listen     string   `json:"listen,omitempty" jsonschema_description:"run the bus in this process, on this address and port (the controller is then the only one with its generation file). Either this or urls"`
	ServerKeys string   `json:"server_keys,omitempty" jsonschema_description:"with listen: directory of the bus's certificate, made by weir bus enrol bus/NAME"`
	Store      string   `json:"store,omitempty" jsonschema_description:"with listen: directory of what the bus stores (default: next to the generation file)"`
	URLs       []string `json:"urls,omitempty" jsonschema:"maxItems=64" jsonschema_description:"tls://ADDRESS:PORT of each server of an external bus. Several controllers then share the agents"`
	Replicas   int      `json:"replicas,omitempty" jsonschema:"minimum=1,maximum=5" jsonschema_description:"with urls: copies of the leases in the cluster (default: 1)"`
	Keys       string   `json:"keys" jsonschema:"required" jsonschema_description:"directory of the controller's certificate, made by weir bus enrol controller/NAME"`
	Messages   string   `json:"messages,omitempty" jsonschema:"enum=bus,enum=in-band,enum=ip-143,enum=ip-id" jsonschema_description:"form of grants to agents whose files have the same. in-band: Ethernet frames; ip-143: IP packets of that protocol; ip-id: marks, in their identification. All else goes by the bus (default: bus)"`
	Port       string   `json:"port,omitempty" jsonschema:"maxLength=15" jsonschema_description:"with other messages than bus: device that reaches the uplinks of the hosts without a router"`
	Buckets    int      `json:"buckets,omitempty" jsonschema:"minimum=1,maximum=1024" jsonschema_description:"parts into which agents are divided; all controllers and agents have the same number (default: 16)"`
}

const defaultBuckets = 16

// Bus is how a controller reaches agents.
type Bus struct {
	Listen     string // "": an external bus
	ServerKeys string
	Store      string
	URLs       []string
	Replicas   int
	Keys       string
	Messages   string
	Port       string // of frames
	Buckets    int
}

func checkBus(c *config.Checker, f *File) {
	b := f.Bus
	if b == nil {
		return
	}
	fail := func(key, says, do string) { c.Fail([]string{"bus", key}, says, do) }
	switch {
	case b.Listen == "" && len(b.URLs) == 0:
		c.Fail([]string{"bus"}, "neither listen nor urls is given", "listen: 127.0.0.1:4222 runs the bus in this process")
	case b.Listen != "" && len(b.URLs) > 0:
		fail("urls", "listen is given, too", "listen for a bus in this process, urls for an external one")
	case b.Listen != "" && b.ServerKeys == "":
		fail("listen", "the bus needs a certificate of its own", "server_keys: the directory made by weir bus enrol bus/NAME --address ADDRESS")
	}
	if inband.Named(b.Messages) != (b.Port != "") {
		fail("port", "messages in frames and port need each other", "port: the device that frames are sent from")
	}
	if inband.Named(b.Messages) {
		if _, err := pki.FrameKey(b.Keys); err != nil {
			fail("keys", err.Error(), "")
		}
	}
	for _, u := range b.URLs {
		if !strings.HasPrefix(u, "tls://") {
			fail("urls", fmt.Sprintf("%q is no address of the bus", config.Clip(u)), "such as tls://10.0.0.5:4222")
		}
	}
	for key, dir := range map[string]string{"keys": b.Keys, "server_keys": b.ServerKeys} {
		if _, err := keysIn(dir); dir != "" && err != nil {
			fail(key, err.Error(), "")
		}
	}
	if len(f.Laws) > ownersMax {
		c.Fail([]string{"laws"}, fmt.Sprintf("%d laws", len(f.Laws)), fmt.Sprintf("at most %d with a bus: hosts tell as many apart", ownersMax))
	}
}

// keysIn returns the files of the identity in a directory that `weir bus enrol` made.
func keysIn(dir string) (pki.Files, error) {
	name, err := pki.NameIn(dir)
	return pki.In(dir, name), err
}

func (b *fileBus) config(generation string) *Bus {
	if b == nil {
		return nil
	}
	out := Bus(*b)
	if out.Buckets == 0 {
		out.Buckets = defaultBuckets
	}
	if out.Replicas == 0 {
		out.Replicas = 1
	}
	if out.Store == "" {
		out.Store = generation + ".bus"
	}
	return &out
}

// busLink is a term's connection to agents: the controller's end of the bus, and with Listen the bus itself.
type busLink struct {
	server *bus.Server // nil: external
	runner *bus.Runner
	nodes  *nodes
	frames *inband.Messenger // nil: grants go by the bus
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// connect begins the connection to agents. Their reports go to a.
func connect(b *Bus, generation string, a *agents, log *slog.Logger) (*busLink, error) {
	keys, err := keysIn(b.Keys)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &busLink{stop: stop}
	urls := b.URLs
	if b.Listen != "" {
		own, err := keysIn(b.ServerKeys)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(b.Store, 0o700); err != nil {
			return nil, fmt.Errorf("store of the bus: %w", err)
		}
		if l.server, err = bus.StartServer(bus.ServerConfig{Listen: b.Listen, Files: own, Store: b.Store, Log: log}); err != nil {
			return nil, err
		}
		urls = []string{l.server.URL()}
		log.Info("the bus listens", "url", urls[0])
	}
	cfg := bus.RunnerConfig{
		Client: bus.ClientConfig{URLs: urls, Server: l.server, Files: keys, Log: log}, Buckets: b.Buckets, Term: bus.TermFile{Path: generation + ".term"},
		Alone: b.Listen != "", Replicas: b.Replicas, Changed: func(int, uint64, bool) {}, Events: a.arrived, Wake: a.core.turns.wake,
	}
	if inband.Named(b.Messages) {
		if l.frames, err = framesOf(b, log); err != nil {
			l.close()
			return nil, err
		}
		cfg.Frames = l.frames
	}
	if l.runner, err = bus.NewRunner(cfg); err != nil {
		l.close()
		return nil, err
	}
	a.bus, a.link = l.runner, l
	if err := l.runner.Control().Conn().Answer(a.answer); err != nil {
		l.close()
		return nil, err
	}
	l.nodes = newNodes(l.runner.Control().Conn(), b.Replicas, log)
	l.done.Go(func() { l.nodes.run(ctx) })
	if a.policies != nil {
		l.done.Go(func() { a.policies.run(ctx, l.nodes) })
	}
	return l, nil
}

func framesOf(b *Bus, log *slog.Logger) (*inband.Messenger, error) {
	key, err := pki.FrameKey(b.Keys)
	if err != nil {
		return nil, err
	}
	return inband.NewMessenger(b.Port, inband.Form(b.Messages), key, log)
}

func (l *busLink) close() {
	l.stop()
	l.done.Wait()
	if l.runner != nil {
		l.runner.Close()
	}
	l.frames.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// BusStatus is the state of a controller's connection to agents.
type BusStatus struct {
	Connected bool              `json:"connected"`
	Listens   string            `json:"listens,omitempty"` // URL of the bus in this process
	Agents    []AgentStatus     `json:"agents"`
	Grants    map[string]uint64 `json:"grants"`           // of laws, by what became of them: sent, nowhere, not_held, failed
	Frames    map[string]uint64 `json:"frames,omitempty"` // with grants, sent or failed; none: grants go by the bus
	Dropped   map[string]uint64 `json:"dropped"`          // messages of agents, by reason; replaced: by a newer report
	NoEffect  map[string]uint64 `json:"no_effect"`        // messages that named a switch, host or VM of another agent, by reason
	Refused   map[string]uint64 `json:"refused"`          // connections to the bus in this process, by reason
	Held      int               `json:"buckets_held"`
	Term      uint64            `json:"term"` // the highest of their terms
	// Decisions are the times from the arrival of a report to the last command that answers it.
	Decisions Latencies `json:"decisions"`
	Questions uint64    `json:"questions_unanswered"` // of operators
}

// AgentStatus is what a controller knows of an agent.
type AgentStatus struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Switch   string `json:"switch,omitempty"`
	Host     uint32 `json:"host,omitempty"`
	Ports    int    `json:"ports"`
	VMs      int    `json:"vms"`
	HeardMs  int64  `json:"heard_ms"` // ago
	Term     uint64 `json:"term"`     // 0: another controller commands it
	Commands bool   `json:"commands"` // by this controller
}

func (a *agents) status() *BusStatus {
	if a == nil {
		return nil
	}
	control := a.bus.Control()
	s := &BusStatus{
		Connected: control.Conn().Connected(), Agents: []AgentStatus{}, Grants: map[string]uint64{}, Dropped: control.Inbox().Counts(),
		NoEffect: map[string]uint64{}, Refused: map[string]uint64{},
	}
	s.Held, s.Term = a.bus.Buckets()
	s.Frames = a.link.frames.Counts()
	s.Decisions, s.Questions = a.core.tracer.took.status(), control.Conn().Unanswered()
	if a.link.server != nil {
		s.Listens, s.Refused = a.link.server.URL(), a.link.server.Counts()
	}
	for k, n := range a.results {
		s.Grants[k] = n
	}
	for k, n := range a.refused {
		s.NoEffect[k] = n
	}
	a.mail.mu.Lock()
	s.Dropped["queue"] += a.mail.dropped
	a.mail.mu.Unlock()
	now := a.core.now()
	for _, name := range sortedKeys(a.known) {
		ag := a.known[name]
		st := AgentStatus{
			Name: name, Version: ag.version, Host: uint32(ag.host), Ports: len(ag.ports), VMs: len(ag.has), HeardMs: (now - ag.heard).Milliseconds(),
		}
		if ag.sw != 0 {
			st.Switch = ag.sw.String()
		}
		st.Term, st.Commands = a.bus.Holds(name)
		s.Agents = append(s.Agents, st)
	}
	return s
}
