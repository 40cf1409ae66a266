// Package flows has the events and actions about single flows. An application declares its messages. Switches report the flows that
// leave by their ports, and laws ask them for acknowledgements. A host's agent, a switch's agent and the simulator
// make the same events.
//
// All events are pointers. They and the memory they point at are borrowed: valid until Step returns.
package flows

import (
	"time"

	"weir/law"
)

// MaxSent is how many flows of a switch a Progress lists.
const MaxSent = 1 << 12

// Declared reports that an application declared the message that a flow of its host begins now. A later one replaces it.
type Declared struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Flow  law.Flow
	Left  time.Duration // until the deadline, from when the event happens; 0: the flow has none
	Bytes uint64        // of the message; 0: not known
	Value uint32        // what it is worth, compared with others; 0 is 1
	// Number is the number of the declaration at its host. A host sends a declaration again to a new controller. 0: it does not.
	Number uint64
}

// Began reports a flow that a port did not know: its SYN or SYN-ACK, or data.
type Began struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	At   law.Port // by which the data leaves
	Flow law.Flow
}

// Ended reports a FIN or RST of a flow's connection.
type Ended struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	At   law.Port
	Flow law.Flow
}

// Progress reports, each period, the flows of a switch that sent data since the report before. It comes without flows, too.
type Progress struct {
	At        law.Switch
	Congested []uint32 // ports that are: a Congested may get lost
	Sent      []Sent   // in the order in which they began; at most MaxSent
}

// Sent is how far a flow has come at a port.
type Sent struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Port  uint32
	Flow  law.Flow
	Bytes uint64 // of payload, to the highest sequence number: a retransmission is no progress
}

// Congested reports that the queue of a port reached a law's threshold, or is no longer congested.
type Congested struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	At  law.Port
	Now bool
}

// Dropped reports a data segment that a port dropped.
type Dropped struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	At    law.Port
	Flow  law.Flow
	Seq   uint32
	Bytes uint32 // of payload
	End   uint32 // sequence number behind the furthest data of the flow
}

// Acks asks a switch for duplicate acknowledgements of a flow, towards its sender, as soon as the switch has seen one with this number.
// They are copies of that one. A switch that sees a later one first sends nothing.
type Acks struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	At   law.Port // as in Dropped
	Flow law.Flow
	Ack  uint32
	N    uint8
}

// LawEvent makes it an Event.
func (*Declared) LawEvent() {}

// LawEvent makes it an Event.
func (*Began) LawEvent() {}

// LawEvent makes it an Event.
func (*Ended) LawEvent() {}

// LawEvent makes it an Event.
func (*Progress) LawEvent() {}

// LawEvent makes it an Event.
func (*Congested) LawEvent() {}

// LawEvent makes it an Event.
func (*Dropped) LawEvent() {}

// LawAction makes it an Action.
func (Acks) LawAction() {}
