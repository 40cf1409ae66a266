package fabric

// Event is one thing that happened.
type Event interface{ event() }

// Joined says: a switch is connected and this controller is its master. Found is what was on it already of ours.
type Joined struct {
	Switch Switch
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
type Left struct{ Switch Switch }

// PortChanged says: a port came, went, or changed its state.
type PortChanged struct {
	Switch Switch
	Port   PortInfo
	Gone   bool
}

// PacketIn says: a packet came to the controller, by a flow of this kind. Frame is valid during the step only.
type PacketIn struct {
	At    Point
	Kind  Kind
	Frame []byte
}

// Confirmed says: the switch has carried out all up to this barrier.
type Confirmed struct {
	Switch Switch
	Serial uint64
}

// Expired says: a flow with an idle time is gone from a switch.
type Expired struct {
	Switch Switch
	Flow   FlowKey
}

// PinAsked asks for one path for both directions of a flow, until nothing was sent for so long.
type PinAsked struct {
	Tuple       Tuple
	IdleSeconds uint16
}

// PinDropped takes it back.
type PinDropped struct{ Tuple Tuple }

// PortStats answers AskStats. Ports is valid during the step only.
type PortStats struct {
	Switch Switch
	Ports  []Counters
}

// StatsFailed says: an AskStats will not be answered any more.
type StatsFailed struct{ Switch Switch }

// Tick says: time has passed.
type Tick struct{}

func (Joined) event()      {}
func (Left) event()        {}
func (PortChanged) event() {}
func (PacketIn) event()    {}
func (Confirmed) event()   {}
func (Expired) event()     {}
func (PinAsked) event()    {}
func (PinDropped) event()  {}
func (PortStats) event()   {}
func (StatsFailed) event() {}
func (Tick) event()        {}
