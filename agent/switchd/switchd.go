package switchd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	lookAtMost  = 50 * time.Millisecond // between two looks at the devices
	lookAtLeast = time.Second           // in case a report of a change is lost
)

// role is a running switch. One goroutine owns it.
type role struct {
	cfg      *Config
	rules    *rules // of cfg
	log      *slog.Logger
	attached *Attached
	ports    map[string]PortLaws // to which the laws are attached
	refused  map[string]string   // ports that cannot be managed, and the reason: each is logged once
	shapes   *shapes
	marks    *marks

	canaries     map[string]*canary // the stage of each port between observing and enforcing
	canariesRead time.Time          // when they were last read
	events       events             // counted for the metrics
	metrics      *metrics.Server
	notify       *notifier
}

func newRole(c *Config) *role {
	r := &role{
		cfg: c, rules: newRules(c.laws(), c.Ports), log: c.logger().With("switch", c.Name),
		ports: map[string]PortLaws{}, refused: map[string]string{}, marks: newMarks(c.Name),
	}
	r.notify = newNotifier(r.log, titles(c.Laws))
	r.notify.off = c.Asked != nil
	return r
}

// Run attaches the laws of c to the ports that c names, and keeps them there until ctx is done. Then it releases the
// windows within a second and detaches the laws: no program is attached, and no timer runs. Tables stay pinned for the
// next start, unless c.Purge is set. A port that appears later, or disappears and comes back, is attached then. Run reads the
// configuration again on a signal from c.Hangup and when Reload asks for it.
//
// It also returns nil when another process takes over and continues in its place. Typed errors: those of the laws'
// Own and CheckTaken, *law.ConflictError, *NoRate and *ForeignQueue.
func Run(ctx context.Context, c *Config) (err error) {
	r := newRole(c)
	r.warnOld()
	// Subscribe first, so that no change between the first look and this one is missed.
	w, err := NewWatch()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := r.firstLook(); err != nil { // nothing is changed yet
		return err
	}
	// Next to the laws run the metrics and, with the ports, the canaries (look, readCanaries).
	if err := r.serveMetrics(); err != nil {
		return err
	}
	defer r.metrics.Close()
	if err := r.begin(); err != nil {
		return err
	}
	control := newControl(c.Name, r.log)
	defer control.close()
	r.log.Info("begun", "version", c.Version, "ports", len(r.ports), "pinned", c.Laws[0].pin(c.Name))
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
		// The attached programs pass packets unchanged once the lease expires.
		return errors.Join(err, r.leave())
	}
	return r.end()
}

// firstLook looks at the ports for the first time. A process of the same name can begin between the reading of the records of
// shapers and the look at the queues. Its shapers then seem to be others'. A shaper is recorded before it is made, so a second
// reading has other records, and the look is repeated.
func (r *role) firstLook() (err error) {
	if r.rules.made, err = recordedShapes(r.cfg.Name); err != nil {
		return err
	}
	for {
		_, looked := r.firstPorts()
		if looked == nil {
			return nil
		}
		now, err := recordedShapes(r.cfg.Name)
		if err != nil || maps.Equal(now.made, r.rules.made.made) {
			return looked
		}
		r.rules.made = now
	}
}

// warnOld logs a warning for a file of an earlier version, with the command that converts it.
func (r *role) warnOld() {
	if r.cfg.Warning != "" {
		r.log.Warn(r.cfg.Warning)
	}
}

// begin attaches to the ports that exist. A port that is given by name and cannot be managed is an error: an operator
// who starts a switch by hand learns of it at once.
func (r *role) begin() error {
	const tries = 3 // a port that disappears meanwhile must not stop the start
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
	if err := r.attached.Note("", ""); err != nil {
		return errors.Join(err, r.leave())
	}
	r.attached.Begin(true)
	r.shapes.alive = r.alive
	r.logMissing()
	if err := r.follow(); err != nil { // marking and shapers that an earlier process left
		return errors.Join(err, r.end())
	}
	return nil
}

// beginOnce locks the pins, so that no other process begins under this name. Only then it reads what Weir has
// installed, changes shapers and attaches. It returns the ports that it found, or nil if it failed before that.
func (r *role) beginOnce() (found []candidate, err error) {
	a, err := Own(r.cfg.settings()...)
	if err != nil {
		return nil, err
	}
	if r.shapes, err = openShapes(r.cfg.Name); err != nil {
		return nil, errors.Join(err, a.End(Detach))
	}
	r.rules.made = r.shapes
	if found, err = r.firstPorts(); err != nil {
		return nil, errors.Join(err, r.shapes.close(), a.End(Detach))
	}
	if err := r.attachAll(found, a); err != nil {
		return found, errors.Join(err, r.shapes.close(), a.End(Detach))
	}
	r.attached = a
	return found, nil
}

// attachAll shapes the first ports and attaches to them. If it fails, it removes the shapers that it made.
func (r *role) attachAll(found []candidate, a *Attached) (err error) {
	var t transaction
	var ports []PortLaws
	for i := range found {
		c := &found[i]
		undo, err := r.shapeNew(c)
		if err == nil {
			t.done(undo, "")
			err = a.Heartbeat() // the process that is taken over no longer sends any
		}
		if err != nil {
			return errors.Join(err, t.back())
		}
		ports = append(ports, c.port())
	}
	if err := a.Attach(ports...); err != nil {
		return errors.Join(err, t.back())
	}
	for _, p := range ports {
		r.noteAttached(p)
	}
	return nil
}

