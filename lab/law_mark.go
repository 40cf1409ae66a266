package lab

import (
	"context"
	"errors"
	"fmt"
	"math"

	"weir/datapath/mark"
	"weir/experiment"
	"weir/law"
	marklaw "weir/law/mark"
)

// Mark is `ecn` and `red` in the lab.
func Mark() Law {
	return Law{Check: func(*experiment.Run, string) error { return mark.Check() }, Start: startMark, Hardware: markHardware}
}

type marker struct {
	Quiet
	*mark.Mark
}

// Close detaches the program.
func (m marker) Close() error { return m.Mark.Close() }

func startMark(_ context.Context, l *Lab, r *experiment.Run, name string) (Attached, error) {
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

// markHardware is ECN_mark: the threshold is the buffer, shifted to the right.
func markHardware(r *experiment.Run, name string) (Hardware, error) {
	p, err := law.Params[marklaw.Params](r.Params, name)
	if err != nil {
		return Hardware{}, err
	}
	if name == marklaw.RED || p.NotECT == marklaw.Drop {
		return Hardware{}, errors.New("topology.switch rtl marks and does not drop: use ecn with not_ect: pass")
	}
	if err := hardwareBuffers(r); err != nil {
		return Hardware{}, err
	}
	shift := -1
	for _, link := range r.Config.Graph.Links {
		if link.Rate == 0 {
			continue
		}
		s := math.Log2(float64(link.Buffer.Bytes()) / float64(p.Threshold.Bytes()))
		if s < 0 || s > 15 || s != math.Trunc(s) || shift >= 0 && float64(shift) != s {
			return Hardware{}, fmt.Errorf("topology.switch rtl: the threshold of %v is no right shift of each buffer: choose a half, a quarter or an eighth of it", p.Threshold)
		}
		shift = int(s)
	}
	return Hardware{Registers: map[uint32]uint32{regControl: controlMark, regMark: uint32(max(shift, 0))}}, nil
}
