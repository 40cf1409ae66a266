package fabric

// Action is one thing to be done at one switch. Those of one switch are done in the order given; between
// switches there is no order but what a Barrier's Confirmed gives.
type Action interface{ action() }

// SetFlow makes a flow, or changes what the one with this key does.
type SetFlow struct {
	Switch Switch
	Flow   Flow
}

// DropFlow removes a flow; none with this key is no error.
type DropFlow struct {
	Switch Switch
	Flow   Flow // its Kind tells ours from others'
}

// SetGroup makes a group, or changes the one with this number.
type SetGroup struct {
	Switch Switch
	New    bool
	Group  Group
}

// DropGroup removes a group, and whatever flows still use it.
type DropGroup struct {
	Switch Switch
	ID     uint32
}

// SetMeter makes a meter, or changes the one with this number.
type SetMeter struct {
	Switch Switch
	New    bool
	Meter  Meter
}

// Barrier asks for Confirmed once all before it is carried out.
type Barrier struct {
	Switch Switch
	Serial uint64
}

// PacketOut sends a frame from ports of a switch.
type PacketOut struct {
	Switch Switch
	Ports  []Port
	Frame  []byte // valid until the next step
}

// AskStats asks for the counters of all ports; PortStats or StatsFailed follows.
type AskStats struct{ Switch Switch }

func (SetFlow) action()   {}
func (DropFlow) action()  {}
func (SetGroup) action()  {}
func (DropGroup) action() {}
func (SetMeter) action()  {}
func (Barrier) action()   {}
func (PacketOut) action() {}
func (AskStats) action()  {}

// Target is the switch that an action is for.
func Target(a Action) Switch {
	switch a := a.(type) {
	case SetFlow:
		return a.Switch
	case DropFlow:
		return a.Switch
	case SetGroup:
		return a.Switch
	case DropGroup:
		return a.Switch
	case SetMeter:
		return a.Switch
	case Barrier:
		return a.Switch
	case PacketOut:
		return a.Switch
	case AskStats:
		return a.Switch
	}
	return 0
}
