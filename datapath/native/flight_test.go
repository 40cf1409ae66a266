//go:build cgo

package native_test

import (
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/native"
)

// flightModel is core/fairq/credit_flight.h, slow and obvious: a list of all requests that left.
type flightModel struct {
	all  []*flightRequest
	less float64 // 1 less the share that is answered in time
}

type flightRequest struct {
	span  uint64
	bytes uint32
	over  bool // answered or forgotten
}

const (
	modelSpans = 16
	modelMean  = 64
	modelSpan  = 1 << 21 // ns
)

// until forgets the requests of each span that is over, span after span.
func (m *flightModel) until(from, to uint64) {
	for span := from + 1; span <= to && span <= from+modelSpans; span++ {
		n := 0.0
		for _, r := range m.all {
			if !r.over && r.span+modelSpans == span {
				r.over = true
				n++
			}
		}
		m.less += (1 - m.less) / modelMean * min(n, modelMean)
	}
}

func (m *flightModel) bytes() (sum uint32) {
	for _, r := range m.all {
		if !r.over {
			sum += r.bytes
		}
	}
	return sum
}

// In any order of requests, answers and time, the sum in flight is that of the requests that left within the last spans and are
// not answered. The share follows from those that were forgotten.
func TestFlight_IsTheSumOfUnansweredRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newCreditBed(t, native.CreditPromises|native.CreditPaces) // without a buffer: nothing is held
		m := &flightModel{}
		now := rapid.Uint64Range(1, 1<<40).Draw(t, "begin")
		b.sw.FlightUntil(0, now)
		type known struct {
			mark, promise uint32
			r             *flightRequest
		}
		var open []known
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			before := now >> 21
			now += rapid.Uint64Range(0, 3*modelSpan).Draw(t, "gap") * rapid.Uint64Range(0, 1).Draw(t, "later")
			m.until(before, now>>21)
			if len(open) > 0 && rapid.Bool().Draw(t, "answer") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				k := open[i]
				open = append(open[:i], open[i+1:]...)
				b.sw.CreditUsed(0, now, k.promise, 1448, 1, false, k.mark)
				if !k.r.over {
					m.less -= m.less / modelMean
				}
				k.r.over = true
			} else {
				promise := rapid.Uint32Range(1, 48<<10).Draw(t, "promise")
				mark := b.sw.CreditReturns(0, now, 0, promise, 1e6, false)
				// Its cost: the payload, the headers of a frame for each segment of 1448 and one more.
				cost := promise + (promise/1448+1)*90
				r := &flightRequest{span: now >> 21, bytes: cost}
				m.all = append(m.all, r)
				open = append(open, known{mark, promise, r})
			}
			if got, want := b.state.Flight.Bytes, m.bytes(); got != want {
				t.Fatalf("%d bytes are in flight, want %d", got, want)
			}
			if got, want := float64(b.state.Flight.PromptLess)/(1<<20), m.less; got < want-0.01 || got > want+0.01 {
				t.Fatalf("%.4f of the requests are not answered in time, want %.4f", got, want)
			}
		}
	})
}

// No server answers. After some tens of requests, the share is so small that requests leave as fast as they come.
func TestFlight_RequestsThatNobodyAnswers(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	b.config.BufferBytes = 85_000
	b.sw.SetCreditConfig(0, &b.config)
	b.state.Flight.Burst = 1 << 20
	held, late := 0, 0
	now := uint64(1)
	for range 20_000 {
		now += 20_000
		if b.sw.CreditReturns(0, now, 0, 1461, 1e6, true) == native.CreditHeld {
			held++
			if now > 1e9/4 {
				late++
			}
		}
	}
	if held == 0 || late > 0 {
		t.Errorf("%d requests were held, %d of them after a quarter of a second", held, late)
	}
	// A live server's requests are answered in time: soon new requests are held again while the buffer has no room.
	for range 2000 {
		now += 100_000
		mark := b.sw.CreditReturns(0, now, 0, 1461, 1e6, true)
		b.sw.CreditUsed(0, now+50_000, 1461, 1448, 1, false, mark)
	}
	held = 0
	for range 200 {
		if b.sw.CreditReturns(0, now, 0, 1461, 1e6, true) == native.CreditHeld {
			held++
		}
	}
	if held < 100 {
		t.Errorf("%d of 200 requests at once were held", held)
	}
}

// Requests wait elsewhere, for example in the parking of another switch, and their answers come one after another while the queue
// is empty. They leave as fast as they come then, with more in flight than the buffer holds. After a burst, requests are held.
func TestFlight_AnswersOneAfterAnother(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	b.config.BufferBytes = 85_000
	b.sw.SetCreditConfig(0, &b.config)
	now := uint64(1)
	var marks []uint32
	asks := func(n int) (held int) {
		for range n {
			if mark := b.sw.CreditReturns(0, now, 1500, 2922, 1e6, true); mark == native.CreditHeld {
				held++
			} else {
				marks = append(marks, mark)
			}
		}
		return held
	}
	sees := func(backlog uint32) {
		ack := native.CreditAck{NowNs: now, Pacing: 1, FloorBytes: 1461, LengthBytes: 66, BacklogBytes: backlog}
		b.sw.Acknowledges(0, &ack, 0, &native.CreditAnswer{})
	}
	answers := func(n int) {
		for range n {
			b.sw.CreditUsed(0, now, 2922, 1448, 1, false, marks[0])
			marks = marks[1:]
		}
	}
	if sees(1500); asks(40) > 0 {
		t.Error("requests were held although no burst had come")
	}
	answers(40)
	if sees(80_000); asks(40) < 10 {
		t.Error("fewer than 10 of 40 requests were held after a burst")
	}
	for range 100 {
		now += 20_000
		answers(1)
		sees(1500)
		for len(marks) < 40 && asks(1) == 0 {
			continue
		}
	}
	if b.state.Flight.Bytes < 120_000 {
		t.Errorf("%d bytes are in flight, want more than the buffer of 85,000", b.state.Flight.Bytes)
	}
	answers(len(marks))
	if sees(80_000); asks(40) < 10 {
		t.Error("fewer than 10 of 40 requests were held after the second burst")
	}
}
