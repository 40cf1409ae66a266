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
	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

const (
	releaseLimit = time.Second           // windows are let go within
	lookAtMost   = 50 * time.Millisecond // between two looks at the devices
	lookAtLeast  = time.Second           // should a report of a change be lost
)

// role is a switch at work. One goroutine has it.
type role struct {
	cfg       *Config
	rules     *rules // of cfg
	log       *slog.Logger
	law       Law
	running   Running
	heartbeat *heartbeat         // nil: nobody beats, in tests
	ports     map[string]LawPort // those that the law is on
	refused   map[string]string  // those whose windows it cannot hold, and why: said once
	shapes    *shapes
	marks     *marks

	canaries     map[string]*canary // how far each port is from observing to enforcing
	canariesRead time.Time          // when they were last read
	events       events             // what metrics tell of
	metrics      *metrics.Server
	notify       *notifier
}

func newRole(c *Config, l Law) *role {
	r := &role{
		cfg: c, rules: newRules(l, c.Ports), log: c.logger().With("switch", c.Name), law: l,
		ports: map[string]LawPort{}, refused: map[string]string{}, marks: newMarks(c.Name),
	}
	r.notify = newNotifier(r.log, l.Title())
	return r
}

// Run keeps the law of c on the ports that c names until ctx is done, and takes it off again: windows are let
// go within a second, then nothing is attached and no timer runs. Tables stay pinned for the next
// start, unless c.Purge. A port that goes and comes again, or comes later, is attached when it is there.
// The configuration is read again when c.Hangup says so, and when Reload asks for it.
//
// It returns nil, too, when another process took over: that one goes on where this one was. Errors that
// can be told apart: those of the law's Kernel, *NoRate and *ForeignQueue.
func Run(ctx context.Context, c *Config) (err error) {
	r := newRole(c, c.agent.law)
	r.warnOld()
	// First, so that nothing changes unseen between the first look and this.
	w, err := newWatch()
	if err != nil {
		return err
	}
	defer w.close()
	if r.rules.made, err = recordedShapes(c.Name); err != nil {
		return err
	}
	if _, err := r.firstPorts(); err != nil { // nothing is touched then, and nobody asked to leave
		return err
	}
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
	if errors.Is(err, attach.ErrTakenOver) {
		r.log.Info("another process takes over: leaving the ports to it")
		return r.leave()
	}
	if err != nil {
		// What is attached passes packets by itself once its lease is over.
		return errors.Join(err, r.leave())
	}
	return r.end()
}

// warnOld says of a file of an earlier version what to write instead.
func (r *role) warnOld() {
	if r.cfg.Warning != "" {
		r.log.Warn(r.cfg.Warning)
	}
}

// begin attaches to the ports that are there. A port that was named and cannot be managed is an error:
// whoever starts a switch by hand learns it at once.
func (r *role) begin() error {
	const tries = 3 // a port that goes in between is no reason not to begin
	for try := 1; ; try++ {
		found, err := r.beginOnce()
		if err == nil {
			break
		}
		again, lookErr := r.firstPorts()
		if try == tries || found == nil || lookErr != nil || slices.Equal(names(found), names(again)) {
			return err
		}
	}
	if err := r.running.ClearNotes(); err != nil {
		return errors.Join(err, r.leave())
	}
	r.heartbeat = newHeartbeat(r.running.Heartbeat)
	r.shapes.alive = r.alive
	r.logMissing()
	if err := r.follow(); err != nil { // marks, and shapes that a former process left
		return errors.Join(err, r.end())
	}
	return nil
}

// beginOnce takes the pins, so that no other process begins under this name; only then it reads what is there of
// Weir, changes shapers and attaches. It gives the ports that it found; nil: it did not get so far.
func (r *role) beginOnce() (found []candidate, err error) {
	o, err := r.law.Own(r.cfg.common())
	if err != nil {
		return nil, err
	}
	if r.shapes, err = openShapes(r.cfg.Name); err != nil {
		return nil, errors.Join(err, o.Release())
	}
	r.rules.made = r.shapes
	if found, err = r.firstPorts(); err != nil {
		return nil, errors.Join(err, r.shapes.close(), o.Release())
	}
	if err := r.attachAll(found, o); err != nil {
		return found, errors.Join(err, r.shapes.close(), o.Release())
	}
	return found, nil
}

