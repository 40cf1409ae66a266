// Package reading has the words for what a law's programs tell of the ports that they are on: figures, flows, and who has
// the ports. Status, metrics, canaries and the lab read them, whichever law it is.
package reading

import (
	"fmt"
	"net/netip"
	"time"

	"weir/datapath/attach"
)

// HeartbeatInterval is how often user space tells the kernel that it lives.
const HeartbeatInterval = 250 * time.Millisecond

// Hold says which flows of a port are held, and to what window.
type Hold uint8

// The values are those in the kernel.
const (
	// HoldAll holds every flow to the law's window, which an integrator finds from the queue.
	HoldAll Hold = 0
	// HoldPart holds a share of the flows to the equilibrium window, and lets the others pass. The queue
	// says little about the few that are held, so the integrator rests.
	HoldPart Hold = 1
	// HoldNone changes nothing: flows are counted, the equilibrium window is reckoned, and what would
	// be limited is counted.
	HoldNone Hold = 2
)

func (h Hold) String() string {
	switch h {
	case HoldAll:
		return "all"
	case HoldPart:
		return "part"
	case HoldNone:
		return "none"
	}
	return fmt.Sprintf("hold %d", uint8(h))
}

// Lots is how many lots there are. A connection has one, by a keyed hash of its ends that these do not
// know, for as long as the tables live; HoldShare so many of them are held. A larger share holds the
// same flows and more.
const Lots = 1 << 16

// Arm is what the held, or the free, flows of a port do, since it was attached. Bytes are TCP's payload,
// by sequence numbers as they pass this switch.
type Arm struct {
	Flows              uint32 // that count, as the last beat found them
	DataBytes          uint64 // sent, again or for the first time
	RetransmittedBytes uint64 // of them, those sent again, or overtaken on their way here
	AckedBytes         uint64 // newly acknowledged: goodput
	Acks               uint64 // segments that acknowledge
	Limited            uint64 // of them, those rewritten; of free flows, those that would be if they were held
}

// Stats is the state of a port at one moment, and what it counted since it was attached. Packets
// are those that leave by the port, or would but for Dropped, as they are on the wire: a GSO packet counts its segments.
type Stats struct {
	Port        string
	Flows       uint32 // β, held or not
	WindowBytes uint64 // Rwnd, the law's window of each flow; with another Hold than all: EquilibriumBytes
	GrantBytes  uint64 // what windows are held to; 0: nothing is held
	TargetBytes uint32 // αB
	QueueBytes  uint32 // at the last sample
	QueueMax    uint32 // since attached
	SlowStart   bool
	Enforced    bool // at the last sample user space was alive
	Hold        Hold
	HoldShare   uint32 // with HoldPart: of Lots
	LettingGo   bool   // flows that are held no more still have windows, which grow
	MSSBytes    uint16

	// EquilibriumBytes is (PipeBytes + TargetBytes) / Flows within the law's floor and cap. 0: no flows.
	EquilibriumBytes uint64
	PipeBytes        uint32 // C*RTT, as configured
	// HandshakeRTT is the least round-trip time of handshakes lately (8.6 to 17 s) whose connections send by
	// this port: from the SYN to the acknowledgement of its SYN-ACK, none of them sent again. What they
	// waited in this switch is part of it. Two hosts that agree can make it short: bound it. 0: none.
	HandshakeRTT time.Duration
	// Directions of connections, as the last beat found them, of which for a second only one side passed
	// this switch: new data that leaves by this port without acknowledgements, and acknowledgements that
	// leave by it without data. The other side goes another way, or is tunnelled. Where there are more of
	// them than the table of half-open connections holds, these are fewer.
	OneSidedData, OneSidedAcks uint32
	// Arms compares flows whose data leaves by this port: [0] free, [1] held.
	Arms [2]Arm

	Samples         uint64        // of the queue, by the timer
	SamplesByPacket uint64        // by a packet, because the timer was late
	DeviceRefused   uint64        // samples that found the device gone
	SampledAt       time.Duration // CLOCK_MONOTONIC at the last sample; 0: never
	SampleAge       time.Duration
	Connections     uint32 // that were opened from behind this port and are in the table

	Seen       uint64 // the sum of those down to Dropped
	NotTCP     uint64
	Tunnel     uint64 // encapsulated, encrypted or signed by AH
	Fragment   uint64
	Short      uint64 // ended before its headers did, or they contradict themselves
	NoAck      uint64 // SYN and RST grant nothing
	Rewritten  uint64
	Smaller    uint64 // the window was small enough already
	Unknown    uint64 // of no connection in the table
	Ungoverned uint64 // the data's port has no flows, no Weir, or Weir has let go
	Free       uint64 // of a flow that is not held, while others are, or that is only observed
	Signed     uint64 // TCP-MD5, TCP-AO: acknowledgements left as they are
	OutOfScope uint64
	Unwritable uint64 // the kernel had no memory to make it writable
	Untold     uint64 // edge mode: left to the edge, which knows the window
	Dropped    uint64 // signed segments, where the configuration drops them
	Data       uint64 // with payload, whatever else
	Opened     uint64 // connections that were entered in the table
	Adopted    uint64 // of them, those that began before Weir
	TableFull  uint64 // not entered: the table or the port's share was full
	Told       uint64 // edge mode: ACKs that told the edge a window
	Assumed    uint64 // ACKs whose data passes another switch, held to a part of the window
}

