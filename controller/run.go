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
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/agent/metrics"
	"weir/controller/record"
	"weir/law"
	"weir/law/forward"
	"weir/law/poll"
	"weir/openflow/channel"
)

// role is a controller that is active or stands by.
type role struct {
	cfg        *Config
	log        *slog.Logger
	begun      time.Time
	store      *channel.GenerationFile
	term       atomic.Pointer[term]   // nil: stands by
	waits      atomic.Pointer[string] // the active controller that this one waits for
	unrecorded atomic.Pointer[error]  // why there is no recording, although the file has the key

	listen func(address string) (net.Listener, error)
}

// term is the time during which a controller is active, with one generation id.
type term struct {
	*role
	core    *Core
	forward *forward.Law
	poll    *poll.Law
	server  *channel.Server
	link    *busLink   // nil: no bus
	sflow   *sflowLink // nil: none
	record  *record.Writer
}

// Run runs a controller until ctx is done. Its flows and groups stay on the switches and continue to forward; the next process
// takes them over. While another controller with the same generation file is active, this one stands by.
func Run(ctx context.Context, cfg *Config) error {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &role{cfg: cfg, log: log.With("controller", cfg.Name), begun: time.Now(), store: &channel.GenerationFile{Path: cfg.Generation}}
	r.listen = func(address string) (net.Listener, error) { return net.Listen("tcp", address) }
	if err := os.MkdirAll(filepath.Dir(cfg.Generation), 0o700); err != nil {
		return fmt.Errorf("store the generation id: %w", err)
	}
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
	if os.Getenv("GOGC") == "" {
		// The heap is small: with the default the garbage collector would run hundreds of times a second while peers flood.
		defer debug.SetGCPercent(debug.SetGCPercent(400))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30)) // from this size on it runs more often
	}
	return r.terms(ctx)
}

// terms stands by and is active in turn, until ctx is done.
func (r *role) terms(ctx context.Context) error {
	lease := newLease(r.cfg.Generation, r.cfg.Name, r.log)
	defer lease.release()
	for ctx.Err() == nil {
		if err := lease.take(ctx, r.standBy); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		if err := r.work(ctx, lease); err != nil {
			return err
		}
		lease.release()
	}
	return nil
}

// standBy records which controller is active.
func (r *role) standBy(active string) {
	if was := r.waits.Swap(&active); was == nil || *was != active {
		r.log.Info("standing by", "active", active)
	}
}

// work is the active controller until ctx is done, the lease is lost, or another one has drawn a higher generation id.
func (r *role) work(ctx context.Context, lease *lease) error {
	if r.cfg.beforeDraw != nil {
		r.cfg.beforeDraw()
	}
	generation, err := r.store.Next()
	if err != nil {
		return err
	}
	if !lease.ours() { // it took too long: the owner of the lease draws a new id
		r.log.Warn("another controller has taken over before this one began: it stands by", "generation", generation)
		return nil
	}
	t, l, err := r.newTerm(generation)
	if err != nil {
		return err
	}
	defer l.Close()
	serving, lost := context.WithCancel(ctx)
	defer lost()
	laws, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	fence := t.core.fence
	fence.over = lost
	var all sync.WaitGroup
	all.Go(func() { lease.keep(serving, func() bool { return !fence.holds() }, lost) })
	all.Go(func() { t.core.work(laws) })
	if t.sflow != nil {
		all.Go(t.sflow.receive)
		all.Go(func() { t.sflow.run(laws) })
	}
	r.term.Store(t)
	r.log.Info("begun", "version", r.cfg.Version, "address", l.Addr(), "generation", generation, "tls", r.cfg.TLS != nil)
	if r.cfg.Ready != nil {
		r.cfg.Ready(l.Addr())
	}
	err = t.server.Serve(serving, l)
	lost()
	stop()
	t.sflow.close()
	all.Wait()
	if t.link != nil {
		t.link.close()
	}
	r.endRecord(t.record)
	r.term.Store(nil)
	r.waits.Store(nil)
	if err == nil {
		r.log.Info("ended: switches continue with their flows")
	}
	return err
}

