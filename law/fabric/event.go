package fabric

import "weir/law"

// All events are pointers: the world lends them, and what they point at, for the duration of a step. A law copies what it
// keeps.

// Joined says: a switch is connected and this controller is its master. Found is what was on it already of ours.
type Joined struct {
	Switch law.Switch
	Ports  []PortInfo
	Found  State
}

// State is what Weir has put on a switch.
type State struct {
	Flows  []Flow
	Groups []Group
	Meters []Meter
}

// Left says: the connection to a switch is gone. The switch itself may go on as it was.
type Left struct{ Switch law.Switch }

// PortChanged says: a port came, went, or changed its state.
type PortChanged struct {
	Switch law.Switch
	Port   PortInfo
	Gone   bool
}

// PacketIn says: a packet came to the controller, by a flow of this kind.
type PacketIn struct {
	At    law.Port
	Kind  Kind
	Frame []byte
}

// Confirmed says: the switch has carried out all up to this barrier.
type Confirmed struct {
	Switch law.Switch
	Serial uint64
}

// Expired says: a flow with an idle time is gone from a switch.
type Expired struct {
	Switch law.Switch
	Flow   FlowKey
}

// PinAsked asks for one path for both directions of a flow, until nothing was sent for so long.
type PinAsked struct {
	Tuple       Tuple
	IdleSeconds uint16
}

// PinDropped takes it back.
type PinDropped struct{ Tuple Tuple }

// PortStats answers AskStats.
type PortStats struct {
	Switch law.Switch
	Ports  []Counters
}

// StatsFailed says: an AskStats will not be answered any more.
type StatsFailed struct{ Switch law.Switch }

// LawEvent makes it an Event.
func (*Joined) LawEvent() {}

// LawEvent makes it an Event.
func (*Left) LawEvent() {}

// LawEvent makes it an Event.
func (*PortChanged) LawEvent() {}

// LawEvent makes it an Event.
func (*PacketIn) LawEvent() {}

// LawEvent makes it an Event.
func (*Confirmed) LawEvent() {}

// LawEvent makes it an Event.
func (*Expired) LawEvent() {}

// LawEvent makes it an Event.
func (*PinAsked) LawEvent() {}

// LawEvent makes it an Event.
func (*PinDropped) LawEvent() {}

// LawEvent makes it an Event.
func (*PortStats) LawEvent() {}

// LawEvent makes it an Event.
func (*StatsFailed) LawEvent() {}
