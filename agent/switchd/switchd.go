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

// role is a switch at work.
type role struct {
	cfg      *Config
	rules    *rules // of cfg
	log      *slog.Logger
	fairq    *datapath.FairQ
	ports    map[string]datapath.FairQPort // those that FairQ is on
	refused  map[string]string             // those whose windows it cannot hold, and why: said once
	canaries map[string]*canary            // how far each port is from observing to enforcing
	tended   time.Time                     // when they were last read
	events   events                        // what metrics tell of
	metrics  *metrics.Server
}

// Run keeps FairQ on the ports that c names until ctx is done, and takes it off again: windows are let
// go within a second, then nothing is attached and no timer runs. Tables stay pinned for the next
// start, unless c.Purge. A port that goes and comes again, or comes later, is attached when it is there.
//
// It returns nil, too, when another process took over: that one goes on where this one was. Errors that
// can be told apart: those of datapath.AttachFairQ, and *NoRate.
func Run(ctx context.Context, c *Config) error {
	r := &role{
		cfg: c, rules: newRules(c.Ports), log: c.logger().With("switch", c.Name),
		ports: map[string]datapath.FairQPort{}, refused: map[string]string{},
	}
	// First, so that nothing changes unseen between the first look and this.
	w, err := newWatch()
	if err != nil {
		return err
	}
	defer w.close()
	if err := r.serveMetrics(); err != nil {
		return err
	}
	defer r.metrics.Close()
	if err := r.begin(); err != nil {
		return err
	}
	err = r.work(ctx, w)
	if errors.Is(err, datapath.ErrTakenOver) {
		r.log.Info("another process takes over: leaving the ports to it")
		return r.fairq.Leave()
	}
	if err != nil {
		// What is attached passes packets by itself once its lease is over.
		return errors.Join(err, r.fairq.Leave())
	}
	return r.end()
}

// begin attaches to the ports that are there. A port that was named and cannot be managed is an error:
// whoever starts a switch by hand learns it at once.
func (r *role) begin() error {
	const tries = 3 // a port that goes in between is no reason not to begin
	for try := 1; ; try++ {
		ports, err := r.firstPorts()
		if err != nil {
			return err
		}
		cfg, err := r.cfg.fairQ()
		if err != nil {
			return err
		}
		f, err := datapath.AttachFairQ(ports, cfg)
		if err == nil {
			r.fairq = f
			if err := f.ClearNotes(); err != nil {
				return errors.Join(err, f.Leave())
			}
			r.log.Info("begun", "version", r.cfg.Version, "ports", len(ports), "pinned", cfg.Pin)
			for _, p := range ports {
				r.attached(p)
			}
			r.sayMissing()
			return nil
		}
		again, lookErr := r.firstPorts()
		if try == tries || lookErr != nil || slices.Equal(names(ports), names(again)) {
			return err
		}
	}
}

func (r *role) firstPorts() ([]datapath.FairQPort, error) {
	found, err := r.look()
	if err != nil {
		return nil, err
	}
	var ports []datapath.FairQPort
	for i := range found {
		c := &found[i]
		switch {
		case c.err == nil:
			ports = append(ports, c.port())
		case c.byName:
			return nil, c.err
		default:
			r.refuse(c.name, c.err)
		}
	}
	return ports, nil
}

func names(ports []datapath.FairQPort) (out []string) {
	for _, p := range ports {
		out = append(out, fmt.Sprint(p.Name, p.Ifindex))
	}
	return out
}

// work beats and follows the devices until ctx is done.
func (r *role) work(ctx context.Context, w *watch) error {
	beat := time.NewTicker(datapath.FairQBeat)
	defer beat.Stop()
	look := time.NewTicker(lookAtLeast)
	defer look.Stop()
	tend := newPace(r.tendEvery())
	defer tend.stop()
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
			continue
		case now := <-tend.c:
			if err := r.tend(now); err != nil {
				r.log.Warn("cannot see to what is held", "error", err)
			}
			continue
		case <-pause:
			pause, changed = nil, w.changed
			continue
		case <-changed:
			// What comes in the meantime waits in the channel.
			pause, changed = time.After(lookAtMost), nil
		case <-look.C:
		}
		if err := r.follow(); err != nil {
			r.log.Warn("cannot follow the devices", "error", err)
		}
	}
}