// newTerm makes the parts of a term. Its generation id is on disk already.
func (r *role) newTerm(generation uint64) (*term, net.Listener, error) {
	t := &term{role: r, record: r.startRecord()}
	laws, err := t.makeLaws()
	if err != nil {
		return nil, nil, err
	}
	t.core = newCore(newFence(r.store, generation, r.log), r.log, laws...)
	// More than the configured limits, because an earlier configuration may have left more flows.
	t.core.flowsMax = max(16384, 2*(r.cfg.Forward.HostsMax+2*r.cfg.Forward.PinsMax))
	t.core.record = t.record
	l, err := t.serveSwitches()
	if err != nil || r.cfg.Bus == nil {
		return t, l, err
	}
	t.core.agents = newAgents(t.core, r.log)
	t.core.agents.version = r.cfg.Version
	t.core.agents.policies = newPolicies(t.core, r.cfg, r.log)
	if t.link, err = connect(r.cfg.Bus, r.cfg.Generation, t.core.agents, r.log); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	if t.sflow, err = r.listenSFlow(t.core); err != nil {
		t.link.close()
		return nil, nil, errors.Join(err, l.Close())
	}
	return t, l, nil
}

// makeLaws makes the controller's own laws, then those of its configuration.
func (t *term) makeLaws() ([]namedLaw, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a key for link discovery: %w", err)
	}
	c := t.cfg.Forward
	c.Key = key
	var err error
	if t.forward, err = forward.New(c); err != nil {
		return nil, err
	}
	t.poll = poll.New(t.cfg.Poll)
	laws := []namedLaw{{name: "forward", Law: t.forward}, {name: "poll", Law: t.poll}}
	for i, l := range t.cfg.Laws {
		made, err := l.New()
		if err != nil {
			return nil, fmt.Errorf("law %s: %w", l.Name, err)
		}
		owner := law.Owner(i % ownersMax)
		laws = append(laws, namedLaw{name: l.Name, owner: owner, Law: t.record.Tap(made, l.Name, owner, l.Params)})
	}
	return laws, nil
}

// serveSwitches makes the server and its listener.
func (t *term) serveSwitches() (net.Listener, error) {
	c := channel.Config{Handler: t.core, Generations: t.store, Log: t.log, Limits: limits(&t.cfg.Forward.Rates)}
	var err error
	if t.cfg.TLS != nil {
		if c.TLS, err = channel.ServerTLS(*t.cfg.TLS, t.log); err != nil {
			return nil, err
		}
		if t.cfg.Named {
			c.Admit = named
		}
	}
	if t.server, err = channel.NewServer(c); err != nil {
		return nil, err
	}
	l, err := t.listen(t.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for switches on %s: %w", t.cfg.Listen, err)
	}
	if t.cfg.TLS == nil && !metrics.Local(l.Addr().String()) {
		t.log.Warn("open to the network without TLS: any peer that reaches the address can claim to be any switch", "address", l.Addr())
	}
	return l, nil
}

// named returns an error unless the switch's certificate has its datapath id as common name or as a DNS name.
func named(c *channel.Conn) error {
	id, shown := law.Switch(c.DatapathID()).String(), c.Certificate()
	if shown.Subject.CommonName == id || slices.Contains(shown.DNSNames, id) {
		return nil
	}
	return fmt.Errorf("the switch's certificate is for %q, not for %s", clip(shown.Subject.String()), id)
}

// limits returns the limits of a connection. The queue has room for all orders of a switch with full tables. A switch that hangs is
// noticed sooner than by default. The rate of packets is twice that of its meters, so that a switch that ignores its meters
// costs little more.
func limits(r *forward.Rates) channel.Limits {
	metered := int(r.Probe) + int(r.ARP) + 3*int(r.Copy) + int(r.Source) + int(r.Miss)
	return channel.Limits{
		QueueMessages: 65536, QueueBytes: 8 << 20, Outstanding: 8192,
		EchoInterval: 500 * time.Millisecond, EchoTimeout: time.Second,
		PacketIns: max(2*metered, 1000), PacketInBytes: 16 << 20, Messages: 2000, ReadBytes: 8 << 20,
	}
}

var errStandby = errors.New("this controller stands by; ask the active one")
