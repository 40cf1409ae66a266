package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// ErrNotLive is the error for what cannot be changed while FairQ works.
var ErrNotLive = errors.New("not while it runs: restart")

// Change changes what the ports have in common, while they work: scale, shrink, signed, edge mode, Watch and the scope; the
// rest of c is not looked at. Where that takes other programs, they are replaced in their links,
// each between two packets; timers tick on, tables stay. It gives what undoes that. With an error everything
// is as it was.
//
// Four things do not change live (ErrNotLive). The size of the table. Count: either register is kept only while
// it counts, so there would be no flows at first. Scale unify, to it and from it: connections believe what their SYNs were made to
// say. And shrink from allow, or from edge mode, which acts as that, to avoid: the right edges that senders were
// granted are not known then, so each flow would be granted its receiver's whole window once.
func (f *Attachment) Change(c Config) (undo func() error, err error) {
	was, next := f.cfg, f.cfg
	next.Count, next.Scale, next.Shrink, next.Scope, next.Edge = c.Count, c.Scale, c.Shrink, c.Scope, c.Edge
	next.UnifyShift, next.Flows, next.Signed, next.Watch = c.UnifyShift, c.Flows, c.Signed, c.Watch
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
	if err := f.replace(next); err != nil {
		f.cfg = was
		return errors.Join(err, f.setScope())
	}
	return f.setWatch(nil)
}

// constants are those of the programs, which are set when they are loaded.
func (c *Config) constants() any {
	return struct {
		Count
		Scale
		Shrink
		EdgeMode
		Signed
		shift  uint8
		scoped bool
	}{c.Count, c.Scale, c.Shrink, c.Edge, c.Signed, c.UnifyShift, len(c.Scope) > 0}
}

// replace loads programs with other constants and puts them in the place of those at work. The prefixes
// of the scope are there before programs that ask for them, and go after those.
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
	err = f.beating(func() (err error) {
		if source, err = newSource(&next); err != nil {
			return err
		}
		if control, err = source.loadControl(f.maps); err != nil {
			return err
		}
		for i := range f.ports {
			p, err := source.loadPort(f.ports[i].id, f.maps)
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
		// What was loaded before takes its place again; nothing of it was closed.
		_, back := f.swap(before, f.programs()[:done])
		return errors.Join(err, back)
	}
	// From here on nothing can go wrong that would be worth going back for.
	for i := range f.ports {
		_ = f.ports[i].program.Close()
		f.ports[i].program = loaded[i]
	}
	_ = before.close()
	f.source, f.cfg = source, next
	if !scoped {
		_ = f.setScope() // nobody asks for what would be left
	}
	return nil
}

// beating does what takes long, and beats meanwhile: on a busy machine a single load may take longer than a
// lease lasts.
func (f *Attachment) beating(do func() error) error {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	err := f.heartbeat()
	go func() {
		beat := time.NewTicker(HeartbeatInterval)
		defer beat.Stop()
		var err error
		for {
			select {
			case <-stop:
				stopped <- err
				return
			case <-beat.C:
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

// swap puts programs into the links of the first ports and has their timers run those of control. It says
// of how many ports anything was changed.
func (f *Attachment) swap(control *controlPrograms, programs []*ebpf.Program) (done int, err error) {
	f.shared.Lock()
	f.control = control
	f.shared.Unlock()
	for i, p := range programs {
		port := &f.ports[i]
		if !attach.HasDevice(port.link) {
			continue
		}
		if err := port.link.Update(p); err != nil && attach.HasDevice(port.link) { // it may go in between
			return i + 1, fmt.Errorf("replace the program of %s: %w", port.Name, err)
		}
		if err := f.arm(port.id); err != nil {
			return i + 1, fmt.Errorf("port %s: %w", port.Name, err)
		}
	}
	return len(programs), nil
}

// On says whether FairQ is on a port of this name.
func (f *Attachment) On(port string) bool { return f.index(port) >= 0 }
