package lab

import (
	"errors"
	"fmt"
	"slices"

	"weir/datapath/attach"
	"weir/datapath/fairq"
	"weir/datapath/mark"
	"weir/experiment"
)

// enforcer puts one law to work on the switches of a lab.
type enforcer struct {
	check func() error // what the kernel lacks for it, as a typed error
	start func(l *Lab, r *experiment.Run, law string) (stop func() error, err error)
}

// enforcers are the laws that the lab has. experiment's registry of laws says the same by name.
var enforcers = map[string]enforcer{
	"droptail": {
		check: func() error { return nil },
		start: func(*Lab, *experiment.Run, string) (func() error, error) { return func() error { return nil }, nil },
	},
	"ecn":   {check: mark.Check, start: startMark},
	"red":   {check: mark.Check, start: startMark},
	"fairq": {check: fairq.Check, start: startFairQ},
}

// NeedsProcess tells whether a law of r is enforced only while the process lives that attached it.
func NeedsProcess(r *experiment.Run) bool {
	return slices.ContainsFunc(r.Laws, func(name string) bool { return name != "droptail" })
}

// Enforce attaches the laws of r to the lab's switches. stop detaches them.
func (l *Lab) Enforce(r *experiment.Run) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range slices.Backward(stops) {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	for _, name := range r.Laws {
		s, err := enforcers[name].start(l, r, name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("scheme %s: %w", r.Scheme, err), stop())
		}
		stops = append(stops, s)
	}
	return stop, nil
}

// switchPorts are the ports of the switches that run the scheme's laws.
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

func startMark(l *Lab, r *experiment.Run, law string) (func() error, error) {
	params, ok := r.Params[law].(experiment.MarkParams)
	if !ok {
		return nil, fmt.Errorf("law %s: parameters are %T", law, r.Params[law])
	}
	cfg := mark.Config{ThresholdBytes: uint32(params.Threshold.Bytes()), Action: mark.ActionMark, NotECT: mark.NotECTPass}
	if law == "red" {
		cfg.Action = mark.ActionDrop
	}
	if params.NotECT == "drop" {
		cfg.NotECT = mark.NotECTDrop
	}
	marking, err := mark.Attach(l.switchPorts(r.At), cfg)
	if err != nil {
		return nil, err
	}
	return marking.Close, nil
}
