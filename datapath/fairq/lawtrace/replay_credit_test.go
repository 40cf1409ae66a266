//go:build cgo

package lawtrace

import (
	"strings"
	"testing"

	"weir/datapath/native"
)

var madeCredit = native.CreditConfig{
	ByteNsQ20: 8 << 20, CapacityBytes: 50_000, TargetBytes: 20_000, FirstBytes: 14_600, WaitNs: 100e6, HoldBytes: 4 << 20, BufferBytes: 85_000, Mode: native.CreditPromises | native.CreditPaces,
}

// creditHead returns the head of the next record in the order of the port's credits.
func (m *made) creditHead(record uint32) lawtraceLawHead {
	m.nextCredit++
	return lawtraceLawHead{Number: m.nextCredit, Port: madePort, Record: record}
}

// decides records a decision of the port's credits, after it.
func (m *made) decides(k creditRecord) {
	k.Head, k.Config, k.After = m.creditHead(recordCredit), madeCredit, *m.sw.CreditState(madePort)
	m.credits = append(m.credits, k)
}

// asks records a question about a segment.
func (m *made) asks(k lawtraceLawAsked) {
	k.Head = m.creditHead(recordAsked)
	m.asked = append(m.asked, k)
}

// promises makes 20 requests at once, and what follows from them, at a port that paces.
func (m *made) promises() {
	m.sw.SetCredit(madePort, &madeCredit)
	m.paces = append(m.paces, lawtraceLawPaces{Head: m.head(recordPaces), Config: madeConfig, Live: 1, Answer: 0})
	m.turn(native.Turn{Event: native.Paces, Value: 1})
	m.turns[len(m.turns)-1].Pacing = 1
	m.ackWith(0, 5000, 1)
	var last native.CreditAnswer
	for i := range uint64(20) {
		ack := native.CreditAck{NowNs: 1e9, FloorBytes: 1461, LengthBytes: 130, Opens: native.CreditOpens, Pacing: 1, Ack: 7}
		answer := native.CreditAnswer{}
		promise := m.sw.Acknowledges(madePort, &ack, -int64(i), &answer)
		m.decides(creditRecord{Event: creditAcknowledged, Ack: ack, LeftNs: -int64(i), Promise: promise, Answer: answer})
		rests := m.sw.CreditRests(madePort, &ack, promise, &answer)
		m.decides(creditRecord{Event: creditRested, Ack: ack, Bytes: promise, Promise: rests, Answer: answer})
		last = answer
	}
	m.sw.CreditRefused(madePort, 1e9, &last)
	m.decides(creditRecord{Event: creditRefused, NowNs: 1e9, Answer: last})
	m.sw.CreditUsed(madePort, 1e9+1, 1461, 100, 5, false, 0)
	m.decides(creditRecord{Event: creditUsed, NowNs: 1e9 + 1, Promise: 1461, Bytes: 100, LeftNs: 5})
	m.sw.FlightUntil(madePort, 1e9)
	m.decides(creditRecord{Event: creditLater, NowNs: 1e9})
	mark := m.sw.CreditReturns(madePort, 1e9, 0, 1461, 5, false)
	m.decides(creditRecord{Event: creditReturned, NowNs: 1e9, LeftNs: 5, Promise: 1461, Mark: mark})
	mark = m.sw.CreditReturns(madePort, 1e9, 90_000, 1461, 5, false)
	m.decides(creditRecord{Event: creditReturned, NowNs: 1e9, LeftNs: 5, Promise: 1461, Bytes: 90_000, Mark: mark})
	m.decides(creditRecord{Event: creditCounted, NowNs: 1e9 + 2, Promise: 1})
	m.sw.CreditOther(madePort, 1e9+2, 60)
	m.decides(creditRecord{Event: creditOther, NowNs: 1e9 + 2, Bytes: 60})
	rest := native.CreditAck{NowNs: 1e9, FloorBytes: 1461, Answered: 1, Ack: 9, Sent: 9}
	answer := native.CreditAnswer{}
	m.decides(creditRecord{Event: creditRested, Ack: rest, Promise: m.sw.CreditRests(madePort, &rest, 0, &answer), Answer: answer})
	m.asks(lawtraceLawAsked{Event: askedTurn, Payload: 1448, Begins: 1, Answer: 1, LongestAfter: 1448, Sent: 1448})
	m.asks(lawtraceLawAsked{Event: askedOpens, Opener: 1, Begins: 1, Sent: 5, Ack: 5, Answer: native.CreditOpens})
	m.asks(lawtraceLawAsked{Event: askedAnswered, Opener: 1, Turn: 6, Answer: 1})
	m.asks(lawtraceLawAsked{Event: askedAdvance, Una: 5, Ack: 9, Answer: 4})
	m.asks(lawtraceLawAsked{Event: askedConcern})
}

