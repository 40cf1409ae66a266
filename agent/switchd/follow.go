package switchd

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"weir/law"
)

// follow attaches the laws to ports that appeared, and detaches them from ports that are gone.
func (r *role) follow() error {
	// First the programs, then the devices: the kernel takes a device from its list before it detaches the device's programs.
	gone := r.attached.Gone()
	found, err := r.look()
	if err != nil {
		return err
	}
	now := byName(found)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.ports)) {
		errs = append(errs, r.followPort(name, now[name], slices.Contains(gone, name)))
	}
	for name := range r.refused {
		if _, on := r.ports[name]; !on && now[name] == nil {
			delete(r.refused, name)
		}
	}
	for i := range found {
		c := &found[i]
		if _, on := r.ports[c.name]; on {
			continue
		}
		if c.err == nil {
			c.err = r.attachOne(c)
		}
		if c.err != nil {
			r.refuse(c.name, c.err)
			continue
		}
		r.noteAttached(c.port())
		r.alive()
	}
	_, err = r.marks.change(r.wantedMarks(now))
	return errors.Join(append(errs, err, r.restoreShapes(found))...)
}

func byName(found []candidate) map[string]*candidate {
	m := map[string]*candidate{}
	for i := range found {
		m[found[i].name] = &found[i]
	}
	return m
}

// followPort handles a port to which the law was attached. c is the device that has its name now, or nil. dead reports
// that the law's program is attached to no device any more.
func (r *role) followPort(name string, c *candidate, dead bool) error {
	p, byName := r.ports[name], r.rules.byName(name)
	switch {
	case dead && byName && c == nil:
		r.refuse(name, errGone) // the pins stay, so that status can report the missing port
	case dead && byName && c.err != nil:
		r.refuse(name, c.err)
	case c == nil || c.ifindex != p.Ifindex:
		return r.remove(name, "the device is gone")
	case dead:
		return r.remove(name, "somebody detached the program: attaching it again")
	case c.err != nil:
		return r.release(c)
	case c.toMake():
		_, err := r.shapeNew(c) // somebody removed the shaper that Weir made
		return err
	case c.has != c.tbf && c.tbf != tbf{}:
		return r.shapes.change(name, c.ifindex, c.tbf)
	case !slices.Equal(c.params, p.Params) || r.refused[name] != "":
		return r.configure(c)
	}
	return nil
}

// attachOne shapes a port if it is configured so, and attaches the law to it.
func (r *role) attachOne(c *candidate) error {
	if err := r.checkTaken(c.port().PortRef); err != nil {
		return err // checked before a shaper is made
	}
	undo, err := r.shapeNew(c)
	if err != nil {
		return err
	}
	if err := r.attached.Attach(c.port()); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// toMake reports whether the port needs a tbf that Weir has not made yet.
func (c *candidate) toMake() bool { return c.tbf != tbf{} && c.has == tbf{} }

// shapeNew makes a port's tbf if it needs one, and returns a function that removes it again.
func (r *role) shapeNew(c *candidate) (undo func() error, err error) {
	if !c.toMake() {
		return func() error { return nil }, nil
	}
	if err := r.shapes.make(c.name, c.ifindex, c.former, c.tbf); err != nil {
		return nil, err
	}
	r.log.Info("shaped", "port", c.name, "rate", c.tbf.Rate.String(), "buffer", law.Bytes(c.tbf.Limit).String(), "instead of", c.former)
	return func() error { return r.shapes.restore(c.ifindex) }, nil
}

// restoreShapes removes the tbf of ports that no longer need one.
func (r *role) restoreShapes(found []candidate) error {
	shaped := map[int]bool{}
	for i := range found {
		shaped[found[i].ifindex] = found[i].tbf != tbf{}
	}
	return r.shapes.restoreAll(func(ifindex int) bool { return shaped[ifindex] })
}

// wantedMarks returns the marking thresholds of the ports to which the law is attached and that mark, in bytes.
func (r *role) wantedMarks(now map[string]*candidate) map[markPort]uint32 {
	want := map[markPort]uint32{}
	for name, p := range r.ports {
		if c := now[name]; c != nil && c.err == nil && c.set.Mark.Threshold > 0 {
			want[markPort{name, p.Ifindex}] = uint32(c.set.Mark.Threshold)
		}
	}
	return want
}

func (r *role) remove(name, why string) error {
	if err := r.attached.Remove(name); err != nil {
		return err // tried again at the next look
	}
	delete(r.ports, name)
	r.log.Warn("detached", "port", name, "reason", why)
	return nil
}

var errGone = errors.New("the device is gone: waiting for it")

// release releases the windows of a port that cannot be managed at present. Its flows stay in the table.
func (r *role) release(c *candidate) error {
	if r.refused[c.name] == c.err.Error() {
		return nil
	}
	if err := r.attached.ReleasePort(c.name); err != nil {
		return err // tried again at the next look
	}
	r.refuse(c.name, c.err)
	return nil
}

func (r *role) configure(c *candidate) error {
	was := r.ports[c.name]
	p := PortLaws{was.PortRef, c.params}
	if err := r.attached.Attach(p); err != nil {
		return err // tried again at the next look
	}
	delete(r.refused, c.name)
	r.ports[c.name] = p
	if r.differs(was.Params, p.Params) != "" {
		f := c.params[0].Figures()
		r.log.Info("parameters of the port changed", append([]any{"port", c.name, "enforce", f.Mode.String()}, f.log()...)...)
	}
	return nil
}

// differs describes the differences between the parameters of the laws at a port; "": they follow from measurements only.
func (r *role) differs(was, is []Params) string {
	var out []string
	for i := range is {
		if is[i] == was[i] {
			continue
		}
		if text := is[i].Differs(was[i]); text != "" && len(is) > 1 {
			out = append(out, r.cfg.Laws[i].name+": "+text)
		} else if text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}
