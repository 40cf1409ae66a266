package lab

import (
	"context"
	"errors"
	"fmt"

	"weir/datapath/repair"
	"weir/experiment"
	"weir/law"
	"weir/law/sed"
)

// SED returns the law `sed`: deadlines that programs declare to the agents of their hosts, the progress of flows that the switches' agents
// report, and windows that hosts write into ACKs.
func SED() Law {
	return sedOf(sed.Spec(), func(r *experiment.Run, name string) (sed.Params, error) {
		return law.Params[sed.Params](r.Params, name)
	})
}

// RSED returns the law `rsed`: SED, and switches that keep the segments that a full buffer would drop.
func RSED() Law {
	l := sedOf(sed.RepairSpec(), func(r *experiment.Run, name string) (sed.Params, error) {
		p, err := law.Params[sed.RepairParams](r.Params, name)
		return p.Params, err
	})
	check, start := l.Check, l.Start
	l.Check = func(r *experiment.Run, name string) error {
		p, err := law.Params[sed.RepairParams](r.Params, name)
		if err != nil {
			return err
		}
		if p.Repair != sed.RepairReinject {
			return fmt.Errorf("law %s: repair: %s is the simulator's: choose reinject, or run the scheme with worlds: [sim]", name, p.Repair)
		}
		return errors.Join(repair.Check(), check(r, name))
	}
	l.Start = func(ctx context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
		p, err := law.Params[sed.RepairParams](r.Params, name)
		if err != nil {
			return nil, err
		}
		base, err := start(ctx, l, r, name)
		if err != nil {
			return nil, err
		}
		// After the agents' programs, and so in front of them: they see a packet once.
		of, err := l.startRepair(r, name, p.Park)
		if err != nil {
			return nil, errors.Join(err, base.Close())
		}
		return &repaired{base, of}, nil
	}
	return l
}

// sedOf returns SED or RSED. params returns the parameters of SED.
func sedOf(spec law.Spec, params func(r *experiment.Run, name string) (sed.Params, error)) Law {
	l := Controlled(spec)
	check, start := l.Check, l.Start
	l.Check = func(r *experiment.Run, name string) error {
		p, err := params(r, name)
		if err != nil {
			return err
		}
		if p.Pause == sed.PauseZero {
			return fmt.Errorf("law %s: pause: zero is the simulator's: choose hold or floor, or run the scheme with worlds: [sim]", name)
		}
		return check(r, name)
	}
	l.Start = func(ctx context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
		p, err := params(r, name)
		if err != nil {
			return nil, err
		}
		if p.Pause == sed.PauseHold {
			l.unmet.add("all hosts", name+".pause", p.Pause, "a paused flow has a window of one segment (floor): hosts do not delay ACKs")
		}
		if p.First == sed.FirstBase {
			l.unmet.add("all hosts", name+".first", p.First, "a new flow has its own first window: hosts do not wait for the controller")
		}
		return start(ctx, l, r, name)
	}
	return l
}
