package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"weir/agent/metrics"
	"weir/controller/fabric"
	"weir/controller/forward"
	"weir/controller/poll"
	"weir/openflow/channel"
)

// role is a controller at work.
type role struct {
	cfg     *Config
	log     *slog.Logger
	core    *Core
	forward *forward.Law
	poll    *poll.Law
	server  *channel.Server
	begun   time.Time
	last    map[fabric.Switch][]fabric.Counters // of the laws' goroutine
}

// Run is a controller until ctx is done. What it installed on switches stays there and goes on forwarding;
// the next process takes it over.
func Run(ctx context.Context, cfg *Config) error {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &role{cfg: cfg, log: log.With("controller", cfg.Name), begun: time.Now(), last: map[fabric.Switch][]fabric.Counters{}}
	generation, store, err := r.generation()
	if err != nil {
		return err
	}
	if err := r.makeLaws(); err != nil {
		return err
	}
	r.core = newCore(generation, r.log, r.forward, r.poll)
	l, err := r.listen(store)
	if err != nil {
		return err
	}
	defer l.Close()
	control, err := r.serveControl()
	if err != nil {
		return err
	}
	defer control.Close()
	m := r.exporter()
	if err := m.Listen(cfg.Metrics, cfg.Metrics == defaultMetrics); err != nil {
		return err
	}
	defer m.Close()
	r.log.Info("begun", "version", cfg.Version, "address", l.Addr(), "generation", generation, "tls", cfg.TLS != nil)
	if cfg.TLS == nil && !metrics.Local(l.Addr().String()) {
		r.log.Warn("open to the network without TLS: whoever reaches the address can be any switch", "address", l.Addr())
	}
	if cfg.Ready != nil {
		cfg.Ready(l.Addr())
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); r.core.work(work) }()
	err = r.server.Serve(ctx, l)
	stop()
	<-done
	if err == nil {
		r.log.Info("ended: switches go on as they are")
	}
	return err
}

func (r *role) makeLaws() (err error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("a key for link discovery: %w", err)
	}
	r.cfg.Forward.Key = key
	if r.forward, err = forward.New(r.cfg.Forward); err != nil {
		return err
	}
	r.poll = poll.New(r.cfg.Poll, func(_ time.Duration, s fabric.Switch, ports []fabric.Counters) { r.last[s] = ports })
	return nil
}

// generation is above all that this controller had before: it is kept on disk before it is used.
func (r *role) generation() (uint64, *channel.GenerationFile, error) {
	if err := os.MkdirAll(filepath.Dir(r.cfg.Generation), 0o700); err != nil {
		return 0, nil, fmt.Errorf("keep the generation id: %w", err)
	}
	store := &channel.GenerationFile{Path: r.cfg.Generation}
	id, err := store.Next()
	return id, store, err
}

func (r *role) listen(store channel.GenerationStore) (net.Listener, error) {
	c := channel.Config{Handler: r.core, Generations: store, Log: r.log, Limits: limits()}
	if r.cfg.TLS != nil {
		var err error
		if c.TLS, err = channel.ServerTLS(*r.cfg.TLS); err != nil {
			return nil, err
		}
	}
	var err error
	if r.server, err = channel.NewServer(c); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", r.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for switches on %s: %w", r.cfg.Listen, err)
	}
	return l, nil
}

// limits let all orders of a switch with full tables wait, and hear of one that hangs sooner than by default.
func limits() channel.Limits {
	return channel.Limits{
		QueueMessages: 65536, QueueBytes: 32 << 20, Outstanding: 8192,
		EchoInterval: 500 * time.Millisecond, EchoTimeout: time.Second,
	}
}

// controlAddress is an abstract Unix socket: it belongs to the network namespace, and nothing is left of it.
func controlAddress(name string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@weir/controller/" + name}
}

var errNoController = errors.New("no controller of this name runs in this network namespace")