// attachAll shapes the first ports and attaches to them. With an error no shaper of its own is left.
func (r *role) attachAll(found []candidate, o Owner) (err error) {
	var t transaction
	var ports []LawPort
	for i := range found {
		c := &found[i]
		undo, err := r.shapeNew(c)
		if err == nil {
			t.done(undo, "")
			err = o.Heartbeat() // who is taken over from beats no more
		}
		if err != nil {
			return errors.Join(err, t.back())
		}
		ports = append(ports, c.port())
	}
	if r.running, err = o.Attach(ports); err != nil {
		return errors.Join(err, t.back())
	}
	for _, p := range ports {
		r.attached(p)
	}
	return nil
}

// firstPorts are the ports that can be managed. A port where another switch is at work is an error, also one that a
// pattern matches: two switches were meant for one port.
func (r *role) firstPorts() (ports []candidate, err error) {
	found, err := r.look()
	if err != nil {
		return nil, err
	}
	if err := r.missing(found); err != nil {
		return nil, err
	}
	var refs []attach.PortRef
	for i := range found {
		refs = append(refs, attach.PortRef{Name: found[i].name, Ifindex: found[i].ifindex})
	}
	if err := r.law.CheckTaken(pinDir(r.cfg.Name), refs...); err != nil {
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

// work follows the devices until ctx is done, and lets the heart beat as long as it comes round.
func (r *role) work(ctx context.Context, w *watch, control *control) error {
	heartbeat := time.NewTicker(reading.HeartbeatInterval)
	defer heartbeat.Stop()
	look := time.NewTicker(lookAtLeast)
	defer look.Stop()
	readCanaries := newPace(r.canaryInterval())
	defer func() { readCanaries.stop() }()
	changed := w.changed
	var pause <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat.C:
			r.alive()
			continue
		case err := <-r.heartbeat.failed:
			return err
		case now := <-readCanaries.c:
			if err := r.readCanaries(now); err != nil {
				r.log.Warn("cannot see to what is held", "error", err)
			}
			continue
		case <-r.cfg.Hangup:
			r.reload()
			readCanaries = readCanaries.again(r.canaryInterval())
			continue
		case ask := <-control.asked:
			ask <- r.reload()
			readCanaries = readCanaries.again(r.canaryInterval())
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

// alive is called as long as the control loop gets on: the heart may beat on, and systemd's watchdog is told.
func (r *role) alive() {
	r.heartbeat.permit()
	r.notify.heartbeat(len(r.ports))
}

func (r *role) attached(p LawPort) {
	delete(r.refused, p.Name)
	r.ports[p.Name] = p
	f := p.Params.Figures()
	r.log.Info("attached", append([]any{"port", p.Name, "ifindex", p.Ifindex}, f.log()...)...)
}

// log has the figures as a line of the log has them.
func (f *Figures) log() []any {
	return []any{"buffer", law.Bytes(f.Buffer).String(), "target", law.Bytes(f.Target).String(), "window_limit", law.Bytes(f.Cap).String()}
}

// refuse says once why a port is not managed.
func (r *role) refuse(name string, err error) {
	if text := err.Error(); r.refused[name] != text {
		r.refused[name] = text
		r.log.Warn("not managed", "port", name, "reason", text)
	}
}

// sayMissing names the ports that were named and are not there.
func (r *role) logMissing() {
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
func (r *role) leave() error {
	r.heartbeat.stop()
	return errors.Join(r.shapes.close(), r.running.Leave(), r.marks.leave())
}

// end lets windows go and takes off all that Weir put on the ports.
func (r *role) end() error {
	r.heartbeat.stop()
	r.log.Info("letting windows go")
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	err := r.running.Release(ctx)
	// The pins last: until then no other process begins under this name, and finds shapers half taken off.
	err = errors.Join(err, r.marks.end(), r.shapes.restoreAll(nil), r.shapes.close())
	err = errors.Join(err, r.running.Close(r.cfg.Purge))
	if r.cfg.Purge {
		removeParents()
	}
	if err == nil {
		r.log.Info("detached from all ports")
	}
	return err
}

// Purge removes all that a switch left pinned, whatever became of its process: windows are let go, then
// programs, timers and tables go, and queue disciplines that Weir set. *attach.Busy while a process
// lives.
func (a *Agent) Purge(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := a.law.Purge(pinDir(name), func() error {
		s, err := openShapes(name)
		if err != nil {
			return err
		}
		return errors.Join(newMarks(name).end(), s.restoreAll(nil), s.close())
	})
	if err != nil {
		return err
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
