package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"weir/bus/inband"
	"weir/bus/lease"
	"weir/bus/weirv1"
	"weir/law"
)

// ErrNotHeld is the error for a command to an agent whose bucket another controller holds.
var ErrNotHeld = errors.New("another controller holds the agent's bucket")

// RunnerConfig configures a controller with its leases.
type RunnerConfig struct {
	Client  ClientConfig
	Buckets int      // of the whole system, the same for all agents and controllers
	Term    TermFile // the highest term that this controller drew
	// Alone: a file lock makes this controller the only one. Then leases are not in the store, so a full disk does not end
	// control.
	Alone    bool
	Replicas int // of the store, 1 without a cluster
	// Changed is called after this controller got or gave up a bucket. It must return soon.
	Changed func(bucket int, term uint64, holds bool)
	// Events gets the events of all agents, also of other controllers' buckets.
	Events func(agent string, e *weirv1.Events)
	// Wake gets a value when Inbox.Next has something. It has a buffer of one. nil: Inbox.Telemetry alone.
	Wake   chan struct{}
	Frames Frames // nil: all commands are on the bus
}

// Frames carries grants to agents in Ethernet frames, instead of the bus.
type Frames interface {
	// Carries returns the form of frames that the agent takes; "": none.
	Carries(agent string) inband.Form
	// Carry sends a command. off: all of its grants end.
	Carry(agent string, command []byte, off bool) error
	// CarryMarks sends marks of a VM with a command without grants, in the form IPID. sent: they need not go by the bus.
	CarryMarks(agent string, vm law.VM, marks uint64, command func() ([]byte, error)) (sent bool, err error)
}

const stepEvery = 50 * time.Millisecond

// Runner runs the leases of one controller on the bus.
type Runner struct {
	cfg     RunnerConfig
	self    lease.Holder
	control *Control
	leases  *leases
	events  chan lease.Event
	stop    chan struct{}
	cancel  context.CancelFunc
	done    sync.WaitGroup
	calls   sync.WaitGroup

	mu       sync.Mutex // guards commands and their order
	commands *Commands
	agents   []map[string]time.Time // when they were heard, by bucket
	known    int                    // agents of all buckets
	forgot   time.Time              // when silent agents were looked for
	beacons  uint64
	stored   uint64 // the highest term in cfg.Term; of run's goroutine
}

// NewRunner connects a controller, and begins to take over buckets that nobody holds.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	if cfg.Buckets < 1 || cfg.Buckets > weirv1.MaxBuckets {
		return nil, fmt.Errorf("%d buckets, want 1 to %d", cfg.Buckets, weirv1.MaxBuckets)
	}
	seen, err := cfg.Term.Load()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{
		cfg: cfg, events: make(chan lease.Event, 4096), stop: make(chan struct{}), cancel: cancel,
		commands: NewCommands(lease.Holder{}, cfg.Buckets), agents: make([]map[string]time.Time, cfg.Buckets), stored: seen.Term,
	}
	r.control, err = NewControl(ControlConfig{Client: cfg.Client, Events: r.agentEvents, Wake: cfg.Wake, Heartbeat: r.heartbeat})
	if err != nil {
		cancel()
		return nil, err
	}
	r.self = lease.Holder{Name: r.control.conn.Identity().Name, Run: nonce()}
	r.mu.Lock()
	r.commands.self = r.self
	r.mu.Unlock()
	if r.leases, err = newLeases(r.control.conn, cfg.Replicas); err != nil {
		cancel()
		r.control.Close()
		return nil, err
	}
	r.done.Go(func() { r.run(ctx, seen) })
	return r, nil
}

// Control returns the controller's side of the bus.
func (r *Runner) Control() *Control { return r.control }

// Close disconnects. The buckets stay with this run until others miss its heartbeats.
func (r *Runner) Close() {
	close(r.stop)
	r.cancel()
	r.done.Wait()
	r.calls.Wait()
	r.control.Close()
}

// Self returns this run of the controller.
func (r *Runner) Self() lease.Holder { return r.self }

// Buckets returns how many buckets this controller holds, and the highest of their terms.
func (r *Runner) Buckets() (held int, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commands.Buckets()
}

// Holds returns the term with which this controller may command an agent, and whether it may.
func (r *Runner) Holds(agent string) (term uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commands.Holds(agent)
}

// Command sends grants to an agent. cause is the origin of the report that they answer.
func (r *Runner) Command(agent string, cause *weirv1.Origin, grants []law.Grant) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	form := inband.Form("")
	if r.cfg.Frames != nil && len(grants) > 0 {
		form = r.cfg.Frames.Carries(agent)
	}
	switch form {
	case "":
		return r.onBus(agent, cause, grants)
	case inband.IPID:
		return r.inHeaders(agent, cause, grants)
	}
	for len(grants) > 0 {
		n := fitting(grants)
		if err := r.inFrame(agent, cause, grants[:n]); err != nil {
			return err
		}
		grants = grants[n:]
	}
	return nil
}

