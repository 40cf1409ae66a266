// Package telemetry has the events that a switch sends to laws each period: what its ports counted, and which connections
// arrived there. A switch's agent and the simulator make the same events.
//
// All events are pointers. They and the memory they point at are borrowed: valid until Step returns.
package telemetry

import (
	"net/netip"
	"time"

	"weir/law"
)

// Limits of an event, for each port and period.
const (
	MaxVMs   = 64 // VMs whose marks are counted apart
	MaxPairs = 64 // pairs of addresses that are listed
	// MaxSourcePairs is how many of them have the same source. The last one also counts its further arrivals.
	MaxSourcePairs = 8
)

// Telemetry is what the ports of a switch counted since the reading before. It comes after the Arrivals of the same reading. Packets count as on the wire.
type Telemetry struct {
	At    law.Switch
	T     time.Duration // since the reading before
	Ports []Port
}

// Port is what one port counted. A law that drops packets at the port does so before they are counted here.
type Port struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	N            uint32 // the switch's number of the port
	BacklogBytes uint64 // in the queue at the reading
	PeakBytes    uint64 // the largest backlog that a packet found since the reading before, or that of the reading
	Packets      uint64 // offered to the queue
	Bytes        uint64 // of them, as the queue counts them: with Ethernet headers
	SentBytes    uint64 // by the queue
	Drops        uint64 // by the queue, packets
	Marks        Marks
}

// Marks are packets that a law at this port marked. Packets that came with CE were counted where they were marked.
type Marks struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Packets uint64    // all
	ByVM    []VMMarks // by the VM that sent them, in no order; at most MaxVMs
	Unknown uint64    // those from addresses of no configured VM
	Rest    uint64    // those of further VMs
}

// VMMarks are the marked packets of a VM.
type VMMarks struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	VM      law.VM
	Packets uint64
}

// Sent lists the VMs of a host that sent packets since the reading before.
type Sent struct {
	T   time.Duration // since the reading before
	VMs []VMSent
}

// VMSent is what one VM sent.
type VMSent struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	VM      law.VM
	Packets uint64 // as on the wire
}

// Marked is a message of a controller to a VM's host: packets of the VM that ports marked. It is the law.MarksGrant that the
// host received.
type Marked struct {
	VM    law.VM
	Marks uint64 // in units of 1/OneMark of a packet, at most MaxMarks packets
}

// Came is packets with CE that came to a host from one source for one of its VMs, as the host's uplink saw them.
type Came struct {
	VM     law.VM
	Source netip.Addr
	Marks  uint64 // packets
}

// Units and limit of Marked.
const (
	OneMark  = 256
	MaxMarks = 1 << 32
)

// Quiet reports whether nothing happened at the port: no packet was offered or left, and none waits.
func (p *Port) Quiet() bool {
	return p.Packets == 0 && p.SentBytes == 0 && p.Drops == 0 && p.BacklogBytes == 0
}

// Arrivals is what began and ended at the ports of a switch since the reading before. datapath/core/arrivals.h specifies the
// kinds.
type Arrivals struct {
	At    law.Switch
	T     time.Duration // since the reading before
	Ports []PortArrivals
}

// Kind is a kind of arrival, one bit each. The values are those of datapath/core/arrivals.h.
type Kind uint32

// The kinds.
const (
	SYN     Kind = 1 << iota
	SYNACK       // a SYN with ACK
	FIN          // the first of an end
	RST          // the first of a connection
	Resume       // a flow that was idle sends again
	Found        // data of a flow that the switch did not know: older than the table of flows, or evicted
	Request      // data of the connection's opener, in a new turn, to an end that has nothing in flight
)

// Kinds is the number of kinds.
const Kinds = 7

// PortArrivals is what began and ended at one port.
type PortArrivals struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	N      uint32
	Counts Counts
	Pairs  []Pair // of SYN, SYNACK, Resume, Found and Request, in no order; at most MaxPairs
	Rest   uint64 // arrivals of further pairs
}

// Counts are numbers of arrivals.
type Counts struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	SYN, SYNACK, FIN, RST, Resume, Found, Request uint64
}

// Add adds n arrivals of each kind in k.
func (c *Counts) Add(k Kind, n uint64) {
	for i, count := range []*uint64{&c.SYN, &c.SYNACK, &c.FIN, &c.RST, &c.Resume, &c.Found, &c.Request} {
		if k>>i&1 != 0 {
			*count += n
		}
	}
}

// Pair is the addresses of arrivals at a port, which kinds they were, and how many: SYNs and SYN-ACKs, resumed flows, and
// requests. A pair can be listed twice. An agent of an earlier version gives no numbers.
type Pair struct {
	_ struct{} `cbor:",toarray"` // recordings have the fields in this order, without names

	Source, Destination        netip.Addr
	Kinds                      Kind
	Opened, Resumed, Requested uint32
}

// Add adds an arrival of these kinds.
func (p *Pair) Add(k Kind) {
	p.Kinds |= k
	if k&(SYN|SYNACK) != 0 {
		p.Opened++
	}
	if k&Resume != 0 {
		p.Resumed++
	}
	if k&Request != 0 {
		p.Requested++
	}
}

// LawEvent makes it an Event.
func (*Telemetry) LawEvent() {}

// LawEvent makes it an Event.
func (*Arrivals) LawEvent() {}

// LawEvent makes it an Event.
func (*Sent) LawEvent() {}

// LawEvent makes it an Event.
func (*Marked) LawEvent() {}

// LawEvent makes it an Event.
func (*Came) LawEvent() {}
