//go:build cgo

package native

/*
#include "fairq_credit.h"

#cgo noescape native_credit_acknowledges
#cgo nocallback native_credit_acknowledges
#cgo noescape native_credit_rest
#cgo nocallback native_credit_rest
#cgo noescape native_credit_asks
#cgo nocallback native_credit_asks
#cgo noescape native_credit_concerns
#cgo nocallback native_credit_concerns
*/
import "C"

import "unsafe"

// CreditMode is enum credit_mode of core/fairq/credit_state.h, added up.
type CreditMode uint32

// The modes.
const (
	CreditPromises CreditMode = C.CREDIT_PROMISES // opening packets carry promises
	CreditPaces    CreditMode = C.CREDIT_PACES    // packets wait for credits
)

// CreditConfig is struct credit_config of core/fairq/credit_state.h.
type CreditConfig struct {
	ByteNsQ20     uint64 // time of a byte at the port's rate, ns * 2^20
	CapacityBytes uint32 // BDP + target
	TargetBytes   uint32
	FirstBytes    uint32 // the largest promise
	WaitNs        uint32 // the longest wait
	HoldBytes     uint32 // most bytes that waiting packets stand for
	LineBytes     uint32 // that a frame takes on the line in addition
	Mode          CreditMode
	BufferBytes   uint32 // of the port; 0: no request is held
}

// CreditState is struct credit_state of core/fairq/credit_state.h.
type CreditState struct {
	ClockNs     uint64 // when all released bytes will have drained
	QueueNs     uint64 // when the parking queue is free
	ChargedNs   uint64
	CorrectedNs int64  // corrections that the queue does not show yet
	FactorLess  uint32 // 1024 less the factor of the cost of promises
	LongestNs   uint32 // longest wait
	Promises    uint64 // opening packets
	Parked      uint64 // packets that waited
	Full        uint64 // packets that passed: their wait would have been too long, or the parking refused them
	OwedBytes   uint32 // promises of this span that are not used yet
	OwedBefore  uint32 // of the span before
	OwedSpan    uint64
	Asked       uint32 // opening packets of this span
	AskedMost   uint32 // the most of a recent span
	Handshakes  uint32 // 2^20 less the share of promises in SYN-ACKs that are used, in 2^20ths
	HeldBytes   uint32 // promises of the requests that are held
	FullNs      uint64 // since when the buffer has had no room for further answers; 0: it has
	HeldNs      uint64 // when a request was held, or left after that, for the last time; 0: never
	Holds       uint64 // requests that were held
	Flight      CreditFlight
}

// CreditFlight is struct credit_flight of core/fairq/credit_flight.h.
type CreditFlight struct {
	Span       uint64
	PromptLess uint32 // 2^20 less the share of requests that are answered in time, in 2^20ths
	Bytes      uint32 // sum of all spans
	Burst      uint32 // the share of it that comes at once, in 2^20ths
	_          uint32
	Spans      [C.FLIGHT_SPANS]struct{ Bytes, Requests uint32 } // that left and are not answered, by the number of the span modulo 16
}

// The flights that a packet may begin: enum credit_opens of core/fairq/credit_ack.h.
const (
	CreditAccepts   = C.CREDIT_ACCEPTS   // a SYN-ACK
	CreditOpens     = C.CREDIT_OPENS     // a request
	CreditCompletes = C.CREDIT_COMPLETES // the ACK that completes a handshake
)

// CreditOpeners is the bit of enum credit_life for a promise of the end that opened the connection.
const CreditOpeners = C.CREDIT_OPENERS

