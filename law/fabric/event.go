package fabric

import "weir/law"

// All events are pointers. They and the memory they point at are borrowed: valid until Step returns. A law copies what it
// keeps.

// Joined reports that a switch is connected and that this controller is its master. Found lists the flows, groups and meters
// that Weir had installed on the switch before.
type Joined struct {
	Switch law.Switch
	Ports  []PortInfo
	Found  State
}

// State lists the flows, groups and meters that Weir has installed on a switch.
type State struct {
	Flows  []Flow
	Groups []Group
	Meters []Meter
}

// Left reports that the connection to a switch has ended. The switch itself may continue to forward.
type Left struct{ Switch law.Switch }

// PortChanged reports that a port was added, was removed, or changed its state.
type PortChanged struct {
	Switch law.Switch
	Port   PortInfo
	Gone   bool
}

// PacketIn reports that a flow of this kind sent a packet to the controller.
type PacketIn struct {
	At    law.Port
	Kind  Kind
	Frame []byte
}

// Confirmed reports that the switch has carried out all actions up to this barrier.
type Confirmed struct {
	Switch law.Switch
	Serial uint64
}

// Expired reports that a switch removed a flow after its idle time.
type Expired struct {
	Switch law.Switch
	Flow   FlowKey
}

// PinAsked asks for one path for both directions of a flow, until the flow was idle for this time.
type PinAsked struct {
	Tuple       Tuple
	IdleSeconds uint16
}

// PinDropped ends a PinAsked.
type PinDropped struct{ Tuple Tuple }

// PortStats answers AskStats.
type PortStats struct {
	Switch law.Switch
	Ports  []Counters
}

// StatsFailed reports that an AskStats will not be answered.
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
