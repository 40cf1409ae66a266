//go:build cgo

package lawtrace

import (
	"fmt"
	"slices"

	"weir/datapath/native"
)

// The rows of a report about promises and credits.
const (
	countMustPace     = "port_must_pace"
	countPaces        = "  port_paces: ports that began or ended to pace"
	countAcknowledged = "credit_acknowledges"
	countParked       = "  of them: packets that waited in the parking"
	countPromised     = "  of them: packets that opened a flight"
	countRested       = "credit_rest"
	countRests        = "  of them: an end at rest got a promise"
	countUsed         = "credit_used"
	countCounted      = "credit_counts_other"
	countOther        = "credit_other"
	countRefused      = "credit_refused"
	countLater        = "flight_until"
	countReturned     = "credit_returns: requests that came back from the parking"
	countHeld         = "  of them: held requests"
	countTurned       = "credit_turn: data, whose turn it is"
	countAgain        = "credit_was_acknowledged: data, whether it was acknowledged already"
	countOpens        = "credit_opens"
	countAnswered     = "credit_answered"
	countAdvance      = "credit_advance"
	countUnconcerned  = "credit_concerns: ACKs that promises and credits do not concern"
)

var creditCounts = []string{
	countMustPace, countPaces, countAcknowledged, countParked, countPromised, countRested, countRests, countUsed, countCounted, countOther, countRefused, countLater, countReturned, countHeld,
	countTurned, countAgain, countOpens, countAnswered, countAdvance, countUnconcerned,
}

// CreditCalls returns the rows of a report about promises and credits.
func CreditCalls() []string { return slices.Clone(creditCounts) }

// The values are those of bpf/fairq/trace_records.h.
const (
	creditAcknowledged = 1
	creditRested       = 2
	creditUsed         = 3
	creditCounted      = 4
	creditOther        = 5
	creditRefused      = 6
	creditReturned     = 7
	creditLater        = 8

	askedTurn     = 1
	askedOpens    = 2
	askedAnswered = 3
	askedAdvance  = 4
	askedConcern  = 5
)

// creditRecord is lawtraceLawCredit with the types of the native core.
type creditRecord struct {
	Head    lawtraceLawHead
	Config  native.CreditConfig
	After   native.CreditState
	Ack     native.CreditAck
	Answer  native.CreditAnswer
	NowNs   uint64
	LeftNs  int64
	Promise uint32
	Bytes   uint32
	Event   uint32
	Mark    uint32
	Life    uint32
	_       uint32
}

// paces replays the question whether a port must pace.
func (r *replay) paces(p place) error {
	var k lawtraceLawPaces
	if err := r.trace.decode(p, &k); err != nil {
		return err
	}
	r.begin(k.Count)
	r.configure(&k.Config)
	r.count(countMustPace, 1)
	port := r.sw.Port(r.id())
	ours := r.sw.MustPace(r.id(), k.Live != 0)
	r.check(KindCredit, ours == (k.Answer != 0), fmt.Sprintf("port_must_pace(live=%d), pacing=%d", k.Live, port.Pacing), port, k.Answer != 0, ours)
	return nil
}

// credit replays one decision under the lock of a port's credits, and continues from the kernel's state.
func (r *replay) credit(p place) error {
	var k creditRecord
	if err := r.trace.decode(p, &k); err != nil {
		return err
	}
	r.begin(r.mode)
	if k.Config != r.credits {
		r.credits = k.Config
		r.sw.SetCreditConfig(r.id(), &r.credits)
	}
	state := r.sw.CreditState(r.id())
	before := *state
	call := r.creditEvent(&k, before)
	if call == "" {
		return fmt.Errorf("law trace: port %d, credits %d: a decision of kind %d", p.port, p.number, k.Event)
	}
	part := differs(state, &k.After)
	r.check(KindCredit, part == "", call+": "+part, before, k.After, *state)
	*state = k.After
	return nil
}

// differs names the first part in which two states differ.
func differs(a, b *native.CreditState) string {
	switch {
	case a.ClockNs != b.ClockNs || a.ChargedNs != b.ChargedNs:
		return "the clock"
	case a.QueueNs != b.QueueNs:
		return "the parking queue"
	case a.CorrectedNs != b.CorrectedNs:
		return "corrections"
	case a.FactorLess != b.FactorLess:
		return "the factor"
	case a.OwedBytes != b.OwedBytes || a.OwedBefore != b.OwedBefore || a.OwedSpan != b.OwedSpan:
		return "what is owed"
	case a.Flight != b.Flight || a.FullNs != b.FullNs || a.HeldNs != b.HeldNs || a.HeldBytes != b.HeldBytes:
		return "what is in flight"
	case *a != *b:
		return "counters"
	}
	return ""
}

