//go:build cgo

package laws

import (
	"math"
	"testing"

	"weir/sim/event"
)

// newWindow returns the window of a connection whose SYN was acknowledged. Segments are 1000 bytes, g = 1/16, and the
// first byte is at from.
func newWindow(from uint32) *dctcpWindow {
	w := &dctcpWindow{una: from, nxt: from}
	w.start(1000, 1001, gainOne/16, 200*event.Millisecond, 0)
	return w
}

// round has the guest fill the window, and acknowledges what was in flight. Of it, marked segments carried a mark.
func (w *dctcpWindow) round(marked uint32) {
	fill := func() { w.sent(max(w.nxt, w.una+w.bytes/w.mss*w.mss), 0) }
	fill()
	for i := range (w.nxt - w.una) / w.mss {
		ce := uint32(0)
		if i < marked {
			ce = w.mss
		}
		w.hears(w.mss, ce)
		w.acknowledged(w.una+w.mss, false, ce > 0, 0)
		fill()
	}
}

// By hand: alpha begins at 1, and falls by 1/16 per round trip without marks. With every second segment marked it goes
// to 1/2, and with all marked to 1.
func TestACDC_AlphaIsTheMarkedFraction(t *testing.T) {
	w := newWindow(0)
	near := func(what string, want, off float64) {
		t.Helper()
		if got := float64(w.alpha) / alphaOne; math.Abs(got-want) > off {
			t.Errorf("%s: alpha is %.6f, want %.6f", what, got, want)
		}
	}
	// A window of ten segments: when one is acknowledged, nine are in flight, and these end the observation.
	const rounds = 20
	w.bytes, w.threshold = 10_000, 10_000
	taken := 0
	for was := w.alpha; w.una < rounds*9000; was = w.alpha {
		w.sent(w.una+10_000, 0)
		w.hears(1000, 0)
		if w.acknowledged(w.una+1000, false, false, 0); w.alpha != was {
			near("no marks", float64(was)/alphaOne*15/16, 1e-5)
			taken++
		}
		w.counted = 0
	}
	if taken != rounds {
		t.Errorf("alpha was taken %d times in %d windows", taken, rounds)
	}
	// In every second window all segments are marked. The window stays as it is.
	for i := range 400 {
		w.round(uint32(i%2) * 1000)
		w.bytes, w.counted = 20_000, 0
	}
	near("half", 0.5, 1.0/16)
	for range 600 {
		w.round(0)
		w.bytes, w.counted = 20_000, 0
	}
	if w.alpha != 0 {
		t.Errorf("alpha is %d/2^20 after 600 rounds without marks, want 0", w.alpha)
	}
	for range 400 {
		w.round(1000)
		w.bytes = 20_000
	}
	near("all", 1, 1e-4)
	w.total, w.marked = 0, 0
	was := w.alpha
	w.measure()
	if w.alpha != was {
		t.Error("alpha changed without a report")
	}
	w.gain, w.alpha = gainOne, 12_345
	w.hears(3000, 1000)
	if w.measure(); w.alpha != alphaOne/3 {
		t.Errorf("alpha is %d with g = 1 and a third marked", w.alpha)
	}
}

// A window is cut by alpha/2 once, however many of its ACKs report marks, and again for a mark of the next window. A
// loss takes half.
func TestACDC_OneCutAWindow(t *testing.T) {
	for _, from := range []uint32{0, math.MaxUint32 - 20_500, 1<<31 - 20_500} { // sequence numbers wrap on the way
		w := newWindow(from)
		w.bytes, w.threshold, w.alpha, w.measured = 40_000, 40_000, alphaOne/4, from+1<<30
		w.sent(from+40_000, 0)
		for i := range uint32(20) {
			w.hears(2000, 2000)
			w.acknowledged(from+2000*(i+1), false, true, 0)
			if i == 0 {
				w.sent(from+75_000, 0) // is sent within the window that is cut
			}
		}
		if w.bytes != 35_000 || w.threshold != 35_000 {
			t.Errorf("from %d: %d bytes, ssthresh %d after the marks of one window, want 35000", from, w.bytes, w.threshold)
		}
		w.acknowledged(from+42_000, false, true, 0)
		if want := uint32(35_000 - 35_000/8); w.bytes != want {
			t.Errorf("from %d: %d bytes after the next window's mark, want %d", from, w.bytes, want)
		}
		w.sent(from+80_000, 0)
		w.acknowledged(from+76_000, false, false, 0)
		before := w.bytes
		for range 5 {
			w.acknowledged(from+76_000, true, false, 0)
		}
		if w.bytes != before-before/2 || w.alpha != alphaOne/4 {
			t.Errorf("from %d: %d bytes and alpha %d after duplicates, were %d", from, w.bytes, w.alpha, before)
		}
	}
}

