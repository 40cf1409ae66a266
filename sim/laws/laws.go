// Package laws puts the control laws of a run on the ports of a simulated network. The C of datapath/core decides about
// packets, through cgo. A build without cgo refuses such laws.
package laws

import (
	"fmt"
	"time"

	"weir/experiment"
	"weir/experiment/result"
	"weir/law"
	"weir/sim/network"
)

// Law is a control law in the simulator.
type Law struct {
	// Check returns an error if the law cannot do here what the run asks for. nil: it can do everything.
	Check func(r *experiment.Run, name string) error
	// Put puts the law on the ports of the switches in r.At, and on hosts if it works there.
	Put func(n *network.Network, r *experiment.Run, name string) (Attached, error)
	// Report is the Report of the law's Spec.
	Report func(law.Tally) ([]law.Value, []string)
}

// Attached is a law that was put on a network. Embed Quiet for the methods that a law does not need.
type Attached interface {
	// Sample appends the law's values for a port now: those of its metrics of kind law.OverTime.
	Sample(p *network.Port, out []law.Value) []law.Value
	// Tally returns the law's counts at all ports; nil: it counts nothing.
	Tally() law.Tally
	// Close frees memory outside of Go's heap, and stops the law's timers.
	Close()
}

// watcher is an Attached that looks at what the laws of a run do to packets.
type watcher interface {
	// Last is called when all laws of the run were put.
	Last() error
}

// Declaration is what an application declares for a flow: the message that it begins now.
type Declaration struct {
	From, To         network.NodeID // of the data
	FromPort, ToPort uint16
	Left             time.Duration // until the deadline
	Bytes            uint64        // 0: not known
}

// declarer is an Attached that takes declarations.
type declarer interface{ Declare(d Declaration) }

// Quiet is a law that measures nothing of itself and has nothing to free.
type Quiet struct{}

// Sample appends nothing.
func (Quiet) Sample(_ *network.Port, out []law.Value) []law.Value { return out }

// Tally returns nil.
func (Quiet) Tally() law.Tally { return nil }

// Close does nothing.
func (Quiet) Close() {}

// Laws are the simulator's laws, by name.
type Laws map[string]Law

// Check returns an error for the first law of r that this build lacks or cannot run.
func (ls Laws) Check(r *experiment.Run) error {
	for _, name := range r.Laws {
		l, ok := ls[name]
		if !ok {
			return fmt.Errorf("the simulator has no law %s: run this experiment in the lab", name)
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

// Put puts the laws of r, in their order, on the ports of the switches in r.At, and on hosts if they work there. A
// packet passes them in that order. After an error no law stays at a port; a host that is shaped stays so.
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
	for _, l := range s.laws {
		if w, is := l.Attached.(watcher); is {
			if err := w.Last(); err != nil {
				s.Close()
				return nil, fmt.Errorf("scheme %s: law %s: %w", r.Scheme, l.name, err)
			}
		}
	}
	return s, nil
}

// Set is the laws of a run, attached to its network.
type Set struct {
	net  *network.Network
	laws []atWork
}

type atWork struct {
	name   string
	report func(law.Tally) ([]law.Value, []string)
	Attached
}

// Sample appends the laws' values for a port now.
func (s *Set) Sample(p *network.Port, out []law.Value) []law.Value {
	for _, l := range s.laws {
		out = l.Sample(p, out)
	}
	return out
}

// Tallies returns the laws' counts, in their order.
func (s *Set) Tallies() []law.Tally {
	var out []law.Tally
	for _, l := range s.laws {
		out = append(out, l.Tally())
	}
	return out
}

// Declare passes a declaration to the laws that take one.
func (s *Set) Declare(d Declaration) {
	for _, l := range s.laws {
		if t, is := l.Attached.(declarer); is {
			t.Declare(d)
		}
	}
}

// Report returns totals of what was counted since before (Tallies), and what kept laws from working as they should.
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

// Close removes all laws from the ports and frees their memory.
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
