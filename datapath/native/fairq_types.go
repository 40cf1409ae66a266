// Package native runs the per-packet laws of datapath/core as machine code, for the simulator and for tests.
// The kernel programs are compiled from the same headers. It needs cgo and a C compiler; without them it has
// only the types.
package native

import _ "weir/datapath/core" // a change of a header rebuilds this package

// Gain is how strongly FairQ reacts to the queue (SPEC FQ-10).
type Gain uint8

// The gains.
const (
	GainPaper Gain = iota // an update adds MSS * mean(κ) to all windows together
	GainOVS               // an update adds mean(αB - Q), as the authors' Open vSwitch code does
)

// SlowStart is what FairQ's probing step of 2 MSS is added to (SPEC FQ-11).
type SlowStart uint8

// The kinds of slow start.
const (
	SlowStartAggregate SlowStart = iota // to all windows together
	SlowStartPerFlow                    // to each window, as printed
	SlowStartOff
)

// Variant is the paper's software or its hardware.
type Variant uint8

// The variants.
const (
	VariantAlg1       Variant = iota
	VariantFairSwitch         // SPEC 1.3: 32-sample mean of Q, windows from αB/β on each change of β
)

// FairQConfig is struct fairq_config of core/fairq/fairq.h.
type FairQConfig struct {
	TargetBytes uint32    // αB, 1 or more
	BufferBytes uint32    // B: a longer queue counts as B; 0: unknown
	TickNs      uint32    // T: when the next sample is due
	PeriodNs    uint32    // M*T: time between updates, 1 .. 2^30
	FloorBytes  uint32    // least window of a flow; 0: the largest MSS seen (FQ-12)
	CapBytes    uint32    // largest window of a flow, near C*RTT + αB; 0: 2^30
	StartBytes  uint32    // sum of all windows while there are no flows; 0: TargetBytes
	MSSMaxBytes uint16    // largest MSS believed, MTU - 40; 0: 65535
	Gain        Gain      // FQ-10
	SlowStart   SlowStart // FQ-11
	Variant     Variant
}

// FairQState is struct fairq_state of core/fairq/fairq.h: one queue. Fields in q8 are bytes times 256.
type FairQState struct {
	AggregateQ8  uint64 // β*Rwnd
	WindowQ8     uint64 // Rwnd, within its limits
	UnderByteNs  uint64 // γ where Q < αB, not yet divided
	OverByteNs   uint64 // γ where Q > αB
	LastSampleNs uint64 // on the caller's clock
	BacklogSum   uint64 // FairSwitch: of Backlogs
	Rest         uint32 // left over from divisions, in 1/256 byte / αB (gain paper)
	RestNs       uint32 // and of those, in 1/PeriodNs
	ElapsedNs    uint32 // since an update was due
	Flows        uint32 // β, at most 2^20
	MSSBytes     uint16 // largest seen; 0: none, and 1460 is used
	SlowStart    uint8  // 1: probing
	Next         uint8  // FairSwitch: the oldest of Backlogs
	_            uint32
	Backlogs     [32]uint32 // FairSwitch: the last samples
}

// WindowAck is struct window_ack of core/window.h: an ACK and what its flow is granted.
type WindowAck struct {
	WindowQ8   uint64 // the law's window, bytes * 256
	FloorBytes uint32 // the flow's own least window: WindowFloor
	CapBytes   uint32 // 0: none
	Ack        uint32 // acknowledgement number
	Field      uint16 // window field as it arrived, in host order
	Shift      uint8  // window scale of the ACK's sender, 0 .. 14; not used for a SYN (FQ-14)
	SYN        uint8  // 1: SYN-ACK
	Shrink     Shrink
}

// Shrink is whether a window's right edge may move to the left.
type Shrink uint8

// The ways to shrink.
const (
	ShrinkAllow Shrink = iota
	ShrinkAvoid
)

// WindowEdge is struct window_edge of core/window.h: the furthest right edge granted to a flow.
type WindowEdge struct {
	Right uint32 // sequence number
	Known uint32 // 1: Right is valid
}

// MarkConfig is struct mark_config of core/mark.h.
type MarkConfig struct {
	ThresholdBytes uint32 // K
	Action         uint8  // 0 mark, 1 drop
	NotECT         uint8  // 0 pass, 1 drop; with Action 0
}

// MarkVerdict is enum mark_verdict of core/mark.h.
type MarkVerdict uint8

// The verdicts.
const (
	MarkPassUnder  MarkVerdict = iota // the queue is at or under the threshold
	MarkPassCE                        // over it, CE already
	MarkPassNotECT                    // over it, cannot be marked and passes
	MarkSetCE                         // over it: rewrite ECT to CE
	MarkDropLaw                       // over it, Action 1
	MarkDropNotECT                    // over it, Action 0, cannot be marked
)