func (r *Runner) onBus(agent string, cause *weirv1.Origin, grants []law.Grant) error {
	c, err := r.commands.Answer(agent, cause, grants)
	if err != nil {
		return err
	}
	return r.control.Command(agent, c)
}

// frameGrants is how many bytes of grants fit into a frame. The rest of a command has at most 150: names have 63.
const frameGrants = inband.MaxCommand - 150

// fitting returns how many of the grants fit into a frame, at least one.
func fitting(grants []law.Grant) (n int) {
	for bytes := 0; n < len(grants); n++ {
		bytes += 2 + proto.Size(weirv1.NewGrant(grants[n]))
		if n > 0 && (bytes > frameGrants || ends(grants[n]) != ends(grants[0])) {
			break
		}
	}
	return n
}

func ends(g law.Grant) bool { return g.Lease == 0 }

// inFrame sends grants that fit into a frame. If it cannot be sent, they go by the bus.
func (r *Runner) inFrame(agent string, cause *weirv1.Origin, grants []law.Grant) error {
	c, err := r.commands.Answer(agent, cause, grants)
	if err != nil {
		return err
	}
	b, err := weirv1.Encode(c)
	if err != nil {
		return fmt.Errorf("send a command to %s: %w", agent, err)
	}
	if err := r.cfg.Frames.Carry(agent, b, ends(grants[0])); err != nil {
		return r.control.Command(agent, c)
	}
	return nil
}

