package fabric

import "weir/law"

// Each action except Report changes or asks one switch. A switch carries out its actions in the order given. Between switches
// only a Barrier and its Confirmed give an order.

// SetFlow adds a flow, or changes the actions of the flow with this key.
type SetFlow struct {
	Switch law.Switch
	Flow   Flow
}

// DropFlow removes a flow. A missing flow is no error.
type DropFlow struct {
	Switch law.Switch
	Flow   Flow // its Kind distinguishes Weir's flows from others
}

// SetGroup adds a group, or changes the group with this number.
type SetGroup struct {
	Switch law.Switch
	New    bool
	Group  Group
}

// DropGroup removes a group, and the flows that still use it.
type DropGroup struct {
	Switch law.Switch
	ID     uint32
}

// SetMeter adds a meter, or changes the meter with this number.
type SetMeter struct {
	Switch law.Switch
	New    bool
	Meter  Meter
}

// Barrier asks for Confirmed as soon as all earlier actions are carried out.
type Barrier struct {
	Switch law.Switch
	Serial uint64
}

// PacketOut sends a frame from ports of a switch.
type PacketOut struct {
	Switch law.Switch
	Ports  []PortNo
	Frame  []byte
}

// AskStats asks for the counters of all ports; PortStats or StatsFailed follows.
type AskStats struct{ Switch law.Switch }

// Report passes the newest counters of a switch's ports to status and metrics.
type Report struct {
	Switch law.Switch
	Ports  []Counters
}

// LawAction makes it an Action.
func (SetFlow) LawAction() {}

// LawAction makes it an Action.
func (DropFlow) LawAction() {}

// LawAction makes it an Action.
func (SetGroup) LawAction() {}

// LawAction makes it an Action.
func (DropGroup) LawAction() {}

// LawAction makes it an Action.
func (SetMeter) LawAction() {}

// LawAction makes it an Action.
func (Barrier) LawAction() {}

// LawAction makes it an Action.
func (PacketOut) LawAction() {}

// LawAction makes it an Action.
func (AskStats) LawAction() {}

// LawAction makes it an Action.
func (*Report) LawAction() {}

// Target returns the switch that an action of this package is for; false: it is for no switch.
func Target(a law.Action) (law.Switch, bool) {
	switch a := a.(type) {
	case SetFlow:
		return a.Switch, true
	case DropFlow:
		return a.Switch, true
	case SetGroup:
		return a.Switch, true
	case DropGroup:
		return a.Switch, true
	case SetMeter:
		return a.Switch, true
	case Barrier:
		return a.Switch, true
	case PacketOut:
		return a.Switch, true
	case AskStats:
		return a.Switch, true
	}
	return 0, false
}