// CreditAck is struct credit_ack of core/fairq/credit_ack.h.
type CreditAck struct {
	NowNs         uint64
	LeftNs        int64  // until the promise ends. Acknowledges sets it
	Promise       uint32 // End.Promise of the data's sender
	AdvanceBytes  uint32 // how much further it acknowledges than the ones before it
	FloorBytes    uint32 // least window of the flow
	BacklogBytes  uint32 // of the data's port
	LengthBytes   uint32 // its own
	Opens         uint8
	Pacing        uint8
	Behind, Fixed uint8
	Ends          uint8  // 1: it acknowledges a FIN
	Shift         uint8  // scale of the window in its header
	Answered      uint8  // 1: the data's sender answers requests, and its latest segment was shorter than others
	Life          uint8  // of the promise: enum credit_life. Acknowledges sets it
	Ack           uint32 // acknowledgement number
	Sent          uint32 // sequence number behind the furthest data of the data's sender
	Allowed       uint32 // End.Allowed of the data's sender
	LongestBytes  uint32 // End.Longest of the data's sender
	_             uint32
}

// CreditAnswer is struct credit_answer of core/fairq/credit_state.h.
type CreditAnswer struct {
	LeavesNs    uint64
	LiveNs      uint64 // until when the promise is live, if Renewed is 1
	ChargeNs    uint64 // what it was charged
	LengthBytes uint32 // in the parking queue; 0: it passes
	LongestNs   uint32 // longest wait before it
	Allowed     uint32 // End.Allowed of the data's sender from now on
	Renewed     uint32
}

// The Go types have the layout of their C types.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(CreditConfig{})-C.sizeof_struct_credit_config]
	_ = [1]struct{}{}[unsafe.Sizeof(CreditState{})-C.sizeof_struct_credit_state]
	_ = [1]struct{}{}[unsafe.Sizeof(CreditAck{})-C.sizeof_struct_credit_ack]
	_ = [1]struct{}{}[unsafe.Sizeof(CreditAnswer{})-C.sizeof_struct_credit_answer]
	_ = [1]struct{}{}[unsafe.Offsetof(CreditState{}.Promises)-unsafe.Offsetof(C.struct_credit_state{}.promises)]
	_ = [1]struct{}{}[unsafe.Sizeof(CreditSegment{})-C.sizeof_struct_native_credit_segment]
	_ = [1]struct{}{}[unsafe.Offsetof(CreditAck{}.Opens)-unsafe.Offsetof(C.struct_credit_ack{}.opens)]
)

// SetCredit begins promises and credits at a port, without anything released.
func (s *Switch) SetCredit(id int, config *CreditConfig) *CreditState {
	C.native_credit_begins(s.c, C.weir_u32(id), (*C.struct_credit_config)(unsafe.Pointer(config)))
	return s.CreditState(id)
}

// CreditState returns the state of promises and credits at a port. It is valid until Close.
func (s *Switch) CreditState(id int) *CreditState {
	return (*CreditState)(unsafe.Pointer(&s.entry(id).credits))
}

// SetCreditConfig changes the configuration of promises and credits at a port. The state stays.
func (s *Switch) SetCreditConfig(id int, config *CreditConfig) {
	s.entry(id).credit = *(*C.struct_credit_config)(unsafe.Pointer(config))
}

// CreditTurn is the turn of a connection after data, and what the data means for it.
type CreditTurn struct {
	Turn    uint8  // enum credit_turn of core/fairq/credit_turn.h
	Begins  bool   // the data begins the turn: the other end sent last, or nobody
	Longest uint16 // End.Longest from now on
}

// NextTurn returns the turn after data of a side, 0 or 1: credit_begins and credit_turn. gsoBytes: as in struct end; longest:
// End.Longest before it.
func NextTurn(turn, side uint8, payloadBytes, gsoBytes uint32, longest uint16) CreditTurn {
	t := uint32(C.native_credit_turn(C.weir_u8(turn), C.weir_u32(side), C.weir_u32(payloadBytes), C.weir_u32(gsoBytes), C.weir_u16(longest)))
	return CreditTurn{uint8(t), t&C.NATIVE_CREDIT_BEGINS != 0, uint16(t >> C.NATIVE_CREDIT_LONGEST)}
}

