//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// Two halves of a segment, of which the second one is 5 bytes short. The acknowledgement of the first one releases a half. That
// of the second one opens the window for 731 bytes, which is less than a half: the sender waits for more, because it has data in
// flight. The next acknowledgement releases these bytes, so this one must not be charged for them.
func TestCredit_LessThanASegmentIsNotReleased(t *testing.T) {
	b := newAckBed(t, 5)
	b.ack.LongestBytes = 736
	b.sends(736 + 731)
	if got := b.acks(736); !costs(got, 741, 1) {
		t.Errorf("first: charged %d bytes, want 741 and a header", got)
	}
	b.sends(741)
	if got := b.acks(731); got != 0 {
		t.Errorf("second: charged %d bytes, want nothing", got)
	}
	if got := b.acks(736); !costs(got, 1467, 2) {
		t.Errorf("third, with 5 bytes in flight: charged %d bytes, want 1467 and two headers", got)
	}
}

// A short segment ends where the window ended: the sender has more, so its acknowledgement releases a window. The same segment
// that leaves a part of the window unused is the end of a message, and its acknowledgement releases nothing.
func TestCredit_ASegmentCutByTheWindow(t *testing.T) {
	for _, cut := range []bool{true, false} {
		b := newAckBed(t, 5)
		b.ack.LongestBytes = 1448
		b.sends(1448 + 48)
		b.ack.Allowed = b.ack.Sent
		if !cut {
			b.ack.Allowed += 400
		}
		if got := b.acks(1448); got != 0 {
			t.Errorf("cut %v: with 48 bytes in flight charged %d bytes, want nothing: 1424 are no segment", cut, got)
		}
		if got := b.acks(48); cut && !costs(got, 1472, 2) || !cut && got != 0 {
			t.Errorf("cut %v: of the short segment: charged %d bytes, want a window if the sender has more", cut, got)
		}
	}
}

// A sender that left a part of a window unused sends whole segments only, so it is charged for those. One that used all of it sends a
// part of a segment, too.
func TestCredit_WholeSegmentsOnly(t *testing.T) {
	for _, row := range []struct {
		shift         uint8
		sends         uint32 // of a window
		bytes, frames uint32 // that its acknowledgement is charged
	}{
		{7, 1536, 1536, 2}, // a window of 1461 bytes is 1536
		{7, 1448, 1448, 1},
		{14, 16384, 16384, 12}, // and 16384 in units of 2^14
		{14, 11 * 1448, 11 * 1448, 11},
	} {
		b := newAckBed(t, row.shift)
		b.sends(1448)
		b.acks(1448)
		b.sends(row.sends)
		if got := b.acks(row.sends); !costs(got, row.bytes, row.frames) {
			t.Errorf("scale %d, %d bytes sent: charged %d bytes, want %d and %d headers", row.shift, row.sends, got, row.bytes, row.frames)
		}
	}
}

// A request to an end that closes without an answer, as one does whose flow goes one way only: its promise no longer counts
// as owed, so the next requests get first flights. Promises that nobody uses get cheaper, as those of tiny answers do. Closing
// long after the promise changes nothing.
func TestCredit_AnEndThatClosesOwesNothing(t *testing.T) {
	for _, late := range []bool{false, true} {
		b := newCreditBed(t, native.CreditPromises|native.CreditPaces)
		promise, a := b.opens(0, 0)
		now := uint64(100_000)
		if late {
			now = a.LiveNs + 300e6
		}
		b.sw.FlightUntil(0, now)
		before := *b.state
		b.sw.CreditUsed(0, now, promise, 0, int64(a.LiveNs-now), false, 0)
		if late && *b.state != before {
			t.Errorf("late: %+v, was %+v", *b.state, before)
		}
		if !late && (b.state.OwedBytes != 0 || b.state.FactorLess == 0) {
			t.Errorf("%d bytes are still owed, and the factor is %d/1024", b.state.OwedBytes, 1024-b.state.FactorLess)
		}
	}
}
