package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// ErrNotLive is the error for a setting that cannot change while FairQ runs.
var ErrNotLive = errors.New("not while it runs: restart")

// Change changes what the ports have in common, while they run: scale, shrink, signed, edge mode, promises and credits,
// Watch and the scope. It ignores the rest of c. If the change needs other programs, they are replaced in their links, each
// between two packets; timers and tables continue. Change returns the function that undoes it. After an error
// nothing has changed.
//
// These settings cannot change live (ErrNotLive). (1) The size of the table, and whether VLANs count: the table would have other keys. (2) Count: the switch maintains a
// register only while it is used for counting, so at first there would be no flows. (3) Scale, to or from
// unify: connections keep the scale that their SYNs were changed to announce. (4) Shrink, from allow to avoid,
// or from edge mode, which acts as allow: the right edges granted before are unknown, so each flow would once
// be granted its receiver's whole window.
func (f *Attachment) Change(c Config) (undo func() error, err error) {
	was, next := f.cfg, f.cfg
	next.Count, next.Scale, next.Shrink, next.Scope, next.Edge = c.Count, c.Scale, c.Shrink, c.Scope, c.Edge
	next.UnifyShift, next.Flows, next.Signed, next.Watch, next.Credit = c.UnifyShift, c.Flows, c.Signed, c.Watch, c.Credit
	next = next.withDefaults()
	if err := next.check(nil); err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	unify := next.Scale == ScaleUnify
	switch {
	case unify != (was.Scale == ScaleUnify) || unify && next.UnifyShift != was.UnifyShift:
		return nil, fmt.Errorf("scale unify, to it, from it, or to another shift: %w", ErrNotLive)
	case next.Count != was.Count:
		return nil, fmt.Errorf("count: %w", ErrNotLive)
	case c.IgnoreVLANs != was.IgnoreVLANs:
		return nil, fmt.Errorf("vlans: %w", ErrNotLive)
	case next.Flows != was.Flows:
		return nil, fmt.Errorf("flows: %w with --renew", ErrNotLive)
	case next.shrink() == ShrinkAvoid && was.shrink() == ShrinkAllow:
		from := "shrink from allow"
		if was.Edge.Interval != 0 {
			from = "edge mode"
		}
		return nil, fmt.Errorf("%s to avoid: %w", from, ErrNotLive)
	}
	if err := f.change(next); err != nil {
		return nil, fmt.Errorf("fairq: %w", err)
	}
	return func() error { return f.change(was) }, nil
}

func (f *Attachment) change(next Config) error {
	was := f.cfg
	if next.constants() == was.constants() {
		f.cfg.Scope, f.cfg.Watch = next.Scope, next.Watch
		if err := f.setScope(); err != nil {
			f.cfg.Scope, f.cfg.Watch = was.Scope, was.Watch
			return errors.Join(err, f.setScope())
		}
		return f.setWatch(nil)
	}
	opened, err := f.openParks(&next)
	if err == nil {
		err = f.replace(next)
	}
	if err != nil {
		f.cfg = was
		return errors.Join(err, f.setScope(), f.closeParks(opened))
	}
	if next.Credit == was.Credit {
		return f.setWatch(nil)
	}
	err = f.configureAll() // also the parkings' ports
	if next.Credit != CreditPaces {
		err = errors.Join(err, f.leaveParks(true)) // nothing is parked any more
	}
	return errors.Join(err, f.setWatch(nil))
}

// constants returns the programs' constants, which are set when they are loaded.
func (c *Config) constants() any {
	return struct {
		Count
		Scale
		Shrink
		EdgeMode
		Signed
		Credit
		shift  uint8
		scoped bool
	}{c.Count, c.Scale, c.Shrink, c.Edge, c.Signed, c.Credit, c.UnifyShift, len(c.Scope) > 0}
}

// replace loads programs with other constants and puts them in the place of those that run. It adds prefixes of
// the scope before programs that use them, and removes others afterwards.
func (f *Attachment) replace(next Config) (err error) {
	var source *programSource
	var control *controlPrograms
	var loaded []*ebpf.Program
	defer func() {
		if err != nil {
			for _, p := range loaded {
				_ = p.Close()
			}
			_ = control.close()
		}
	}()
	err = f.withHeartbeats(func() (err error) {
		if source, err = newSource(&next); err != nil {
			return err
		}
		if control, err = source.loadControl(f.maps); err != nil {
			return err
		}
		for i := range f.ports {
			p, err := source.loadPort(f.ports[i].id, f.maps, f.parkMaps(f.ports[i].cookie))
			if err != nil {
				return fmt.Errorf("port %s: %w", f.ports[i].Name, err)
			}
			loaded = append(loaded, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	scoped := len(next.Scope) > 0
	if scoped {
		f.cfg.Scope = next.Scope
		if err := f.setScope(); err != nil {
			return err
		}
	}
	before := f.control
	if done, err := f.swap(control, loaded); err != nil {
		// Put the former programs in their place again: none of them was closed.
		_, back := f.swap(before, f.programs()[:done])
		return errors.Join(err, back)
	}
	// From here on no error is worth a return to the former programs.
	for i := range f.ports {
		_ = f.ports[i].program.Close()
		f.ports[i].program = loaded[i]
	}
	_ = before.close()
	f.source, f.cfg = source, next
	if !scoped {
		_ = f.setScope() // no program reads the prefixes that could remain
	}
	return nil
}

// withHeartbeats runs do and sends heartbeats meanwhile: on a busy machine a single load may take longer than a lease.
func (f *Attachment) withHeartbeats(do func() error) error {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	err := f.heartbeat()
	go func() {
		heartbeats := time.NewTicker(HeartbeatInterval)
		defer heartbeats.Stop()
		var err error
		for {
			select {
			case <-stop:
				stopped <- err
				return
			case <-heartbeats.C:
				err = errors.Join(err, f.heartbeat())
			}
		}
	}()
	if err == nil {
		err = do()
	}
	close(stop)
	return errors.Join(err, <-stopped)
}

func (f *Attachment) programs() (all []*ebpf.Program) {
	for i := range f.ports {
		all = append(all, f.ports[i].program)
	}
	return all
}

// swap puts programs into the links of the first ports and makes their timers run those of control. It returns
// the number of ports that it changed.
func (f *Attachment) swap(control *controlPrograms, programs []*ebpf.Program) (done int, err error) {
	f.shared.Lock()
	f.control = control
	f.shared.Unlock()
	for i, p := range programs {
		port := &f.ports[i]
		if !attach.HasDevice(port.link) {
			continue
		}
		if err := port.link.Update(p); err != nil && attach.HasDevice(port.link) { // the device may vanish in between
			return i + 1, fmt.Errorf("replace the program of %s: %w", port.Name, err)
		}
		if err := f.arm(port.id); err != nil {
			return i + 1, fmt.Errorf("port %s: %w", port.Name, err)
		}
	}
	return len(programs), nil
}

// On reports whether FairQ is on a port of this name.
func (f *Attachment) On(port string) bool { return f.index(port) >= 0 }