// Replay finds any answer about promises and credits that the kernel gave otherwise, and names the call.
func TestReplay_FindsEveryCredit(t *testing.T) {
	for _, what := range CreditCalls() {
		if countOf(newMade(t).replay(), what) == 0 {
			t.Errorf("no calls: %s", what)
		}
	}
	decision := func(i int, change func(k *creditRecord)) func(m *made) {
		return func(m *made) { change(&m.credits[i]) }
	}
	question := func(i int, change func(k *lawtraceLawAsked)) func(m *made) {
		return func(m *made) { change(&m.asked[i]) }
	}
	for _, c := range []struct {
		first  string
		change func(m *made)
	}{
		{"port_must_pace(", func(m *made) { m.paces[0].Answer = 1 }},
		{"port_paces(paces=1): whether it paces", func(m *made) { m.turns[len(m.turns)-1].Pacing = 0 }},
		{": what promises and pacing grant", func(m *made) { m.acks[len(m.acks)-1].Promise++ }},
		{": what promises and pacing grant", func(m *made) { m.acks[len(m.acks)-1].Granted.WindowQ8 += 256 }},
		{"credit_acknowledges(left_ns=-4,", decision(8, func(k *creditRecord) { k.Promise++ })},
		{": the promise", decision(8, func(k *creditRecord) { k.Promise++ })},
		{": when it leaves", decision(8, func(k *creditRecord) { k.Answer.LeavesNs++ })},
		{": when it leaves", decision(8, func(k *creditRecord) { k.Answer.LongestNs ^= 1 })},
		{": whether it is charged", decision(8, func(k *creditRecord) { k.Ack.Opens, k.Ack.Pacing = 0, 0 })},
		{": the clock", decision(8, func(k *creditRecord) { k.After.ClockNs ^= 1 })},
		{": the clock", decision(8, func(k *creditRecord) { k.After.ChargedNs ^= 1 })},
		{": the parking queue", decision(8, func(k *creditRecord) { k.After.QueueNs ^= 1 })},
		{": corrections", decision(8, func(k *creditRecord) { k.After.CorrectedNs ^= 1 })},
		{": the factor", decision(8, func(k *creditRecord) { k.After.FactorLess ^= 1 })},
		{": what is owed", decision(8, func(k *creditRecord) { k.After.OwedBytes ^= 1 })},
		{": what is owed", decision(8, func(k *creditRecord) { k.After.OwedSpan ^= 1 })},
		{": counters", decision(8, func(k *creditRecord) { k.After.AskedMost ^= 1 })},
		{": counters", decision(8, func(k *creditRecord) { k.After.Parked ^= 1 })},
		{"credit_rest(promise=", decision(9, func(k *creditRecord) { k.Promise ^= 1 })},
		{"credit_rest(promise=0", decision(47, func(k *creditRecord) { k.Answer.Allowed ^= 1 })},
		{"credit_refused(", decision(40, func(k *creditRecord) { k.After.QueueNs ^= 1 })},
		{"credit_used(", decision(41, func(k *creditRecord) { k.After.FactorLess ^= 1 })},
		{": what is in flight", decision(42, func(k *creditRecord) { k.After.Flight.Span ^= 1 })},
		{"credit_returns(", decision(43, func(k *creditRecord) { k.Mark ^= 1 })},
		{": what is in flight", decision(44, func(k *creditRecord) { k.After.HeldNs ^= 1 })},
		{"credit_counts_other(", decision(45, func(k *creditRecord) { k.Promise = 0 })},
		{"credit_other(", decision(46, func(k *creditRecord) { k.After.ClockNs++ })},
		{"credit_turn(", question(0, func(k *lawtraceLawAsked) { k.Answer = 5 })},
		{"credit_turn(", question(0, func(k *lawtraceLawAsked) { k.LongestAfter++ })},
		{"credit_turn(", question(0, func(k *lawtraceLawAsked) { k.Begins = 0 })},
		{"credit_was_acknowledged", question(0, func(k *lawtraceLawAsked) { k.Again = 1 })},
		{"credit_was_acknowledged", question(0, func(k *lawtraceLawAsked) { k.Una = 1448 })},
		{"credit_opens", question(1, func(k *lawtraceLawAsked) { k.Answer = native.CreditCompletes })},
		{"credit_answered", question(2, func(k *lawtraceLawAsked) { k.Answer = 0 })},
		{"credit_advance", question(3, func(k *lawtraceLawAsked) { k.Answer++ })},
		{"credit_concerns(", question(4, func(k *lawtraceLawAsked) { k.Answered = 1 })},
	} {
		m := newMade(t)
		c.change(m)
		if r := m.replay(); r.Differences == 0 || r.Differences > 8 || !strings.Contains(r.First, c.first) {
			t.Errorf("%s: %d differences, the first:\n%s", c.first, r.Differences, r.First)
		}
	}
}

// A trace whose order of credits has a hole is refused, and so is a decision or a question of no kind.
func TestReplay_CreditsAreWhole(t *testing.T) {
	m := newMade(t)
	m.credits = m.credits[1:]
	if _, err := newTrace(m.raw()); err == nil || !strings.Contains(err.Error(), "records are missing") {
		t.Errorf("without the first record: %v", err)
	}
	for what, change := range map[string]func(m *made){
		"a decision": func(m *made) { m.credits[3].Event = 99 },
		"a question": func(m *made) { m.asked[3].Event = 9 },
	} {
		m := newMade(t)
		change(m)
		trace, err := newTrace(m.raw())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trace.Replay(); err == nil {
			t.Errorf("%s of no kind was replayed", what)
		}
	}
}