// Flow is one direction of a connection: data, and the window that its sender is granted.
type Flow struct {
	From, To netip.AddrPort // of the data
	VLANs    uint32         // tags from the outer to the inner, 12 bits each; 0: none
	Held     bool
	Counted  bool // it sent lately: one of the port's flows
	Seen     bool // passed since the beat before the last
	OneSided bool // for a second only its data, or only its acknowledgements, passed here
	Signed   bool // both ends sign: TCP-MD5 or TCP-AO

	// InFlightBytes is the most that was sent and not yet acknowledged, as this switch saw it, since the beat
	// before the last.
	InFlightBytes uint32
	// OfferedBytes is the window that the receiver's last acknowledgement came with, and GrantedBytes the one
	// that it left with; of a flow that is free, the one that it would have left with. The flow is limited
	// by its port where the second is less, and in fact where InFlightBytes is near it. 0: none passed yet.
	OfferedBytes, GrantedBytes uint32
	// Acknowledged is the sequence number behind the last byte that was acknowledged: what it moves on by
	// between two looks is the flow's goodput.
	Acknowledged uint32
	// Scale is that of the receiver's windows; of an adopted connection, the least that explains what is in
	// flight.
	Scale uint8
}

// SignedSource is one source of signed segments (TCP-MD5, TCP-AO) that counted as such.
type SignedSource struct {
	Addr     netip.Addr
	VLANs    uint32 // tags from the outer to the inner, 12 bits each; 0: none
	Segments uint64 // on the wire, since the source was heard first
	Dropped  uint64 // of them, as the configuration of signed segments has it
}

// Switch is what the kernel knows of the ports of one pin directory.
type Switch struct {
	Holder    attach.Holder // the process that attached last
	BeatAge   time.Duration
	Lease     time.Duration // what a beat lasts for
	Releasing bool          // the process is about to leave
	Ports     []Pinned      // by name
	// SignedSources are the sources of most signed segments, 10 at most.
	SignedSources []SignedSource
}

// Alive says whether a process holds windows.
func (s *Switch) Alive() bool { return !s.Releasing && s.BeatAge < s.Lease }

// Pinned is one port that a law is pinned to.
type Pinned struct {
	Stats
	ID          uint32 // in the tables
	Ifindex     int
	NetnsCookie uint64
	LinkID      uint32
	ProgramID   uint32
	HasDevice   bool
	Releasing   bool // the law is about to leave the port

	// What can be seen only from the port's own namespace.
	Local   bool     // the caller is in it
	Before  []string // programs that run before the law's, by name: they may end the chain
	Queue   attach.RootQueue
	NoQueue *attach.NoQueue // the queue discipline that is there now keeps no backlog
}
