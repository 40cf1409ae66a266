//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// Lines 22 to 24 lost their indentation. With the test of line 24 inside the `else`, slow start never looks at
// the queue once it is on.
func TestFQ5_SlowStartEndsAtTheTarget(t *testing.T) {
	const periods = 20
	asPrinted, slowStart := float64(target), true
	for range periods { // of a full buffer
		if slowStart {
			asPrinted += 2 * packet
			continue
		}
		asPrinted += packet * (1 - float64(buffer)/target)
		slowStart = slowStart && buffer < target
	}
	if asPrinted != target+periods*2*packet {
		t.Errorf("with line 24 in the else a full buffer leaves a window of %g: this test shows nothing", asPrinted)
	}
	q := newQueue(t, config(), 1)
	q.period(0)
	near(t, "slow start while the queue is empty", q.window(), target+2*packet)
	q.tick(target - 1)
	if q.State().SlowStart == 0 {
		t.Error("slow start ends under the target")
	}
	q.tick(target)
	if q.State().SlowStart != 0 {
		t.Error("slow start goes on at the target")
	}
	for range periods {
		q.period(buffer)
	}
	near(t, "a full buffer takes the window down to its floor", q.window(), packet)
}

// The prose changes the window after Γ updates, and Γ counts the updates, so it would change at each. M is the
// right number.
func TestFQ7_WindowChangesAfterMTicks(t *testing.T) {
	prose := float64(target)
	for range m {
		prose += 2 * packet // "after a number Γ of such updates"
	}
	if prose != target+2*m*packet {
		t.Errorf("the prose adds %g in M ticks: this test shows nothing", prose-target)
	}
	q := newQueue(t, config(), 1)
	for range m - 1 {
		q.tick(0)
		near(t, "before M ticks", q.window(), target)
	}
	q.tick(0)
	near(t, "after M ticks", q.window(), target+2*packet)
}

// swing runs a law over a queue that has the windows of `delay` updates ago less the bytes on their way. It
// returns the extremes of the queue at the end, in packets.
func swing(t *testing.T, gain native.Gain, delay int) (least, most float64) {
	t.Helper()
	c := config()
	c.Gain, c.SlowStart, c.CapBytes, c.FloorBytes = gain, native.SlowStartOff, 0, 1
	q := newQueue(t, c, 1)
	windows := make([]float64, 0, 1<<16)
	const updates, last = 6000, 500
	least = 1e9
	for i := range updates {
		windows = append(windows, q.window())
		backlog := min(max(0, windows[max(0, i-delay)]-bdp), buffer)
		q.period(uint32(backlog))
		if i >= updates-last {
			least, most = min(least, backlog/packet), max(most, backlog/packet)
		}
	}
	return least, most
}

// An update by the code's gain takes out the whole error. If its effect shows only some updates later (a round
// trip of over M*T), it takes the error out again and again, and the queue swings between empty and full. The
// paper's gain, the default, takes out an αB/MSS-th part and settles.
func TestFQ10_GainOfTheCodeSwingsWhereFeedbackIsLate(t *testing.T) {
	for _, delay := range []int{2, 5, 10} {
		if least, most := swing(t, native.GainOVS, delay); least > 1 || most < 2*16.6 {
			t.Errorf("%d updates late, the code's gain: %.1f to %.1f packets: this test shows nothing", delay, least, most)
		}
		if least, most := swing(t, native.GainPaper, delay); least < 16.5 || most > 16.7 {
			t.Errorf("%d updates late, the paper's gain: %.1f to %.1f packets, want 16.6", delay, least, most)
		}
	}
}