// inHeaders sends the marks of each VM in a frame of its own, and all else by the bus.
func (r *Runner) inHeaders(agent string, cause *weirv1.Origin, grants []law.Grant) error {
	var rest []law.Grant
	for _, g := range grants {
		sent := false
		if g.Kind == law.MarksGrant {
			var err error
			sent, err = r.cfg.Frames.CarryMarks(agent, g.Key.VM, g.Value, func() ([]byte, error) {
				c, err := r.commands.Answer(agent, cause, nil)
				if err != nil {
					return nil, err
				}
				return weirv1.Encode(c)
			})
			if err != nil {
				return err
			}
		}
		if !sent {
			rest = append(rest, g)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return r.onBus(agent, cause, rest)
}

// Plan sends an agent the laws of its ports, or the guarantees of its VMs; nil: not these. cause is the origin of the agent's last report.
func (r *Runner) Plan(agent string, cause *weirv1.Origin, ports *weirv1.PortPlan, host *weirv1.HostPlan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.commands.Answer(agent, cause, nil)
	if err != nil {
		return err
	}
	c.Plan, c.HostPlan = ports, host
	return r.control.Command(agent, c)
}

// Saw notes that an agent exists, so that it is notified of new terms. Events do this by themselves.
func (r *Runner) Saw(agent string) {
	bucket, now := lease.Bucket(agent, r.cfg.Buckets), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.agents[bucket][agent]; known {
		r.agents[bucket][agent] = now
		return
	}
	if r.known >= maxAgents && !r.forget(now) {
		return
	}
	if r.agents[bucket] == nil {
		r.agents[bucket] = map[string]time.Time{}
	}
	r.agents[bucket][agent] = now
	r.known++
	if term, ok := r.commands.Holds(agent); ok {
		r.announceTo(agent, bucket, term)
	}
}

// forget removes agents that have been silent for long, and reports whether there is room then. The caller holds mu.
func (r *Runner) forget(now time.Time) bool {
	if now.Sub(r.forgot) < forgetEvery {
		return false
	}
	r.forgot, r.known = now, 0
	for _, of := range r.agents {
		maps.DeleteFunc(of, func(_ string, heard time.Time) bool { return now.Sub(heard) >= forgetAfter })
		r.known += len(of)
	}
	return r.known < maxAgents
}

// Ask announces the term to an agent again, if this controller holds its bucket: the agent then sends all that it has.
func (r *Runner) Ask(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term, ok := r.commands.Holds(agent); ok {
		r.announceTo(agent, lease.Bucket(agent, r.cfg.Buckets), term)
	}
}

func (r *Runner) announceTo(agent string, bucket int, term uint64) {
	if err := r.control.Command(agent, r.commands.Announce(bucket, term)); err != nil {
		r.control.conn.log.Warn("cannot announce a term", "agent", agent, "term", term, "error", err)
	}
}

func (r *Runner) post(e lease.Event) {
	select {
	case r.events <- e:
	case <-r.stop:
	}
}

func (r *Runner) agentEvents(agent string, e *weirv1.Events) {
	r.Saw(agent)
	bucket := lease.Bucket(agent, r.cfg.Buckets)
	for _, t := range e.GetState().GetTerms() {
		if int(t.GetBucket()) == bucket { // an agent knows about its own bucket only
			r.post(lease.Reported{Bucket: bucket, Holder: holderOf(t.GetController()), Term: t.GetTerm()})
		}
	}
	r.cfg.Events(agent, e)
}

func (r *Runner) heartbeat(h *weirv1.Heartbeat) {
	from := holderOf(h.GetController())
	r.post(lease.Heard{Bucket: -1, Holder: from})
	for _, b := range h.GetHeld() {
		r.post(lease.Heard{Bucket: int(b.GetBucket()), Holder: from, Term: b.GetTerm()})
	}
}

func (r *Runner) run(ctx context.Context, seen lease.Seen) {
	begun := time.Now()
	m := lease.New(lease.Config{Self: r.self, Buckets: r.cfg.Buckets, Term: seen.Term, Alone: r.cfg.Alone}, 0)
	every := time.NewTicker(stepEvery)
	defer every.Stop()
	for {
		var e lease.Event
		select {
		case <-r.stop:
			return
		case <-every.C:
			e = lease.Tick{}
		case e = <-r.events:
		}
		for todo := []lease.Event{e}; len(todo) > 0; todo = todo[1:] {
			todo = append(todo, r.carryOut(ctx, m.Step(time.Since(begun), todo[0]))...)
		}
	}
}

// carryOut executes the orders of a step, and returns the answers of those that it carries out at once. The answers of the store
// come later, as events.
func (r *Runner) carryOut(ctx context.Context, orders []lease.Order) (answers []lease.Event) {
	for _, o := range orders {
		switch o := o.(type) {
		case lease.Beacon:
			r.beacon(o.Held)
		case lease.Ask:
			r.call(ctx, func(ctx context.Context) lease.Event {
				record, err := r.leases.read(ctx, o.Bucket)
				if err != nil {
					r.control.conn.log.Warn("cannot read the owner of a bucket", "bucket", o.Bucket, "error", err)
					return nil
				}
				return lease.Read{Bucket: o.Bucket, Record: record}
			})
		case lease.Store:
			r.store(o.Term)
			answers = append(answers, lease.Stored(o))
		case lease.Write:
			r.call(ctx, func(ctx context.Context) lease.Event {
				revision, ok, err := r.leases.write(ctx, o.Bucket, lease.Record{Holder: r.self, Term: o.Term, Revision: o.Revision})
				if err != nil {
					r.control.conn.log.Warn("cannot take a bucket over", "bucket", o.Bucket, "error", err)
					return nil
				}
				return lease.Written{Bucket: o.Bucket, Term: o.Term, OK: ok, Revision: revision}
			})
		case lease.Announce:
			r.announce(o)
			answers = append(answers, lease.Announced(o))
		case lease.Began:
			r.set(o.Bucket, o.Term, true)
		case lease.Ended:
			r.control.conn.log.Warn("a bucket is given up", "bucket", o.Bucket, "term", o.Term, "reason", o.Why)
			r.set(o.Bucket, o.Term, false)
		}
	}
	return answers
}

// store makes a term durable. Buckets have different terms, and one file has the highest. So a lower term needs no write: it
// would replace the higher one, and heartbeats wait for each write.
func (r *Runner) store(term uint64) {
	if term <= r.stored {
		return
	}
	if err := r.cfg.Term.Save(lease.Seen{Term: term, Holder: r.self}); err != nil {
		// A full disk must not end control: the record and the agents have the term, too.
		r.control.conn.log.Error("cannot store the term: this controller continues", "term", term, "error", err)
		return
	}
	r.stored = term
}

// call asks the store without stopping the heartbeats.
func (r *Runner) call(ctx context.Context, f func(context.Context) lease.Event) {
	r.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		if e := f(ctx); e != nil {
			r.post(e)
		}
	})
}

func (r *Runner) set(bucket int, term uint64, holds bool) {
	r.mu.Lock()
	r.commands.Set(bucket, 0)
	if holds {
		r.commands.Set(bucket, term)
	}
	r.mu.Unlock()
	if holds {
		r.control.conn.log.Info("this controller commands a bucket", "bucket", bucket, "term", term)
	}
	if r.cfg.Changed != nil {
		r.cfg.Changed(bucket, term, holds)
	}
}

// announce sends the term to all known agents of the bucket. Commands use the same connection, so none overtakes it.
func (r *Runner) announce(o lease.Announce) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for agent := range r.agents[o.Bucket] {
		r.announceTo(agent, o.Bucket, o.Term)
	}
}

func (r *Runner) beacon(held []lease.Held) {
	r.beacons++
	h := &weirv1.Heartbeat{Controller: controllerOf(r.self), Sequence: r.beacons}
	for _, b := range held {
		h.Held = append(h.Held, &weirv1.HeldBucket{Bucket: uint32(b.Bucket), Term: b.Term})
	}
	if err := r.control.Heartbeat(h); err != nil && r.control.conn.Connected() {
		r.control.conn.log.Warn("cannot send a heartbeat", "error", err)
	}
}
