// Package laws puts the control laws of a run on the ports of a simulated network. What is done with a packet is
// what the C of datapath/core says, by cgo; a build without cgo refuses such a law.
package laws

import (
	"fmt"

	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/network"
)

// Law is a control law in the simulator.
type Law struct {
	// Check says what of a run the law cannot do here; nil: it can do all.
	Check func(r *experiment.Run, name string) error
	// Put puts the law to work on the ports of the switches in r.At, and on what else it works on.
	Put func(n *network.Network, r *experiment.Run, name string) (AtWork, error)
	// Report is that of the law's Spec.
	Report func(law.Tally) ([]law.Value, []string)
}

// AtWork is a law that was put to work. Quiet has what most laws say.
type AtWork interface {
	// Sample appends what the law holds of a port now: values of its metrics of kind law.OverTime.
	Sample(p *network.Port, out []law.Value) []law.Value
	// Tally is what it counted so far, at all ports; nil: it counts nothing.
	Tally() law.Tally
	// Close frees what it holds outside of Go's memory, and stops its timers.
	Close()
}

// Quiet is a law that measures nothing of itself and holds nothing.
type Quiet struct{}

// Sample has nothing to add.
func (Quiet) Sample(_ *network.Port, out []law.Value) []law.Value { return out }

// Tally is nil.
func (Quiet) Tally() law.Tally { return nil }

// Close does nothing.
func (Quiet) Close() {}

// Laws are the simulator's laws, by name.
type Laws map[string]Law

// Check says which law of r this build lacks or cannot run, or nil.
func (ls Laws) Check(r *experiment.Run) error {
	for _, name := range r.Laws {
		l, ok := ls[name]
		if !ok {
			return fmt.Errorf("the simulator has no law %s", name)
		}
		if l.Check == nil {
			continue
		}
		if err := l.Check(r, name); err != nil {
			return err
		}
	}
	return nil
}

// Put puts the laws of r, in their order, on the ports of the switches in r.At, and on what else they work
// on. A packet passes them in that order. On an error no law stays at a port; a host that is shaped stays so.
func (ls Laws) Put(n *network.Network, r *experiment.Run) (*Set, error) {
	if err := ls.Check(r); err != nil {
		return nil, err
	}
	s := &Set{net: n}
	for _, name := range r.Laws {
		at, err := ls[name].Put(n, r, name)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("scheme %s: %w", r.Scheme, err)
		}
		s.laws = append(s.laws, atWork{name, ls[name].Report, at})
	}
	return s, nil
}

// Set is the laws of a run, at work.
type Set struct {
	net  *network.Network
	laws []atWork
}

type atWork struct {
	name   string
	report func(law.Tally) ([]law.Value, []string)
	AtWork
}

// Sample appends what the laws hold of a port now.
func (s *Set) Sample(p *network.Port, out []law.Value) []law.Value {
	for _, l := range s.laws {
		out = l.Sample(p, out)
	}
	return out
}

// Tallies are what the laws counted so far, in their order.
func (s *Set) Tallies() []law.Tally {
	var out []law.Tally
	for _, l := range s.laws {
		out = append(out, l.Tally())
	}
	return out
}

// Report says what was counted since before (Tallies), and what kept laws from working as they should.
func (s *Set) Report(before []law.Tally) (totals []law.Value, unmet []result.Unmet) {
	for i, t := range s.Tallies() {
		l := &s.laws[i]
		if t == nil || l.report == nil {
			continue
		}
		values, trouble := l.report(t.Since(before[i]))
		totals = append(totals, values...)
		unmet = append(unmet, result.UnmetTexts(l.name, result.Warning, trouble...)...)
	}
	return totals, unmet
}

// Close takes all laws off the ports and frees what they hold.
func (s *Set) Close() {
	for _, l := range s.laws {
		l.Close()
	}
	for _, p := range s.net.Ports {
		p.SetLaws()
	}
	s.net.SetGuards()
}

// add puts l behind the laws that p has.
func add(p *network.Port, l network.Law) { p.SetLaws(append(p.Laws(), l)...) }
