package tcp

import "testing"

// Reno's sawtooth: with a loss whenever the window reaches W it swings between W/2 and W, a segment per RTT. So a cycle
// is W/2 RTTs and carries 3/8 W² segments. The Mathis law follows from this: sqrt(3/2) / sqrt(p) for p = 8 / (3 W²).
func TestRenoSawtooth(t *testing.T) {
	for _, top := range []uint32{16, 64, 200} {
		p := newPath(t, "reno", ControlOptions{}, top, ms)
		p.w.Ssthresh = 2
		p.cut(CauseLoss)
		if p.w.Cwnd != top/2 {
			t.Fatalf("a loss at %d left %d", top, p.w.Cwnd)
		}
		for cycle := range 5 {
			rounds, sent := uint32(0), uint64(0)
			for p.w.Cwnd < top {
				sent += uint64(p.w.Cwnd)
				p.round(0)
				rounds++
			}
			if rounds != top/2 {
				t.Fatalf("cycle %d to %d: %d round trips, want %d", cycle, top, rounds, top/2)
			}
			// The sum of W/2 .. W-1.
			want := uint64(top/2) * uint64(top/2+top-1) / 2
			if sent != want {
				t.Fatalf("cycle %d to %d: %d segments, want %d", cycle, top, sent, want)
			}
			p.cut(CauseLoss)
		}
	}
}

func TestRenoHalvesDownToTwo(t *testing.T) {
	for cwnd, want := range map[uint32]uint32{1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 3, 100: 50, 101: 50} {
		w := Window{Cwnd: cwnd}
		for _, why := range []Cause{CauseLoss, CauseECE, CauseTimeout} {
			if got := (&reno{}).Ssthresh(&w, &Sample{}, why); got != want {
				t.Errorf("cwnd %d: ssthresh %d, want %d", cwnd, got, want)
			}
		}
	}
}

// A stretch ACK grows the window as much as the ACKs that it replaces (RFC 3465).
func TestRenoStretchAck(t *testing.T) {
	one, many := Window{Cwnd: 10, Ssthresh: 5, Clamp: maxCwnd}, Window{Cwnd: 10, Ssthresh: 5, Clamp: maxCwnd}
	for range 30 {
		renoGrow(&one, &Sample{Delivered: 1, Limited: true})
	}
	for range 6 {
		renoGrow(&many, &Sample{Delivered: 5, Limited: true})
	}
	// 10 + 11 ACKs add two segments; 9 of the 12 for the third remain.
	if one.Cwnd != 12 || one.Count != 9 {
		t.Errorf("one by one: %d and %d, want 12 and 9", one.Cwnd, one.Count)
	}
	if many.Cwnd != one.Cwnd {
		t.Errorf("by fives: %d, want %d", many.Cwnd, one.Cwnd)
	}
}
