// Package reading has the types for what a law's programs report of their ports: figures, flows, and the
// process that has the ports. Status, metrics, canaries and the lab read them, whichever law it is.
package reading

import (
	"fmt"
	"net/netip"
	"time"

	"weir/datapath/attach"
)

// HeartbeatInterval is the time between two heartbeats, with which user space shows the kernel programs that it
// runs.
const HeartbeatInterval = 250 * time.Millisecond

// Mode is which flows of a port are limited, and to what window.
type Mode uint8

// The values are those in the kernel.
const (
	// EnforceAll limits every flow to the law's window, which an integrator finds from the queue.
	EnforceAll Mode = 0
	// EnforcePart limits a share of the flows to the equilibrium window, and lets the others pass. The queue
	// depends little on the few that are limited, so the integrator rests.
	EnforcePart Mode = 1
	// EnforceNone changes nothing. Flows are counted, the equilibrium window is calculated, and ACKs that would be
	// rewritten are counted.
	EnforceNone Mode = 2
)

func (h Mode) String() string {
	switch h {
	case EnforceAll:
		return "all"
	case EnforcePart:
		return "part"
	case EnforceNone:
		return "none"
	}
	return fmt.Sprintf("mode %d", uint8(h))
}

// Buckets is the number of hash buckets, into which connections are divided. A connection has one for as long as the
// tables live, by a keyed hash of its ends; the ends do not know the key. LimitedBuckets of them are limited. A larger
// share limits the same flows and more.
const Buckets = 1 << 16

// Group has the counters of a group of a port's flows since the port was attached: treatment group (limited) or
// control group (unlimited). Bytes are TCP payload, by sequence numbers as they pass this switch.
type Group struct {
	Flows              uint32 // active flows, as of the last heartbeat
	DataBytes          uint64 // sent, again or for the first time
	RetransmittedBytes uint64 // of them, those sent again, or reordered on their way here
	AckedBytes         uint64 // newly acknowledged: goodput
	Acks               uint64 // segments with an acknowledgement
	Limited            uint64 // of them, those rewritten; in the control group, those that would be if it were limited
}

// Stats is the state of a port at one moment, and its counters since it was attached. Packets are those that
// leave by the port, or would but for Dropped, as they are on the wire: a GSO packet counts its segments.
type Stats struct {
	Port           string
	Flows          uint32 // β, limited or not
	WindowBytes    uint64 // Rwnd, the law's window of each flow; EquilibriumBytes unless EnforceAll
	GrantBytes     uint64 // the window that flows are limited to; 0: none is limited
	TargetBytes    uint32 // αB
	QueueBytes     uint32 // at the last sample
	QueueMax       uint32 // since the port was attached
	SlowStart      bool
	Enforced       bool // at the last sample user space was running
	Mode           Mode
	LimitedBuckets uint32 // with EnforcePart: number of buckets that are limited
	FlowsReleasing bool   // flows that were limited before are being released
	MSSBytes       uint16

	// EquilibriumBytes is (PipeBytes + TargetBytes) / Flows within the law's floor and cap. 0: no flows.
	EquilibriumBytes uint64
	PipeBytes        uint32 // C*RTT, as configured
	// HandshakeRTT is the least round-trip time of recent handshakes (8.6 to 17 s) of connections that send by
	// this port. It is measured from a SYN to the acknowledgement of its SYN-ACK, if none of them was sent
	// again, and includes the wait in this switch. Two hosts that agree can make it short: bound it. 0: none.
	HandshakeRTT time.Duration
	// OneSidedData and OneSidedAcks count directions of connections, as of the last heartbeat, of which only
	// one side passed this switch for a second. OneSidedData: new data leaves by this port without
	// acknowledgements. OneSidedAcks: acknowledgements leave by it without data. The other side takes another
	// path, or is tunnelled. The counts are too low if there are more than fit the table of half-open
	// connections.
	OneSidedData, OneSidedAcks uint32
	// Figures of the flows whose data leaves by this port: [0] control group, [1] treatment group.
	Groups [2]Group

	Samples         uint64        // of the queue, by the timer
	SamplesByPacket uint64        // by a packet, because the timer was late
	DeviceRefused   uint64        // samples that found the device gone
	SampledAt       time.Duration // CLOCK_MONOTONIC at the last sample; 0: never
	SampleAge       time.Duration
	Connections     uint32 // opened from behind this port and in the table

	Seen       uint64 // the sum of the counters down to Dropped
	NotTCP     uint64
	Tunnel     uint64 // encapsulated, encrypted or signed by AH
	Fragment   uint64
	Short      uint64 // ended before its headers did, or they contradict themselves
	NoAck      uint64 // SYN and RST grant nothing
	Rewritten  uint64
	Smaller    uint64 // the window was small enough already
	Unknown    uint64 // of no connection in the table
	Ungoverned uint64 // the data's port has no flows, no Weir, or its flows were released
	Free       uint64 // of a flow that is not limited while others are, or that is only observed
	Signed     uint64 // TCP-MD5, TCP-AO: acknowledgements left unchanged
	OutOfScope uint64
	Unwritable uint64 // the kernel had no memory to make it writable
	LeftToEdge uint64 // edge mode: left to the edge, which knows the window
	Dropped    uint64 // signed segments, if the configuration drops them
	Data       uint64 // with payload, whatever else they are
	Opened     uint64 // connections that were entered in the table
	Adopted    uint64 // of them, those older than the program
	TableFull  uint64 // not entered: the table or the port's share was full
	Advertised uint64 // edge mode: ACKs that advertised a window to the edge
	Assumed    uint64 // ACKs whose data passes another switch, limited to a part of the window

	Credits Credits  // zero: the port has neither promises nor credits
	Repairs *Repairs // nil: losses are not repaired at the port
}

