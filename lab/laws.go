package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/datapath/attach"
	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
)

// Law is a control law in the lab.
type Law struct {
	// Check returns, before anything is built, why this machine or the law's lab form cannot do a run. nil: it can
	// do all.
	Check func(r *experiment.Run, name string) error
	// Start attaches the law to the switches in r.At, and to all other places where it runs. It waits for the law's processes until
	// ctx is cancelled.
	Start func(ctx context.Context, l *Lab, r *experiment.Run, name string) (Attached, error)
	// Hardware returns the law for topology.switch: rtl, or why it cannot do a run. It then replaces Check and Start. nil: the
	// hardware does not have the law.
	Hardware func(r *experiment.Run, name string) (Hardware, error)
	// Commanded: the lab's controller must command the switches, and the law runs in it.
	Commanded bool
	// Stays: the law continues after its process ends, without a call of Close.
	Stays bool
	// Report is that of the law's Spec.
	Report func(law.Tally) ([]law.Value, []string)
}

// Attached is a law that was attached. Quiet has the methods of most laws.
type Attached interface {
	// Has reports whether Sample returns metrics of the port, "switch->receiver1".
	Has(port string) bool
	// Sample returns the law's current metrics of a port, those of kind law.OverTime.
	Sample(port string) ([]law.Value, error)
	// Tally returns the law's counters so far, over all ports; nil: it counts nothing. A *BrokenError reports that the
	// law no longer works.
	Tally() (law.Tally, error)
	// Close detaches the law.
	Close() error
}

// BrokenError reports that a part of a law has ended or does nothing. The measurements are then not those of the law.
type BrokenError struct{ error }

// Quiet is a law without metrics.
type Quiet struct{}

// Has returns false.
func (Quiet) Has(string) bool { return false }

// Sample returns nothing.
func (Quiet) Sample(string) ([]law.Value, error) { return nil, nil }

// Tally returns nil.
func (Quiet) Tally() (law.Tally, error) { return nil, nil }

// Close does nothing.
func (Quiet) Close() error { return nil }

// Laws are the lab's laws, by name.
type Laws map[string]Law

// Check returns which law of r this build lacks or cannot run here, or nil.
func (ls Laws) Check(r *experiment.Run) error {
	if r.Config.Control != nil {
		return fmt.Errorf("scheme %s: network.control_delay, control_jitter and control_loss are the simulator's: in the lab messages of a controller law take the time that the bus takes; remove these keys, or run the scheme with worlds: [sim]", r.Scheme)
	}
	for _, name := range r.Laws {
		l, ok := ls[name]
		if !ok {
			return fmt.Errorf("scheme %s: the lab has no law %q", r.Scheme, name)
		}
		if l.Check == nil && !inHardware(r) {
			continue
		}
		if err := l.check(r, name); err != nil {
			return fmt.Errorf("scheme %s: %w", r.Scheme, err)
		}
	}
	return nil
}

// inHardware reports whether the switches of a run carry out its laws themselves.
func inHardware(r *experiment.Run) bool { return r.Config.Switch == "rtl" }

func (w Law) check(r *experiment.Run, name string) error {
	if !inHardware(r) {
		return w.Check(r, name)
	}
	if w.Hardware == nil || len(r.Laws) > 1 {
		return fmt.Errorf("topology.switch rtl cannot run %s: use one law that the hardware has, or bridge", strings.Join(r.Laws, ", "))
	}
	_, err := w.Hardware(r, name)
	return err
}

func (w Law) start(ctx context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
	if !inHardware(r) {
		return w.Start(ctx, l, r, name)
	}
	h, err := w.Hardware(r, name)
	if err != nil {
		return nil, err
	}
	return l.startHardware(r, h)
}

// Commanded reports whether a law of r runs in the controller of the switches.
func (ls Laws) Commanded(r *experiment.Run) bool {
	return slices.ContainsFunc(r.Laws, func(name string) bool { return ls[name].Commanded })
}

// NeedProcess reports whether a law of r works only while the process that attached it runs.
func (ls Laws) NeedProcess(r *experiment.Run) bool {
	return slices.ContainsFunc(r.Laws, func(name string) bool { return !ls[name].Stays })
}

// Enforce attaches the laws of r, in their order, to the lab's switches, if Check permits them. stop detaches them.
// If ctx is cancelled meanwhile, nothing stays attached.
func (l *Lab) Enforce(ctx context.Context, r *experiment.Run, ls Laws) (stop func() error, err error) {
	if err := ls.Check(r); err != nil {
		return nil, err
	}
	stop = func() error {
		var errs []error
		for _, at := range slices.Backward(l.laws) {
			errs = append(errs, at.Close())
		}
		l.laws = nil
		return errors.Join(errs...)
	}
	for _, name := range r.Laws {
		at, err := ls[name].start(ctx, l, r, name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("scheme %s: %w", r.Scheme, err), stop())
		}
		l.laws = append(l.laws, attachedLaw{name, ls[name].Report, at})
	}
	return stop, nil
}

// attachedLaw is an attached law with its name.
type attachedLaw struct {
	name   string
	report func(law.Tally) ([]law.Value, []string)
	Attached
}

// lawTotals returns what the laws counted, and what kept them from working as intended.
func (l *Lab) lawTotals() (totals []law.Value, unmet []result.Unmet) {
	for _, at := range l.laws {
		t, err := at.Tally()
		switch broken := (*BrokenError)(nil); {
		case errors.As(err, &broken):
			unmet = append(unmet, result.UnmetTexts(at.name, result.Fatal, fmt.Sprintf("%s: %v", at.name, broken))...)
		case err != nil:
			unmet = append(unmet, result.UnmetTexts(at.name, result.Warning, fmt.Sprintf("%s: its counters cannot be read: %v", at.name, err))...)
		}
		if t == nil || at.report == nil {
			continue
		}
		values, trouble := at.report(t)
		totals = append(totals, values...)
		unmet = append(unmet, result.UnmetTexts(at.name, result.Warning, trouble...)...)
	}
	return totals, unmet
}

// switchPorts returns the ports of the switches that run the scheme's laws.
func (l *Lab) switchPorts(at []string) []attach.PortRef {
	var ports []attach.PortRef
	for _, p := range l.Ports() {
		if !p.OfSwitch || !slices.Contains(at, p.Node) {
			continue
		}
		ports = append(ports, l.PortRef(p))
	}
	return ports
}
