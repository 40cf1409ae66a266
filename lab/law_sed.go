package lab

import (
	"fmt"

	"weir/experiment"
	"weir/law"
	"weir/law/sed"
)

// SED returns the law `sed`: deadlines that programs declare to the agents of their hosts, the progress of flows that the switches' agents
// report, and windows that hosts write into ACKs.
func SED() Law {
	l := Controlled(sed.Spec())
	check, start := l.Check, l.Start
	l.Check = func(r *experiment.Run, name string) error {
		p, err := law.Params[sed.Params](r.Params, name)
		if err != nil {
			return err
		}
		if p.Pause == sed.PauseZero {
			return fmt.Errorf("law %s: pause: zero is the simulator's: choose hold or floor, or run the scheme with worlds: [sim]", name)
		}
		return check(r, name)
	}
	l.Start = func(l *Lab, r *experiment.Run, name string) (Attached, error) {
		p, err := law.Params[sed.Params](r.Params, name)
		if err != nil {
			return nil, err
		}
		if p.Pause == sed.PauseHold {
			l.unmet.add("all hosts", name+".pause", p.Pause, "a paused flow has a window of one segment (floor): hosts do not delay ACKs")
		}
		if p.First == sed.FirstBase {
			l.unmet.add("all hosts", name+".first", p.First, "a new flow has its own first window: hosts do not wait for the controller")
		}
		return start(l, r, name)
	}
	return l
}
