package lab

import (
	"errors"
	"fmt"
	"math"

	"weir/datapath/fairq/shim"
	"weir/experiment"
	"weir/law"
	fairqlaw "weir/law/fairq"
)

// fairQHardware returns FairQ as the registers of a FairSwitch. The block has the paper's form only.
func fairQHardware(r *experiment.Run, name string) (Hardware, error) {
	p, err := law.Params[fairqlaw.Params](r.Params, name)
	if err != nil {
		return Hardware{}, err
	}
	if !p.FairSwitch || p.Gain != "paper" || p.Count != "handshake" || p.Scale != "shim" || p.MaxWindow != 0 {
		return Hardware{}, errors.New("topology.switch rtl has the paper's hardware: set fairswitch: true, gain: paper, count: handshake, scale: shim, and no max_window")
	}
	if p.Edge || p.Promises || p.Credits || p.Paths > 1 || p.Shrink != "allow" {
		return Hardware{}, errors.New("topology.switch rtl has no edge, promises, credits, paths or shrink: avoid: use bridge")
	}
	shift := -math.Log2(p.TargetFraction)
	if shift != math.Trunc(shift) || shift > 15 {
		return Hardware{}, fmt.Errorf("topology.switch rtl: target_fraction %g is no right shift of the buffer: choose 0.5, 0.25 or 0.125", p.TargetFraction)
	}
	period := float64(p.Interval) / 1e9 * hardwareClock
	if least := 200.0 * hardwareQueues; period < least || period > math.MaxUint16 || p.Updates > 63 {
		return Hardware{}, fmt.Errorf("topology.switch rtl: interval %v is %.0f cycles of the model, and %.0f to %d are possible, with at most 63 updates: choose another interval or time_scale", p.Interval, period, least, math.MaxUint16)
	}
	floor := uint32(p.MinWindow)
	if floor == 0 {
		floor = 1460 + 1
	}
	if floor > math.MaxUint16 {
		return Hardware{}, fmt.Errorf("topology.switch rtl: min_window %d B is above its register's %d: choose a smaller one", floor, math.MaxUint16)
	}
	idle := p.Idle / p.Interval
	if idle < 1 || idle > math.MaxUint16 {
		return Hardware{}, fmt.Errorf("topology.switch rtl: idle %v is %d samples, and 1 to %d are possible: choose another idle or interval", p.Idle, idle, math.MaxUint16)
	}
	if err := hardwareBuffers(r); err != nil {
		return Hardware{}, err
	}
	return Hardware{
		Registers: map[uint32]uint32{
			regControl: controlRewrite, regSample: uint32(math.Round(period)), regUpdates: uint32(p.Updates), regTarget: uint32(shift),
			regFloor: floor, regAggregateMax: 0, regMSSMax: 1460, regIdle: uint32(idle),
		},
		Shim:   true,
		Sample: func(flows, window uint32) []law.Value { return fairqlaw.Sample(flows, uint64(window), uint64(window)) },
		Tally: func(frames, segments, rewritten uint64) law.Tally {
			return law.Tally{fairqlaw.Seen: frames, fairqlaw.Acks: segments, fairqlaw.Rewritten: rewritten}
		},
	}, nil
}

// hardwareBuffers refuses buffers that the registers of the queues cannot hold: the target or the threshold would be another one.
func hardwareBuffers(r *experiment.Run) error {
	const most = 8 * (1<<18 - 1) // bytes of 18 bits of words
	for _, link := range r.Config.Graph.Links {
		if link.Rate != 0 && link.Buffer.Bytes() > most {
			return fmt.Errorf("topology.switch rtl: a buffer of %v is above the %d B of its registers: choose a smaller one", link.Buffer, most)
		}
	}
	return nil
}

// attachShims attaches the shims of FairQ, and returns a function that detaches them.
func (l *Lab) attachShims() (func() error, error) {
	s, err := shim.Attach(l.shimPorts(), shim.Config{})
	if err != nil {
		return func() error { return nil }, err
	}
	return s.Close, nil
}
