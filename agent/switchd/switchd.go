package switchd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/agent/metrics"
	"weir/datapath"
	"weir/law"
)

const (
	releaseLimit = time.Second           // windows are let go within
	lookAtMost   = 50 * time.Millisecond // between two looks at the devices
	lookAtLeast  = time.Second           // should a report of a change be lost
)

// enforcer is datapath.FairQ, as far as a switch at work needs it.
type enforcer interface {
	Attach(datapath.FairQPort) error
	Configure(port string, l datapath.FairQLaw) error
	Change(datapath.FairQConfig) (undo func() error, err error)
	LetGo(port string) error
	Remove(ports ...string) error
	Gone() []string
	On(port string) bool
	Note(port, text string) error
	EachFlow(do func(port string, f datapath.FairQFlow) bool) error
	Stats() ([]datapath.FairQStats, error)
	ClearNotes() error
	Beat() error
	Release(context.Context) error
	Detach() error
	Close() error
	Leave() error
}

// role is a switch at work. One goroutine has it.
type role struct {
	cfg     *Config
	rules   *rules // of cfg
	log     *slog.Logger
	attach  func([]datapath.FairQPort, datapath.FairQConfig) (enforcer, error)
	fairq   enforcer
	ports   map[string]datapath.FairQPort // those that FairQ is on
	refused map[string]string             // those whose windows it cannot hold, and why: said once
	shapes  *shapes
	marks   *marks

	canaries map[string]*canary // how far each port is from observing to enforcing
	tended   time.Time          // when they were last read
	events   events             // what metrics tell of
	metrics  *metrics.Server
	notify   *notifier
}

func newRole(c *Config) *role {
	r := &role{
		cfg: c, rules: newRules(c.Ports), log: c.logger().With("switch", c.Name), attach: attachFairQ,
		ports: map[string]datapath.FairQPort{}, refused: map[string]string{}, marks: newMarks(c.Name),
	}
	r.notify = newNotifier(r.log)
	return r
}

func attachFairQ(ports []datapath.FairQPort, c datapath.FairQConfig) (enforcer, error) {
	f, err := datapath.AttachFairQ(ports, c)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Run keeps FairQ on the ports that c names until ctx is done, and takes it off again: windows are let
// go within a second, then nothing is attached and no timer runs. Tables stay pinned for the next
// start, unless c.Purge. A port that goes and comes again, or comes later, is attached when it is there.
// The configuration is read again when c.Hangup says so, and when Reload asks for it.
//
// It returns nil, too, when another process took over: that one goes on where this one was. Errors that
// can be told apart: those of datapath.AttachFairQ, *NoRate and *ForeignQueue.
func Run(ctx context.Context, c *Config) (err error) {
	r := newRole(c)
	// First, so that nothing changes unseen between the first look and this.
	w, err := newWatch()
	if err != nil {
		return err
	}
	defer w.close()
	if r.shapes, err = openShapes(c.Name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.shapes.close()) }()
	r.rules.made = r.shapes
	// What runs beside the law: metrics here, the canaries with the ports (look, tend).
	if err := r.serveMetrics(); err != nil {
		return err
	}
	defer r.metrics.Close()
	if err := r.begin(); err != nil {
		return err
	}
	control := newControl(c.Name, r.log)
	defer control.close()
	r.log.Info("begun", "version", c.Version, "ports", len(r.ports), "pinned", pinDir(c.Name))
	r.notify.ready(len(r.ports))
	err = r.work(ctx, w, control)
	r.notify.stopping()
	control.close()
	r.metrics.Close()
	if errors.Is(err, datapath.ErrTakenOver) {
		r.log.Info("another process takes over: leaving the ports to it")
		return r.leave()
	}
	if err != nil {
		// What is attached passes packets by itself once its lease is over.
		return errors.Join(err, r.leave())
	}
	return r.end()
}

// begin attaches to the ports that are there. A port that was named and cannot be managed is an error:
// whoever starts a switch by hand learns it at once.
func (r *role) begin() error {
	const tries = 3 // a port that goes in between is no reason not to begin
	for try := 1; ; try++ {
		found, err := r.firstPorts()
		if err != nil {
			return err
		}
		err = r.attachAll(found)
		if err == nil {
			break
		}
		again, lookErr := r.firstPorts()
		if try == tries || lookErr != nil || slices.Equal(names(found), names(again)) {
			return err
		}
	}
	r.sayMissing()
	if err := r.follow(); err != nil { // marks, and shapes that a former process left
		return errors.Join(err, r.end())
	}
	return nil
}