// follow makes the ports that FairQ is on those that are there.
func (r *role) follow() error {
	found, err := r.look()
	if err != nil {
		return err
	}
	now := map[string]*candidate{}
	for i := range found {
		now[found[i].name] = &found[i]
	}
	gone := r.fairq.Gone()
	var errs []error
	for name, p := range r.ports {
		c := now[name]
		dead := slices.Contains(gone, name)
		byName := r.rules.byName(name)
		switch {
		case dead && byName && c == nil:
			r.refuse(name, errGone) // what is pinned stays: status tells that a port is missing
		case dead && byName && c.err != nil:
			r.refuse(name, c.err)
		case c == nil || c.ifindex != p.Ifindex:
			errs = append(errs, r.remove(name, "the device is gone"))
		case dead:
			errs = append(errs, r.remove(name, "somebody detached the program: attaching it again"))
		case c.err != nil:
			errs = append(errs, r.letGo(c))
		case c.law != p.Law || r.refused[name] != "":
			errs = append(errs, r.configure(c))
		}
	}
	for name := range r.refused {
		if _, on := r.ports[name]; !on && now[name] == nil {
			delete(r.refused, name)
		}
	}
	for _, c := range now {
		if _, on := r.ports[c.name]; on {
			continue
		}
		if c.err == nil {
			c.err = r.fairq.Attach(c.port())
		}
		if c.err != nil {
			r.refuse(c.name, c.err)
			continue
		}
		r.attached(c.port())
	}
	return errors.Join(errs...)
}

func (r *role) attached(p datapath.FairQPort) {
	delete(r.refused, p.Name)
	r.ports[p.Name] = p
	r.log.Info("attached", "port", p.Name, "ifindex", p.Ifindex,
		"buffer", law.Bytes(p.Law.BufferBytes).String(), "target", law.Bytes(p.Law.TargetBytes).String(),
		"window_limit", law.Bytes(p.Law.CapBytes).String())
}

func (r *role) remove(name, why string) error {
	delete(r.ports, name)
	r.log.Warn("detached", "port", name, "reason", why)
	return r.fairq.Remove(name)
}

var errGone = errors.New("the device is gone: waiting for it")

// letGo lets the windows of a port go that cannot be managed as it is now, and keeps its flows.
func (r *role) letGo(c *candidate) error {
	if r.refused[c.name] == c.err.Error() {
		return nil
	}
	r.refuse(c.name, c.err)
	return r.fairq.LetGo(c.name)
}

func (r *role) configure(c *candidate) error {
	delete(r.refused, c.name)
	p := r.ports[c.name]
	quiet := onlyPipe(p.Law, c.law)
	p.Law = c.law
	r.ports[c.name] = p
	if quiet {
		return r.fairq.Configure(c.name, c.law)
	}
	r.log.Info("its law changed", "port", c.name, "hold", c.law.Hold.String(), "buffer", law.Bytes(c.law.BufferBytes).String(),
		"target", law.Bytes(c.law.TargetBytes).String(), "window_limit", law.Bytes(c.law.CapBytes).String())
	return r.fairq.Configure(c.name, c.law)
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

// end lets windows go and takes FairQ off.
func (r *role) end() error {
	r.log.Info("letting windows go")
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	err := r.fairq.Release(ctx)
	if r.cfg.Purge {
		err = errors.Join(err, r.fairq.Close())
		removeParents()
	} else {
		err = errors.Join(err, r.fairq.Detach())
	}
	if err == nil {
		r.log.Info("detached from all ports")
	}
	return err
}

// Purge removes all that a switch left pinned, whatever became of its process: windows are let go, then
// programs, timers and tables go. *datapath.FairQBusy while a process lives.
func Purge(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := datapath.PurgeFairQ(pinDir(name)); err != nil {
		return err
	}
	removeParents()
	return nil
}

// removeParents removes the directories that all switches share, when none is left.
func removeParents() {
	if os.Remove(pinRoot) == nil {
		_ = os.Remove(filepath.Dir(pinRoot))
	}
}