// Repairs is the repair of losses at a port (datapath/repair). Packets count as on the wire, since the port was attached.
type Repairs struct {
	LimitBytes   uint32 // of the queue that packets may fill that did not wait
	MostBytes    uint32 // that may wait
	WaitingBytes uint32 // that wait now

	Over    uint64 // parked: the queue had no room for them
	Behind  uint64 // parked: the queue had room, and packets of their flow waited
	Full    uint64 // as many bytes wait as may: dropped, or with credits passed to the queue
	Other   uint64 // dropped: over the limit, and not TCP
	Refused uint64 // should have been parked and passed: the parking is gone, or their mark or priority is in use

	Back       uint64        // put back into the queue
	Repaired   uint64        // of those: the queue had no room for them at first
	InTime     uint64        // of the repaired: after the time of a full queue and 2 ms at most
	SentInTime uint64        // of the repaired: they also reached the head of the queue in that time
	Waited     time.Duration // of the repaired, the sum
	Longest    time.Duration // of the repaired
}

// RepairCounts is repair_counts of datapath/bpf/lib/repair.h: what the programs of one CPU counted at a port.
type RepairCounts struct {
	Seen, Over, Behind, Full, Other, Refused, Back, Repaired, InTime, SentInTime, WaitedNs, LongestNs uint64
}

// Add adds what the CPUs counted, and returns how many packets they saw.
func (r *Repairs) Add(cpus []RepairCounts) (seen uint64) {
	for i := range cpus {
		of := &cpus[i]
		seen += of.Seen
		r.Over += of.Over
		r.Behind += of.Behind
		r.Full += of.Full
		r.Other += of.Other
		r.Refused += of.Refused
		r.Back += of.Back
		r.Repaired += of.Repaired
		r.InTime += of.InTime
		r.SentInTime += of.SentInTime
		r.Waited += time.Duration(of.WaitedNs)
		r.Longest = max(r.Longest, time.Duration(of.LongestNs))
	}
	return seen
}

// waitsAtMost is REPAIR_FORGET_NS of core/repair.h.
const waitsAtMost = 200 * time.Millisecond

// Waiting returns the bytes that wait of a counter whose last packet was parked so long ago: none after the longest wait, because packets
// can be lost with the parking's device.
func Waiting(bytes uint32, since time.Duration) uint32 {
	if since > waitsAtMost {
		return 0
	}
	return uint32(max(int32(bytes), 0))
}