// firstPorts returns the ports that can be managed. A port that belongs to another switch is an error even if only a
// pattern matches it: two switches were configured for one port.
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
	if err := r.checkTaken(refs...); err != nil {
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

// checkTaken returns an error if another switch has attached one of the laws to a port.
func (r *role) checkTaken(ports ...attach.PortRef) error {
	for i := range r.cfg.Laws {
		l := &r.cfg.Laws[i]
		if err := l.Law.CheckTaken(l.pin(r.cfg.Name), ports...); err != nil {
			return err
		}
	}
	return nil
}

func names(ports []candidate) (out []string) {
	for _, p := range ports {
		out = append(out, fmt.Sprint(p.name, p.ifindex))
	}
	return out
}

// work follows the devices until ctx is done, and permits the heartbeat each time round.
func (r *role) work(ctx context.Context, w *Watch, control *control) error {
	heartbeat := time.NewTicker(reading.HeartbeatInterval)
	defer heartbeat.Stop()
	look := time.NewTicker(lookAtLeast)
	defer look.Stop()
	readCanaries := newPace(r.canaryInterval())
	defer func() { readCanaries.stop() }()
	changed := w.Changed()
	var pause <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat.C:
			r.alive()
			continue
		case err := <-r.attached.Failed():
			if err := r.attached.beginAgain(err); err != nil {
				return err
			}
			continue
		case now := <-readCanaries.c:
			if err := r.readCanaries(now); err != nil {
				r.log.Warn("cannot read the ports of the canary", "error", err)
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
		case ask := <-r.cfg.Asked:
			ask <- r.reload()
			readCanaries = readCanaries.again(r.canaryInterval())
			continue
		case <-pause:
			pause, changed = nil, w.Changed()
			continue
		case <-changed:
			// Further changes wait in the channel.
			pause, changed = time.After(lookAtMost), nil
		case <-look.C:
			control.listen()
		}
		if err := r.follow(); err != nil {
			r.log.Warn("cannot adapt to the changed devices", "error", err)
		}
	}
}

// alive is called while the control loop makes progress: it permits the heartbeat and resets systemd's watchdog.
func (r *role) alive() {
	r.attached.Permit()
	r.notify.heartbeat(len(r.ports))
}

func (r *role) noteAttached(p PortLaws) {
	delete(r.refused, p.Name)
	r.ports[p.Name] = p
	f := p.Params[0].Figures()
	r.log.Info("attached", append([]any{"port", p.Name, "ifindex", p.Ifindex}, f.log()...)...)
}

// log returns the figures as attributes of a log line.
func (f *Figures) log() []any {
	return []any{"buffer", law.Bytes(f.Buffer).String(), "target", law.Bytes(f.Target).String(), "window_limit", law.Bytes(f.Cap).String()}
}

// refuse logs once why a port is not managed.
func (r *role) refuse(name string, err error) {
	if text := err.Error(); r.refused[name] != text {
		r.refused[name] = text
		r.log.Warn("not managed", "port", name, "reason", text)
	}
}

// logMissing logs the ports that are given by name and do not exist.
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

// leave closes what this process has open. The attached programs continue.
func (r *role) leave() error {
	return errors.Join(r.shapes.close(), r.attached.End(Leave), r.marks.leave())
}

// end releases the windows and removes everything that Weir put on the ports.
func (r *role) end() error {
	r.log.Info("releasing windows")
	err := r.attached.Release()
	// Release the pins last: until then no other process can begin under this name and find half-removed shapers.
	err = errors.Join(err, r.marks.end(), r.shapes.restoreAll(nil), r.shapes.close())
	how := Detach
	if r.cfg.Purge {
		how = Purge
	}
	err = errors.Join(err, r.attached.End(how))
	if r.cfg.Purge {
		removeParents(r.cfg.Laws)
	}
	if err == nil {
		r.log.Info("detached from all ports")
	}
	return err
}

// Purge removes everything that a switch left pinned, even after its process was killed. It releases the windows, then
// removes programs, timers, tables and the queue disciplines that Weir set. It returns *attach.Busy while a process is
// running.
func (a *Agent) Purge(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	purge := func() error {
		s, err := openShapes(name)
		if err != nil {
			return err
		}
		return errors.Join(newMarks(name).end(), s.restoreAll(nil), s.close())
	}
	// The locks of all laws are taken, one within the other, before anything else is removed.
	laws := a.every()
	for i := range laws {
		l, before := &laws[i], purge
		purge = func() error { return l.Law.Purge(l.pin(name), before) }
	}
	if err := purge(); err != nil {
		return err
	}
	removeParents(laws)
	return nil
}

// removeParents removes the directories that all switches share, if they are empty.
func removeParents(laws []LawKeys) {
	dirs := []string{markRoot, shapeRoot}
	for i := range laws {
		dirs = append(dirs, laws[i].pins)
	}
	for _, dir := range append(dirs, filepath.Dir(pinRoot)) {
		_ = os.Remove(dir) // fails if the directory is not empty
	}
}