// CreditWasAcknowledged reports whether all of a segment's data was acknowledged before: credit_was_acknowledged. end: sequence number
// behind the data; una: the furthest acknowledgement of its receiver.
func CreditWasAcknowledged(end, una uint32) bool {
	return C.native_credit_was_acknowledged(C.weir_u32(end), C.weir_u32(una)) != 0
}

// CreditFits reports whether a segment belongs to its connection: credit_fits. sent: number behind the furthest data of its sender;
// others: of the other end.
func CreditFits(seq, sent, ack, others uint32) bool {
	return C.native_credit_fits(C.weir_u32(seq), C.weir_u32(sent), C.weir_u32(ack), C.weir_u32(others)) != 0
}

// CreditRun is struct credit_run: data without a gap that is not near what is known of its end.
type CreditRun struct{ From, To uint32 }

// Stray takes data that is not near: credit_stray.
func (r *CreditRun) Stray(seq, payloadBytes uint32) {
	run := C.struct_credit_run{from: C.weir_u32(r.From), to: C.weir_u32(r.To)}
	C.native_credit_stray(&run, C.weir_u32(seq), C.weir_u32(payloadBytes))
	r.From, r.To = uint32(run.from), uint32(run.to)
}

// Agrees reports whether an acknowledgement is of a byte of the run: credit_agrees.
func (r *CreditRun) Agrees(ack uint32) bool {
	run := C.struct_credit_run{from: C.weir_u32(r.From), to: C.weir_u32(r.To)}
	return C.native_credit_agrees(&run, C.weir_u32(ack)) != 0
}

// CreditEndsAt reports whether a FIN is directly behind the furthest data of its end: credit_ends_at. fin: the number behind it.
func CreditEndsAt(fin, sent uint32) bool {
	return C.native_credit_ends_at(C.weir_u32(fin), C.weir_u32(sent)) != 0
}

// CreditSegment is a segment with an acknowledgement, and what is known of its connection. Ask sets the last three fields.
type CreditSegment struct {
	Ack          uint32
	Sent         uint32 // sequence number behind the furthest data of the other end
	Una          uint32 // the furthest acknowledgement before it
	AdvanceBytes uint32 // CreditAck.AdvanceBytes: credit_advance
	SYN          uint8
	Opener       uint8 // 1: its sender opened the connection
	Begins       uint8 // 1: its data begins a turn
	Completes    uint8 // 1: it completes the handshake, and has no data
	Turn         uint8 // CreditTurn.Turn, after its data
	Side         uint8 // that sends it: 0 or 1
	Opens        uint8 // CreditAck.Opens: credit_opens
	Answered     uint8 // CreditAck.Answered: credit_answered
}

// Ask sets what the segment opens, whether it acknowledges an answer, and how much further it acknowledges.
func (s *CreditSegment) Ask() {
	C.native_credit_asks((*C.struct_native_credit_segment)(unsafe.Pointer(s)))
}

// Concerned reports whether promises and credits concern an acknowledgement: credit_concerns. Others must not be charged.
func (a *CreditAck) Concerned() bool {
	return C.native_credit_concerns((*C.struct_credit_ack)(unsafe.Pointer(a))) != 0
}

// MustPace reports whether a port must pace: port_must_pace. live: user space runs. A Turn with Paces starts or ends it.
func (s *Switch) MustPace(id int, live bool) bool {
	is := C.int(0)
	if live {
		is = 1
	}
	return C.native_must_pace(s.c, C.weir_u32(id), is) != 0
}

// Acknowledges charges an acknowledgement of data that leaves by the port. It returns the promise of the data's sender
// from now on, 0 if the law's window limits it, and sets when the packet leaves: credit_acknowledges. leftNs: until the
// sender's promise ends (CreditAnswer.LiveNs less the time).
func (s *Switch) Acknowledges(id int, ack *CreditAck, leftNs int64, answer *CreditAnswer) uint32 {
	return uint32(C.native_credit_acknowledges(s.c, C.weir_u32(id), (*C.struct_credit_ack)(unsafe.Pointer(ack)), C.longlong(leftNs), (*C.struct_credit_answer)(unsafe.Pointer(answer))))
}