// Credits is what promises and credits do at a port. The counters count since the port was attached.
type Credits struct {
	Promises, Paces bool          // as configured: packets carry promises; packets wait for credits
	Pacing          bool          // one segment of each flow exceeds the port's room, so every ACK needs a credit
	LiveBytes       uint64        // promised and not used yet, as of the last heartbeat
	Ahead           time.Duration // until all data that was released to the port will have drained
	Promised        uint64        // packets that carried a promise
	Parked          uint64        // packets that waited
	Refused         uint64        // packets that passed although they had to wait: too long a wait, or no room in the parking
	Longest         time.Duration // longest wait
}

// Parking is the state of the parking device of a switch, in which packets wait.
type Parking struct {
	Present          bool   // the devices, the program and the queue are there
	Fault            string // why it cannot be read; "": it was read
	Unordered        bool   // packets of a flow may come back in another order
	Packets, Bytes   uint32 // that wait now
	MostPackets      uint32 // that may wait
	MostBytes        uint32
	Parked, Returned uint64 // packets since the device was made
	PassedGone       uint64 // not parked: the device or its queue was gone
	PassedFull       uint64 // not parked: it was full
	PassedMarked     uint64 // not parked: the packet's mark or priority was in use
	Stale, Foreign   uint64 // dropped: their port was replaced; somebody else sent them
}

// Flow is one direction of a connection: its data, and the window that its sender is granted.
type Flow struct {
	From, To netip.AddrPort // of the data
	VLANs    uint32         // tags from the outer to the inner, 12 bits each; 0: none
	Limited  bool
	Counted  bool // it sent data recently: one of the port's active flows
	Seen     bool // it passed since the heartbeat before the last
	OneSided bool // for a second only its data, or only its acknowledgements, passed here
	Signed   bool // both ends sign: TCP-MD5 or TCP-AO

	// InFlightBytes is the most data sent and not yet acknowledged since the heartbeat before the last, as this
	// switch saw it.
	InFlightBytes uint32
	// OfferedBytes is the window with which the receiver's last acknowledgement arrived, and GrantedBytes the
	// one with which it left; for an unlimited flow, the one with which it would have left. The port limits the
	// flow if GrantedBytes is less, and the limit is effective if InFlightBytes is near it. 0: none passed yet.
	OfferedBytes, GrantedBytes uint32
	// Acknowledged is the sequence number behind the last byte that was acknowledged. Its increase between two
	// readings is the flow's goodput in bytes.
	Acknowledged uint32
	// Scale is the scale shift of the receiver's windows; for an adopted connection, the least that explains
	// the bytes in flight.
	Scale uint8
}

// SignedSource is one source whose signed segments (TCP-MD5, TCP-AO) were counted.
type SignedSource struct {
	Addr     netip.Addr
	VLANs    uint32 // tags from the outer to the inner, 12 bits each; 0: none
	Segments uint64 // on the wire, since the source was first seen
	Dropped  uint64 // of them, if the configuration drops signed segments
}

// Switch is what the kernel knows of the ports of one pin directory.
type Switch struct {
	Holder       attach.Holder // the process that attached last
	HeartbeatAge time.Duration
	Lease        time.Duration // how long the state stays valid after a heartbeat
	Releasing    bool          // the process is about to leave
	Ports        []Pinned      // by name
	// SignedSources are the sources of most signed segments, 10 at most.
	SignedSources []SignedSource
	// Parking is where packets of the ports in the caller's namespace wait. nil: no port there needs one.
	Parking *Parking
}

// Alive reports whether a running process has the ports: its last heartbeat is younger than the lease.
func (s *Switch) Alive() bool { return !s.Releasing && s.HeartbeatAge < s.Lease }

// Pinned is one port that a law's program is attached to by a pinned link.
type Pinned struct {
	Stats
	ID          uint32 // in the tables
	Ifindex     int
	NetnsCookie uint64
	LinkID      uint32
	ProgramID   uint32
	HasDevice   bool
	Releasing   bool   // the law is about to leave the port
	Note        string // why its flows are not limited, as the process noted; "": no note

	// The fields below are read from within the port's own namespace only.
	Local   bool     // the caller is in it
	Before  []string // names of the programs that run before the law's: they may end the chain
	Queue   attach.RootQueue
	NoQueue *attach.NoQueue // the queue discipline that the port has now keeps no backlog
}