// creditEvent makes the native core decide, and compares its answer. It returns the call; empty: there is none of this kind.
func (r *replay) creditEvent(k *creditRecord, before native.CreditState) (call string) {
	answer := func(kernel, ours any) { r.check(KindCredit, kernel == ours, call, before, kernel, ours) }
	switch k.Event {
	case creditAcknowledged:
		r.count(countAcknowledged, 1)
		call = fmt.Sprintf("credit_acknowledges(left_ns=%d,%s)", k.LeftNs, text(k.Ack))
		r.acknowledged(k, call, before)
	case creditRested:
		r.count(countRested, 1)
		call = fmt.Sprintf("credit_rest(promise=%d,%s)", k.Bytes, text(k.Ack))
		ours := k.Answer
		if k.Promise != k.Bytes {
			r.count(countRests, 1)
			ours.Allowed, ours.LiveNs, ours.Renewed = 0, 0, 0
		}
		answer(k.Promise, r.sw.CreditRests(r.id(), &k.Ack, k.Bytes, &ours))
		r.check(KindCredit, ours == k.Answer, call+": its answer", before, k.Answer, ours)
	case creditUsed:
		r.count(countUsed, 1)
		call = fmt.Sprintf("credit_used(now_ns=%d, promise=%d, payload_bytes=%d, left_ns=%d)", k.NowNs, k.Promise, k.Bytes, k.LeftNs)
		r.sw.CreditUsed(r.id(), k.NowNs, k.Promise, k.Bytes, k.LeftNs, k.Life&native.CreditOpeners != 0, k.Mark)
	case creditCounted:
		r.count(countCounted, 1)
		call = fmt.Sprintf("credit_counts_other(pacing=%d, now_ns=%d)", k.Bytes, k.NowNs)
		answer(k.Promise != 0, r.sw.CreditCountsOther(r.id(), k.Bytes, k.NowNs))
	case creditOther:
		r.count(countOther, 1)
		call = fmt.Sprintf("credit_other(now_ns=%d, frame_bytes=%d)", k.NowNs, k.Bytes)
		r.sw.CreditOther(r.id(), k.NowNs, k.Bytes)
	case creditRefused:
		if k.Answer.LengthBytes > 0 { // else it is a request that should return from the parking: credit_take counted no wait
			r.count(countRefused, 1)
		}
		call = fmt.Sprintf("credit_refused(now_ns=%d,%s)", k.NowNs, text(k.Answer))
		r.sw.CreditRefused(r.id(), k.NowNs, &k.Answer)
	case creditLater:
		r.count(countLater, 1)
		call = fmt.Sprintf("flight_until(now_ns=%d)", k.NowNs)
		r.sw.FlightUntil(r.id(), k.NowNs)
	case creditReturned:
		r.count(countReturned, 1)
		call = fmt.Sprintf("credit_returns(now_ns=%d, backlog_bytes=%d, promise=%d, left_ns=%d, held=%d)", k.NowNs, k.Bytes, k.Promise, k.LeftNs, k.Life)
		ours := r.sw.CreditReturns(r.id(), k.NowNs, k.Bytes, k.Promise, k.LeftNs, k.Life != 0)
		answer(k.Mark, ours)
		if ours == native.CreditHeld {
			r.count(countHeld, 1)
		}
	}
	return call
}

// acknowledged replays the charge of an acknowledgement.
func (r *replay) acknowledged(k *creditRecord, call string, before native.CreditState) {
	ack, ours := k.Ack, native.CreditAnswer{}
	r.check(KindCredit, ack.Concerned(), call+": whether it is charged", k.Ack, true, ack.Concerned())
	promise := r.sw.Acknowledges(r.id(), &ack, k.LeftNs, &ours)
	r.check(KindCredit, promise == k.Promise, call+": the promise", before, k.Promise, promise)
	r.check(KindCredit, ours == k.Answer, call+": when it leaves", before, k.Answer, ours)
	if k.Answer.LengthBytes != 0 {
		r.count(countParked, 1)
	}
	if k.Ack.Opens != 0 {
		r.count(countPromised, 1)
	}
}

// asked replays a question about a segment. Its answer depends on no state.
func (r *replay) asked(p place) error {
	var k lawtraceLawAsked
	if err := r.trace.decode(p, &k); err != nil {
		return err
	}
	s := native.CreditSegment{
		Ack: k.Ack, Sent: k.Sent, Una: k.Una, SYN: k.Syn, Opener: k.Opener, Begins: k.Begins, Completes: k.Completes, Turn: k.Turn, Side: k.Side,
	}
	s.Ask()
	r.begin(r.mode)
	is := func(what, call string, kernel, ours any) {
		r.count(what, 1)
		r.check(KindCredit, kernel == ours, call, s, kernel, ours)
	}
	switch k.Event {
	case askedTurn:
		again := native.CreditWasAcknowledged(k.Sent, k.Una)
		is(countAgain, "credit_was_acknowledged", k.Again != 0, again)
		kernel, ours := native.CreditTurn{Turn: uint8(k.Answer), Begins: k.Begins != 0, Longest: k.LongestAfter}, native.CreditTurn{Turn: k.Turn, Longest: k.Longest}
		if !again {
			ours = native.NextTurn(k.Turn, k.Side, k.Payload, k.Gso, k.Longest)
		}
		is(countTurned, fmt.Sprintf("credit_turn(turn=%d, side=%d, payload_bytes=%d, gso_bytes=%d, longest=%d)", k.Turn, k.Side, k.Payload, k.Gso, k.Longest),
			kernel, ours)
	case askedOpens:
		is(countOpens, "credit_opens", k.Answer, uint32(s.Opens))
	case askedAnswered:
		is(countAnswered, "credit_answered", k.Answer, uint32(s.Answered))
	case askedAdvance:
		is(countAdvance, "credit_advance", k.Answer, s.AdvanceBytes)
	case askedConcern:
		ack := native.CreditAck{Promise: k.Promise, Opens: k.Opens, Pacing: k.Pacing, Behind: k.Behind, Answered: k.Answered}
		is(countUnconcerned, "credit_concerns("+text(ack)+")", false, ack.Concerned())
	default:
		return fmt.Errorf("law trace: port %d, credits %d: a question of kind %d", p.port, p.number, k.Event)
	}
	return nil
}
