package forward

import (
	"slices"

	"weir/law"
	"weir/law/fabric"
)

// Status is the law's state, sorted by name.
type Status struct {
	Switches []SwitchStatus `json:"switches"`
	Links    []LinkStatus   `json:"links"`
	Hosts    []HostStatus   `json:"hosts"`
	Pins     []PinStatus    `json:"pins"`
	Settled  bool           `json:"settled"` // every switch has confirmed its wanted state
	Counts   Counts         `json:"counts"`
}

// SwitchStatus is the state of one switch.
type SwitchStatus struct {
	ID     string         `json:"id"`
	Joined bool           `json:"joined"`
	Flows  int            `json:"flows"` // Weir's
	Groups int            `json:"groups"`
	Ports  map[string]int `json:"ports"`  // number of ports by role
	Behind uint64         `json:"behind"` // barriers not confirmed yet
	Probes uint64         `json:"probes"` // sent from its ports, by this controller
}

// LinkStatus is one link.
type LinkStatus struct {
	A string `json:"a"`
	B string `json:"b"`
}

// HostStatus is one host.
type HostStatus struct {
	MAC       string   `json:"mac"`
	At        string   `json:"at"`
	Addresses []string `json:"addresses"`
}

// PinStatus is one pinned flow.
type PinStatus struct {
	Flow string   `json:"flow"`
	Path []string `json:"path"` // switches; empty: no path now
}

// Status returns the law's state.
func (l *Law) Status() Status {
	s := Status{Settled: l.Settled(), Counts: l.counts, Links: []LinkStatus{}, Hosts: []HostStatus{}, Pins: []PinStatus{}}
	for _, d := range sorted(l.switches) {
		one := SwitchStatus{
			ID: d.id.String(), Joined: d.joined, Flows: len(d.flows), Groups: len(d.groups),
			Ports: map[string]int{}, Behind: d.serial - d.confirmed, Probes: d.probes,
		}
		for _, p := range d.ports {
			if p.Up {
				one.Ports[roleNames[p.role]]++
			} else {
				one.Ports["down"]++
			}
		}
		s.Switches = append(s.Switches, one)
	}
	for _, k := range l.links() {
		s.Links = append(s.Links, LinkStatus{k[0].String(), k[1].String()})
	}
	for _, h := range l.hostsInOrder() {
		one := HostStatus{MAC: h.mac.String(), At: h.at.String(), Addresses: []string{}}
		for _, a := range h.addresses {
			one.Addresses = append(one.Addresses, a.String())
		}
		s.Hosts = append(s.Hosts, one)
	}
	for _, p := range l.pinsInOrder() {
		one := PinStatus{Flow: p.tuple.String(), Path: []string{}}
		for _, h := range p.path {
			one.Path = append(one.Path, h.at.String())
		}
		s.Pins = append(s.Pins, one)
	}
	return s
}

// Settled reports whether every switch has confirmed all its orders, and no further order is due.
func (l *Law) Settled() bool {
	if l.graphChanged || l.waving || len(l.unplaced) > 0 || len(l.unpinning) > 0 {
		return false
	}
	for _, d := range l.switches {
		if !d.settled(d.serial) {
			return false
		}
	}
	return true
}

// Path returns the switches on the path of a pinned flow; nil: it has no path now.
func (l *Law) Path(t fabric.Tuple) []law.Switch {
	p, back := l.pins[t], false
	if p == nil {
		p, back = l.pins[t.Reverse()], true
	}
	if p == nil {
		return nil
	}
	var out []law.Switch
	for _, h := range p.path {
		out = append(out, h.at)
	}
	if back {
		slices.Reverse(out)
	}
	return out
}
