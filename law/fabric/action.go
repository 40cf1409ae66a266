package fabric

import "weir/law"

// Each action but Report is one thing to be done at one switch. Those of one switch are done in the order given; between
// switches there is no order but what a Barrier's Confirmed gives.

// SetFlow makes a flow, or changes what the one with this key does.
type SetFlow struct {
	Switch law.Switch
	Flow   Flow
}

// DropFlow removes a flow; none with this key is no error.
type DropFlow struct {
	Switch law.Switch
	Flow   Flow // its Kind tells ours from others'
}

// SetGroup makes a group, or changes the one with this number.
type SetGroup struct {
	Switch law.Switch
	New    bool
	Group  Group
}

// DropGroup removes a group, and whatever flows still use it.
type DropGroup struct {
	Switch law.Switch
	ID     uint32
}

// SetMeter makes a meter, or changes the one with this number.
type SetMeter struct {
	Switch law.Switch
	New    bool
	Meter  Meter
}

// Barrier asks for Confirmed once all before it is carried out.
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

// Report gives the newest counters of a switch's ports to whoever shows or records them.
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

// Target is the switch that an action of this package is for; false: it is for none.
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
