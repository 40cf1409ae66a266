//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// The queue itself has no room for an answer: a request is held for the longest wait. With answers that are only expected it waits
// for 31 to 34 ms.
func TestCredit_AFullQueueHoldsRequests(t *testing.T) {
	for _, row := range []struct {
		what    string
		backlog uint32
		flight  int    // requests that were released and not answered
		least   uint64 // ms
		most    uint64
	}{{"the queue", 84_000, 0, 99, 100}, {"answers that are expected", 20_000, 60, 31, 34}} {
		b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
		b.config.BufferBytes = 85_000
		b.sw.SetCreditConfig(0, &b.config)
		b.state.Flight.Burst = 1 << 20
		now := uint64(1e9)
		b.sw.FlightUntil(0, now)
		for range row.flight {
			b.sw.CreditReturns(0, now, 0, 1461, 1e6, true)
		}
		begin := now
		for b.sw.CreditReturns(0, now, row.backlog, 1461, 1e6, true) == native.CreditHeld {
			now += 100_000
		}
		if held := (now - begin) / 1e6; held < row.least || held > row.most {
			t.Errorf("%s: held for %d ms, want %d to %d", row.what, held, row.least, row.most)
		}
	}
}

// A request that stays behind others waits until the longest wait after it was due, and leaves then although the queue is full.
// With its wait for a credit these are two longest waits, the least retransmission timeout: its client would send it again. At four
// longest waits of 100 ms, 12 to 187 of 12,000 requests were sent again.
func TestCredit_ARequestWaitsOnceAfterItWasDue(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	b.config.BufferBytes = 85_000
	b.sw.SetCreditConfig(0, &b.config)
	const now = uint64(1e9)
	for _, row := range []struct {
		late int64 // since it was due, ns
		held bool
	}{{0, true}, {99_999_999, true}, {100_000_000, false}, {399_000_000, false}} {
		left := int64(b.sw.CreditLiveNs(0)) - row.late
		if held := b.sw.CreditReturns(0, now, 84_000, 1461, left, true) == native.CreditHeld; held != row.held {
			t.Errorf("%d ns after it was due: held %t, want %t", row.late, held, row.held)
		}
	}
}

// A guest that announces an MSS of 1 costs no more of the port's time than one of 536: it cannot send such segments without end.
func TestCredit_CostOfATinyMSS(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	var a native.CreditAnswer
	b.acknowledges(&native.CreditAck{NowNs: 1e9, FloorBytes: 2, Shift: 14, LengthBytes: 66, Opens: native.CreditOpens}, 0, &a)
	if most := uint64(16384) * 8 * 3 / 2; a.ChargeNs == 0 || a.ChargeNs > most {
		t.Errorf("a window of 16384 bytes costs %d ns, want at most %d", a.ChargeNs, most)
	}
}

// Frames that no credit released come faster than the line: the port drops what is too much, so the clock does not count it.
func TestCredit_FloodOfOthers(t *testing.T) {
	b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
	now := uint64(1e9)
	for i := range uint64(100_000) {
		b.sw.CreditOther(0, now+i*10, 1514)
	}
	if ahead := b.state.ClockNs - now; ahead < 200e6 || ahead > 203e6 {
		t.Errorf("the clock is %d ms ahead, want twice the longest wait, 200", ahead/1e6)
	}
}