// Slow start adds the acknowledged bytes, congestion avoidance a segment per window. The window does not grow if the
// guest does not fill it.
func TestACDC_Growth(t *testing.T) {
	w := newWindow(0)
	if w.bytes != 10_000 {
		t.Fatalf("it begins with %d bytes, want 10 segments", w.bytes)
	}
	// A round acknowledges what was in flight when it began.
	for _, want := range []uint32{20_000, 40_000, 80_000} {
		if w.round(0); w.bytes != want {
			t.Errorf("%d bytes in slow start, want %d", w.bytes, want)
		}
	}
	w.threshold = w.bytes
	for i := range uint32(3) {
		before := w.bytes
		if w.round(0); w.bytes != before+1000 {
			t.Errorf("%d bytes in round %d of congestion avoidance, were %d", w.bytes, i, before)
		}
	}
	w.threshold, w.una = math.MaxUint32, w.nxt
	for _, flight := range []uint32{1000, w.bytes/2 - 1000} {
		before := w.bytes
		w.sent(w.una+flight, 0)
		if w.acknowledged(w.una+flight, false, false, 0); w.bytes != before {
			t.Errorf("%d of %d bytes were in flight, and slow start made it %d", flight, before, w.bytes)
		}
	}
	w.threshold = w.bytes
	for range 10 {
		before := w.bytes
		w.sent(w.una+before-2000, 0)
		if w.acknowledged(w.nxt, false, false, 0); w.bytes != before {
			t.Errorf("all but two segments were in flight, and %d became %d", before, w.bytes)
		}
	}
	w.bytes, w.threshold = mostWindow-500, mostWindow-500
	w.counted = w.bytes
	w.grow(1, w.bytes)
	if w.bytes != mostWindow {
		t.Errorf("%d bytes, want the most that a window can be", w.bytes)
	}
}

// Data that is not acknowledged for longer than a timeout restarts in slow start. An idle connection does not, nor one
// that gets ACKs all the time. Nothing goes below the floor.
func TestACDC_Timeout(t *testing.T) {
	const patience = 200 * event.Millisecond
	w := newWindow(5)
	w.bytes = 50_000
	w.sent(1005, patience*10) // idle until now
	w.acknowledged(1005, false, false, patience*11)
	if w.bytes != 50_000 {
		t.Errorf("%d bytes after an idle time", w.bytes)
	}
	w.sent(9005, patience*20)
	for i := range event.Time(10) {
		w.acknowledged(1005, false, false, patience*(20+i))
	}
	if w.bytes != 50_000 {
		t.Errorf("%d bytes though ACKs came all the time", w.bytes)
	}
	w.acknowledged(2005, false, false, patience*30+1) // adds its own segment
	if w.bytes != w.floor+1000 || w.threshold != 25_000 {
		t.Errorf("%d bytes, ssthresh %d after a timeout", w.bytes, w.threshold)
	}
	for i := range event.Time(20) {
		w.sent(w.nxt+1000, patience*(40+2*i))
		w.hears(1000, 1000)
		w.acknowledged(w.nxt, false, true, patience*(42+2*i))
	}
	if w.bytes != 1001 {
		t.Errorf("%d bytes, ssthresh %d, at the floor", w.bytes, w.threshold)
	}
	old := *w
	w.acknowledged(w.una-5000, true, true, 0) // ACKs of the past, and of what nobody sent
	w.acknowledged(w.nxt+5000, true, true, 0)
	if w.una != old.una || w.bytes != old.bytes {
		t.Errorf("%+v became %+v", old, *w)
	}
}
