package lab

import (
	"cmp"
	"errors"
	"slices"

	"weir/datapath/repair"
	"weir/experiment"
	"weir/law"
	"weir/law/sed"
)

// LossRepair is `lossrepair` in the lab: switches keep the segments that a full buffer would drop.
func LossRepair() Law {
	return Law{
		Check: func(*experiment.Run, string) error { return repair.Check() },
		Start: func(l *Lab, r *experiment.Run, name string) (Attached, error) {
			p, err := law.Params[sed.LossRepairParams](r.Params, name)
			if err != nil {
				return nil, err
			}
			return l.startRepair(r.At, name, p.Park)
		},
	}
}

// repairs is the program at the ports of some switches.
type repairs struct {
	Quiet
	switches []*repair.Repair
}

// startRepair attaches the program to the ports of these switches. most is the parameter park of the law.
func (l *Lab) startRepair(at []string, name string, most law.Bytes) (*repairs, error) {
	w := &repairs{}
	for _, node := range at {
		var ports []repair.Port
		for _, p := range l.Ports() {
			if !p.OfSwitch || p.Node != node {
				continue
			}
			one := repair.Port{PortRef: l.PortRef(p), Bps: uint64(p.Rate), Queue: uint32(p.Buffer), Park: uint32(most)}
			if law.Bytes(one.Kept()) < most {
				l.unmet.add(node, name+".park", most.String(), "a port keeps what it sends in the time of a full buffer and 1 ms, and in 50 ms, at most")
			}
			ports = append(ports, one)
		}
		r, err := repair.Attach(ports, "weir lab")
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.switches = append(w.switches, r)
	}
	return w, nil
}

// Tally returns the sum of the counters at all ports.
func (w *repairs) Tally() (law.Tally, error) {
	t := law.Tally{}
	for _, r := range w.switches {
		ports, err := r.Stats()
		if err != nil {
			return nil, err
		}
		for i := range ports {
			p := &ports[i]
			t[sed.Repairs] += p.Repaired
			t[sed.InTime] += p.InTime
			t[sed.SentInTime] += p.SentInTime
			t[sed.Kept] += p.Over + p.Behind - min(p.Refused, p.Over+p.Behind)
			t[sed.LostFull] += p.Full
			t[sed.LostOther] += p.Other
			t[sed.ParkingFails] += p.Refused
			t[sed.LongestUs] = max(t[sed.LongestUs], uint64(p.Longest.Microseconds()))
		}
	}
	return t, nil
}

// Close detaches the program, and lets the packets leave that wait.
func (w *repairs) Close() error {
	var errs []error
	for _, r := range slices.Backward(w.switches) {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

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
