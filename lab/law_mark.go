package lab

import (
	"weir/datapath/mark"
	"weir/experiment"
	"weir/law"
	marklaw "weir/law/mark"
)

// Mark is `ecn` and `red` in the lab.
func Mark() Law {
	return Law{Check: func(*experiment.Run, string) error { return mark.Check() }, Start: startMark}
}

type marker struct {
	Quiet
	*mark.Mark
}

// Close detaches the program.
func (m marker) Close() error { return m.Mark.Close() }

func startMark(l *Lab, r *experiment.Run, name string) (Attached, error) {
	params, err := law.Params[marklaw.Params](r.Params, name)
	if err != nil {
		return nil, err
	}
	cfg := mark.Config{ThresholdBytes: uint32(params.Threshold.Bytes()), Action: mark.ActionMark, NotECT: mark.NotECTPass}
	if name == marklaw.RED {
		cfg.Action = mark.ActionDrop
	}
	if params.NotECT == marklaw.Drop {
		cfg.NotECT = mark.NotECTDrop
	}
	marking, err := mark.Attach(l.switchPorts(r.At), cfg)
	if err != nil {
		return nil, err
	}
	return marker{Mark: marking}, nil
}