func (r *role) attachAll(found []candidate) error {
	cfg, err := r.cfg.fairQ()
	if err != nil {
		return err
	}
	var t transaction
	var ports []datapath.FairQPort
	for i := range found {
		c := &found[i]
		if c.toMake() && !r.cfg.TakeOver {
			if err := datapath.CheckFairQFree(cfg.Pin); err != nil { // nothing is to be touched then
				return errors.Join(fmt.Errorf("fairq: %w", err), t.back())
			}
		}
		undo, err := r.shapeNew(c)
		if err != nil {
			return errors.Join(err, t.back())
		}
		t.done(undo, "")
		ports = append(ports, c.port())
	}
	if r.fairq, err = r.attach(ports, cfg); err != nil {
		return errors.Join(err, t.back())
	}
	if err := r.fairq.ClearNotes(); err != nil {
		return errors.Join(err, r.fairq.Leave())
	}
	for _, p := range ports {
		r.attached(p)
	}
	return nil
}

func (r *role) firstPorts() (ports []candidate, err error) {
	found, err := r.look()
	if err != nil {
		return nil, err
	}
	for i := range found {
		c := &found[i]
		switch {
		case c.err == nil:
			ports = append(ports, *c)
		case c.byName:
			return nil, c.err
		default:
			r.refuse(c.name, c.err)
		}
	}
	return ports, nil
}

func names(ports []candidate) (out []string) {
	for _, p := range ports {
		out = append(out, fmt.Sprint(p.name, p.ifindex))
	}
	return out
}

// work beats and follows the devices until ctx is done.
func (r *role) work(ctx context.Context, w *watch, control *control) error {
	beat := time.NewTicker(datapath.FairQBeat)
	defer beat.Stop()
	look := time.NewTicker(lookAtLeast)
	defer look.Stop()
	tend := newPace(r.tendEvery())
	defer func() { tend.stop() }()
	changed := w.changed
	var pause <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if err := r.fairq.Beat(); err != nil {
				return err
			}
			r.notify.beat(len(r.ports))
			continue
		case now := <-tend.c:
			if err := r.tend(now); err != nil {
				r.log.Warn("cannot see to what is held", "error", err)
			}
			continue
		case <-r.cfg.Hangup:
			r.reload()
			tend = tend.again(r.tendEvery())
			continue
		case ask := <-control.asked:
			ask <- r.reload()
			tend = tend.again(r.tendEvery())
			continue
		case <-pause:
			pause, changed = nil, w.changed
			continue
		case <-changed:
			// What comes in the meantime waits in the channel.
			pause, changed = time.After(lookAtMost), nil
		case <-look.C:
			control.listen()
		}
		if err := r.follow(); err != nil {
			r.log.Warn("cannot follow the devices", "error", err)
		}
	}
}

func (r *role) attached(p datapath.FairQPort) {
	delete(r.refused, p.Name)
	r.ports[p.Name] = p
	r.log.Info("attached", "port", p.Name, "ifindex", p.Ifindex,
		"buffer", law.Bytes(p.Law.BufferBytes).String(), "target", law.Bytes(p.Law.TargetBytes).String(),
		"window_limit", law.Bytes(p.Law.CapBytes).String())
}

// refuse says once why a port is not managed.
func (r *role) refuse(name string, err error) {
	if text := err.Error(); r.refused[name] != text {
		r.refused[name] = text
		r.log.Warn("not managed", "port", name, "reason", text)
	}
}

// sayMissing names the ports that were named and are not there.
func (r *role) sayMissing() {
	for _, name := range r.rules.names() {
		if _, on := r.ports[name]; !on {
			r.log.Warn("no such device: waiting for it", "port", name)
		}
	}
	if len(r.ports) == 0 {
		r.log.Warn("no port yet: waiting")
	}
}

// leave gives back what this process holds; what is attached goes on.
func (r *role) leave() error { return errors.Join(r.fairq.Leave(), r.marks.leave()) }

// end lets windows go and takes off all that Weir put on the ports.
func (r *role) end() error {
	r.log.Info("letting windows go")
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	err := r.fairq.Release(ctx)
	if r.cfg.Purge {
		err = errors.Join(err, r.fairq.Close())
	} else {
		err = errors.Join(err, r.fairq.Detach())
	}
	err = errors.Join(err, r.marks.end(), r.shapes.restoreAll(nil), r.shapes.close())
	if r.cfg.Purge {
		removeParents()
	}
	if err == nil {
		r.log.Info("detached from all ports")
	}
	return err
}

// Purge removes all that a switch left pinned, whatever became of its process: windows are let go, then
// programs, timers and tables go, and queue disciplines that Weir set. *datapath.FairQBusy while a process
// lives.
func Purge(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := datapath.PurgeFairQ(pinDir(name)); err != nil {
		return err
	}
	s, err := openShapes(name)
	if err != nil {
		return err
	}
	if err := errors.Join(newMarks(name).end(), s.restoreAll(nil), s.close()); err != nil {
		return fmt.Errorf("purge %s: %w", name, err)
	}
	removeParents()
	return nil
}

// removeParents removes the directories that all switches share, when none is left.
func removeParents() {
	for _, dir := range []string{pinRoot, markRoot, shapeRoot, filepath.Dir(pinRoot)} {
		_ = os.Remove(dir) // fails where something is left in it
	}
}
