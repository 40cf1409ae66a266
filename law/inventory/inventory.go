// Package inventory has the events by which the laws of a controller know what agents have: the ports of switches, and the VMs of
// hosts. Agents report what their operators configured, so nothing here comes from a guest's packet.
//
// All events are pointers. They and the memory they point at are borrowed: valid until Step returns.
package inventory

import (
	"net/netip"

	"weir/law"
)

// Switch reports all ports of a switch, at first and after each change.
type Switch struct {
	At    law.Switch
	Ports []Port
}

// Port is a port of a switch that its agent reports about.
type Port struct {
	N           uint32 // the switch's number of the port
	Name        string
	Rate        law.Rate // at which the port sends; 0: not known
	BufferBytes uint64   // of its queue; 0: not known
}

// Host reports all VMs of a host, at first and after each change.
type Host struct {
	At   law.Host
	Rate law.Rate // of the uplink; 0: not known, or its agent limits no VM there
	VMs  []VM
}

// VM is a guest of a host. Grants for its number are carried out there.
type VM struct {
	Number    law.VM
	Addresses []netip.Prefix // that it may send from
	Guarantee Guarantee      // of policies
}

// Guarantee is what policies promise a VM at its host's uplink. The sum of Rate is within the uplink. The controller enforces Cap; a law
// that shares the uplink enforces Rate and Weight, and the host Excess.
type Guarantee struct {
	Rate   law.Rate // least; 0: none
	Weight uint32   // part of the uplink, relative to other VMs, if that is more than the rate; 0: no guarantee
	Cap    law.Rate // most; 0: none
	Excess string   // law.ExcessQueue or law.ExcessDrop; "": that of the law at the host
}

// SwitchLeft reports that a switch's agent is silent. The switch itself may continue to forward.
type SwitchLeft struct{ At law.Switch }

// HostLeft reports that a host's agent is silent. The VMs' grants end by themselves.
type HostLeft struct{ At law.Host }

// LawEvent makes it an Event.
func (*Switch) LawEvent() {}

// LawEvent makes it an Event.
func (*Host) LawEvent() {}

// LawEvent makes it an Event.
func (*SwitchLeft) LawEvent() {}

// LawEvent makes it an Event.
func (*HostLeft) LawEvent() {}
