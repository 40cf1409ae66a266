package switchd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weir/datapath/attach"
	"weir/datapath/reading"
	"weir/law"
)

// releaseLimit is the time for releasing the windows at the end.
const releaseLimit = time.Second

// Setting is a law of a switch with its configuration of all ports.
type Setting struct {
	Law    Law
	Common Common
}

// PortLaws is a port with the parameters of each law there, in the order of the laws.
type PortLaws struct {
	attach.PortRef
	Params []Params
}

// Attached is a list of laws at the ports of one switch: it attaches them, sends their heartbeats, changes, releases and
// detaches them. `weir switch` and the lab run laws with it. Only the heartbeat runs in a goroutine of its own.
type Attached struct {
	settings  []Setting
	running   []Running
	ports     map[string]PortLaws // nil: Attach was not called
	heartbeat *heartbeat          // nil: none is sent
}

// Own locks the pins of the laws, so that no other process begins there. Nothing is attached yet. The error is a
// *law.ConflictError if two of the laws cannot run at one place, or that of a law's Own.
func Own(settings ...Setting) (*Attached, error) {
	var specs []*law.Spec
	for i := range settings {
		specs = append(specs, settings[i].Law.Facts().Spec)
	}
	if err := law.Compose(specs...); err != nil {
		return nil, err
	}
	a := &Attached{settings: settings}
	for i := range settings {
		r, err := settings[i].Law.Own(&settings[i].Common)
		if err == nil {
			a.running = append(a.running, r)
			err = a.Heartbeat() // a law takes time to load, and the leases of those before it are short
		}
		if err != nil {
			return nil, errors.Join(err, a.End(Detach))
		}
	}
	return a, nil
}

// ParamsAt returns the parameters of each law at a port; keys has its keys of the port, in the order of the laws.
func ParamsAt(laws []Law, site Site, keys []any) (out []Params, err error) {
	for i, l := range laws {
		p, err := l.At(site, keys[i])
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// of returns the ports with the parameters of the i-th law.
func of(i int, ports []PortLaws) (out []LawPort) {
	for _, p := range ports {
		out = append(out, LawPort{p.PortRef, p.Params[i]})
	}
	return out
}

// Attach attaches all laws to ports; a port that has them already gets these parameters. The first call also takes over
// what an earlier process left pinned, and gives up the pinned ports that are not listed. After an error of the first call
// only End may follow; after an error of another call with one port, nothing has changed.
func (a *Attached) Attach(ports ...PortLaws) error {
	for i, r := range a.running {
		if err := r.Attach(of(i, ports)...); err != nil {
			return errors.Join(err, a.back(i, ports))
		}
	}
	if a.ports == nil {
		a.ports = map[string]PortLaws{}
	}
	for _, p := range ports {
		a.ports[p.Name] = p
	}
	return nil
}

// back gives ports the state before an Attach that failed at the i-th law.
func (a *Attached) back(i int, ports []PortLaws) error {
	var errs []error
	if a.ports == nil {
		return nil // End follows
	}
	for k, r := range a.running[:i] {
		for _, p := range ports {
			if was, on := a.ports[p.Name]; on {
				errs = append(errs, r.Attach(of(k, []PortLaws{was})...))
			} else {
				errs = append(errs, r.Remove(p.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// each calls do for all laws, and joins the errors.
func (a *Attached) each(do func(Running) error) error {
	var errs []error
	for _, r := range a.running {
		errs = append(errs, do(r))
	}
	return errors.Join(errs...)
}

// ReleasePort releases a port's flows gradually. The laws stay attached, and Attach limits its flows again.
func (a *Attached) ReleasePort(port string) error {
	return a.each(func(r Running) error { return r.ReleasePort(port) })
}

// Remove releases the flows of ports and detaches the laws from them.
func (a *Attached) Remove(ports ...string) error {
	if err := a.each(func(r Running) error { return r.Remove(ports...) }); err != nil {
		return err
	}
	for _, p := range ports {
		delete(a.ports, p)
	}
	return nil
}

// Gone lists the ports to which the programs of a law are no longer attached.
func (a *Attached) Gone() (ports []string) {
	for _, r := range a.running {
		ports = append(ports, r.Gone()...)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// Change changes what all ports share. It returns the function that undoes it. After an error nothing has changed.
func (a *Attached) Change(to ...Setting) (undo func() error, err error) {
	var t transaction
	for i, r := range a.running {
		undo, err := r.Change(&to[i].Common)
		if err != nil {
			return nil, errors.Join(err, t.back())
		}
		t.done(undo, "")
	}
	was := a.settings
	a.settings = to
	t.done(func() error { a.settings = was; return nil }, "")
	return t.back, nil
}

// Stats reads the first law's figures of ports; none listed: of all.
func (a *Attached) Stats(ports ...string) ([]reading.Stats, error) {
	return a.running[0].Stats(ports...)
}

// EachFlow calls do for the flows that the first law knows, until do returns false.
func (a *Attached) EachFlow(do func(port string, f reading.Flow) bool) error {
	return a.running[0].EachFlow(do)
}

// Note sets a port's note, for status; text "" removes it, and port "" removes all.
func (a *Attached) Note(port, text string) error {
	return a.each(func(r Running) error { return r.Note(port, text) })
}

// Has reports whether the laws are attached to the port.
func (a *Attached) Has(port string) bool {
	_, on := a.ports[port]
	return on
}

// Heartbeat shows the kernel programs that this process runs. Begin calls it repeatedly.
func (a *Attached) Heartbeat() error { return a.each(Running.Heartbeat) }

// Begin begins to send heartbeats in a goroutine of its own. With permits they stop a few seconds after the last Permit;
// otherwise they continue until End.
func (a *Attached) Begin(permits bool) { a.heartbeat = newHeartbeat(a.Heartbeat, permits) }

// beginAgain begins to send heartbeats again after a process asked for the pins that does not ask any more: it did not wait as long as this
// process was busy. Otherwise it returns an error.
func (a *Attached) beginAgain(failed error) error {
	if !errors.Is(failed, attach.ErrTakenOver) {
		return failed
	}
	if err := a.Heartbeat(); err != nil {
		return err
	}
	a.Begin(!a.heartbeat.always)
	return nil
}

// Permit allows heartbeats for some more seconds.
func (a *Attached) Permit() { a.heartbeat.permit() }

// Failed returns the channel of the error that stopped the heartbeats, at most one.
func (a *Attached) Failed() <-chan error { return a.heartbeat.failed }

// Release ends the heartbeats and releases all flows, within a second.
func (a *Attached) Release() error {
	a.heartbeat.stop()
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	errs := make([]error, len(a.running))
	var all sync.WaitGroup
	for i, r := range a.running {
		all.Go(func() { errs[i] = r.Release(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// End ends the heartbeats and the laws, the last law first.
func (a *Attached) End(how Ending) error {
	a.heartbeat.stop()
	var errs []error
	for _, r := range slices.Backward(a.running) {
		errs = append(errs, r.End(how))
	}
	a.running = nil
	return errors.Join(errs...)
}