// CreditRests follows Acknowledges, which returned this promise. It returns the promise from now on: credit_rest.
func (s *Switch) CreditRests(id int, ack *CreditAck, promise uint32, answer *CreditAnswer) uint32 {
	return uint32(C.native_credit_rest(s.c, C.weir_u32(id), (*C.struct_credit_ack)(unsafe.Pointer(ack)), C.weir_u32(promise), (*C.struct_credit_answer)(unsafe.Pointer(answer))))
}

// CreditRefused takes back what Acknowledges charged at nowNs for a packet that the parking refused: credit_refused.
func (s *Switch) CreditRefused(id int, nowNs uint64, answer *CreditAnswer) {
	C.native_credit_refused(s.c, C.weir_u32(id), C.weir_u64(nowNs), (*C.struct_credit_answer)(unsafe.Pointer(answer)))
}

// CreditUsed records that an end with a promise sends its first data: credit_used. leftNs: until the promise ends. opener: the end
// opened the connection, so a SYN-ACK gave the promise. released: what the end remembers of its request; 0: nothing.
func (s *Switch) CreditUsed(id int, nowNs uint64, promise, payloadBytes uint32, leftNs int64, opener bool, released uint32) {
	life := C.weir_u8(0)
	if opener {
		life = C.CREDIT_OPENERS
	}
	C.native_credit_used(s.c, C.weir_u32(id), C.weir_u64(nowNs), C.weir_u32(promise), C.weir_u32(payloadBytes), C.longlong(leftNs), life, C.weir_u32(released))
}

// CreditLiveNs returns for how long the clock of a port counts a promise: credit_live_ns.
func (s *Switch) CreditLiveNs(id int) uint64 {
	return uint64(C.native_credit_live_ns(s.c, C.weir_u32(id)))
}

// An end remembers these of a request that waits in the parking queue, and of a held request.
const (
	CreditWaits uint32 = C.FLIGHT_WAITS
	CreditHeld  uint32 = C.FLIGHT_HELD
)

// CreditReturns is called when a request may leave: it need not wait, comes back from the parking queue, or is a held request whose
// step is over. promise: that it carries; leftNs: as for Acknowledges. It returns what the end of its server remembers from now on. CreditHeld: the request is held for a step; else it leaves:
// credit_returns.
func (s *Switch) CreditReturns(id int, nowNs uint64, backlogBytes, promise uint32, leftNs int64, held bool) (remembers uint32) {
	h := C.int(0)
	if held {
		h = 1
	}
	return uint32(C.native_credit_returns(s.c, C.weir_u32(id), C.weir_u64(nowNs), C.weir_u32(backlogBytes), C.weir_u32(promise), C.longlong(leftNs), h))
}

// FlightUntil moves what is in flight on to a time: flight_until. The events of promises and credits do it, too.
func (s *Switch) FlightUntil(id int, nowNs uint64) {
	C.native_flight_until(s.c, C.weir_u32(id), C.weir_u64(nowNs))
}

// CreditStepNs returns for how long a port holds a request until it looks again.
func (s *Switch) CreditStepNs(id int) uint64 {
	return uint64(C.native_credit_step_ns(s.c, C.weir_u32(id)))
}

// CreditCountsOther reports whether a frame that no credit released is charged: credit_counts_other. pacing: Port.Pacing.
func (s *Switch) CreditCountsOther(id int, pacing uint32, nowNs uint64) bool {
	return C.native_credit_counts_other(s.c, C.weir_u32(id), C.weir_u32(pacing), C.weir_u64(nowNs)) != 0
}

// CreditOther charges a frame that no credit released: credit_other.
func (s *Switch) CreditOther(id int, nowNs uint64, frameBytes uint32) {
	C.native_credit_other(s.c, C.weir_u32(id), C.weir_u64(nowNs), C.weir_u32(frameBytes))
}
