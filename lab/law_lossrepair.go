package lab

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"weir/agent/switchd/lossrepair"
	"weir/datapath/reading"
	"weir/datapath/repair"
	"weir/experiment"
	"weir/law"
	"weir/law/sed"
)

// LossRepair is `lossrepair` in the lab: switches keep the segments that a full buffer would drop.
func LossRepair() Law {
	return Law{
		Check: func(*experiment.Run, string) error { return repair.Check() },
		Start: func(_ context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
			p, err := law.Params[sed.LossRepairParams](r.Params, name)
			if err != nil {
				return nil, err
			}
			return l.startRepair(r, name, p.Park)
		},
	}
}

// repairs is the law at some switches.
type repairs struct {
	Quiet
	switches attachedSwitches
}

// startRepair attaches the law to the ports of these switches. most is the parameter park of the law.
func (l *Lab) startRepair(r *experiment.Run, name string, most law.Bytes) (*repairs, error) {
	w, params := &repairs{}, &sed.LossRepairParams{Park: most}
	for _, p := range l.Ports() {
		if !p.OfSwitch || !slices.Contains(r.At, p.Node) {
			continue
		}
		if at, err := params.At(p.Rate, p.Buffer); err == nil && at.Most < most {
			l.unmet.add(p.Node, name+".park", most.String(), "a port keeps what it sends in the time of a full buffer and 1 ms, and in 50 ms, at most")
		}
	}
	for _, node := range r.At {
		a, err := l.attachSwitch(node, r.Config.RTT, lossrepair.Law{Lease: labLease}, params)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		if a != nil {
			w.switches = append(w.switches, a)
		}
	}
	return w, nil
}

// Tally returns the sum of the counters at all ports.
func (w *repairs) Tally() (law.Tally, error) {
	t := law.Tally{}
	for _, a := range w.switches {
		ports, err := a.Stats()
		if err != nil {
			return nil, err
		}
		for i := range ports {
			countRepairs(t, ports[i].Repairs)
		}
	}
	return t, nil
}

// countRepairs adds what a port did.
func countRepairs(t law.Tally, p *reading.Repairs) {
	t[law.Repairs] += p.Repaired
	t[law.InTime] += p.InTime
	t[law.SentInTime] += p.SentInTime
	t[law.Kept] += p.Over + p.Behind - min(p.Refused, p.Over+p.Behind)
	t[law.LostFull] += p.Full
	t[law.LostOther] += p.Other
	t[law.ParkingFails] += p.Refused
	t[law.LongestUs] = max(t[law.LongestUs], uint64(p.Longest.Microseconds()))
}

// Close detaches the program, and lets the packets leave that wait.
func (w *repairs) Close() error { return w.switches.close() }

// repaired is a law with repairs at its switches.
type repaired struct {
	Attached
	repairs *repairs
}

// Tally returns the counters of both.
func (w *repaired) Tally() (law.Tally, error) {
	t, err := w.Attached.Tally()
	of, err2 := w.repairs.Tally()
	if err := cmp.Or(err, err2); err != nil {
		return nil, err
	}
	for name, n := range t {
		of[name] += n
	}
	return of, nil
}

// Close detaches both.
func (w *repaired) Close() error { return errors.Join(w.repairs.Close(), w.Attached.Close()) }
