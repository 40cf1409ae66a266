package lab

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"weir/agent/switchd"
	"weir/law"
)

// labMTU is the MTU of the lab's veth ports.
const labMTU = 1500

// attachSwitch attaches a law to the ports of one switch and begins its heartbeats, with the code of `weir switch`. keys
// are the law's keys of all ports together, and of each. It returns nil if the switch has no port.
func (l *Lab) attachSwitch(node string, rtt law.Duration, of switchd.Law, keys any) (*switchd.Attached, error) {
	var ports []switchd.PortLaws
	for _, p := range l.Ports() {
		if !p.OfSwitch || p.Node != node {
			continue
		}
		params, err := switchd.ParamsAt([]switchd.Law{of}, switchd.Site{Rate: p.Rate, Buffer: p.Buffer, RTT: rtt, MTU: labMTU}, []any{keys})
		if err != nil {
			return nil, fmt.Errorf("port %s: %w", p.Name, err)
		}
		ports = append(ports, switchd.PortLaws{PortRef: l.PortRef(p), Params: params})
	}
	if len(ports) == 0 {
		return nil, nil
	}
	a, err := switchd.Own(switchd.Setting{Law: of, Common: switchd.Common{Keys: keys}})
	if err != nil {
		return nil, err
	}
	if err := a.Attach(ports...); err != nil {
		return nil, errors.Join(err, a.End(switchd.Purge))
	}
	a.Begin(false)
	return a, nil
}

// hasSwitchPort reports whether the node is a switch with a shaped port.
func (l *Lab) hasSwitchPort(node string) bool {
	return slices.ContainsFunc(l.Ports(), func(p Port) bool { return p.OfSwitch && p.Node == node })
}

// attachedSwitches are the switches of a lab to which a law is attached.
type attachedSwitches []*switchd.Attached

// on returns the switch with a port; nil: there is none.
func (s attachedSwitches) on(port string) *switchd.Attached {
	for _, a := range s {
		if a.Has(port) {
			return a
		}
	}
	return nil
}

// close releases the flows of all switches together and detaches the law. It returns the errors of heartbeats, too.
func (s attachedSwitches) close() error {
	errs := make([]error, len(s))
	var all sync.WaitGroup
	for i, a := range s {
		all.Go(func() { errs[i] = a.Release() })
	}
	all.Wait()
	for _, a := range s {
		select {
		case err := <-a.Failed():
			errs = append(errs, fmt.Errorf("heartbeat: %w", err))
		default:
		}
		errs = append(errs, a.End(switchd.Purge))
	}
	return errors.Join(errs...)
}
