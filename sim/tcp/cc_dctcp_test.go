package tcp

import (
	"math"
	"testing"
)

// RFC 8257 3.3: alpha is (1-g) alpha + g M once per window. Linux's integers differ from the recurrence in real numbers
// by less than 1/g units.
func TestDCTCPAlphaFollowsTheFractionOfMarks(t *testing.T) {
	for _, marked := range []uint32{0, 1, 4, 16, 32, 48, 63, 64} {
		p := newPath(t, "dctcp", ControlOptions{}, 64, ms)
		p.w.Ssthresh = 2
		p.w.Clamp = 64
		exact := 1.0
		for round := range 200 {
			p.round(marked)
			exact = 15.0/16*exact + float64(marked)/64/16
			got := float64(p.control.Alpha()) / alphaOne
			if math.Abs(got-exact) > 17.0/1024 {
				t.Fatalf("%d of 64 marked, window %d: alpha %.4f, want %.4f", marked, round+1, got, exact)
			}
		}
		got, want := float64(p.control.Alpha())/alphaOne, float64(marked)/64
		if got < want-1.0/1024 || got > want+16.0/1024 {
			t.Errorf("%d of 64 marked: alpha settles at %.4f, want %.4f", marked, got, want)
		}
	}
}

func TestDCTCPCutsByHalfOfAlpha(t *testing.T) {
	for _, c := range []struct{ cwnd, alpha, want uint32 }{
		{100, 1024, 50}, {100, 512, 75}, {100, 256, 88}, {100, 0, 100}, {10, 64, 10}, {3, 1024, 2}, {2, 1024, 2}, {1, 0, 2},
		{1 << 24, 1024, 1 << 23},
	} {
		d := dctcp{alpha: c.alpha}
		w := Window{Cwnd: c.cwnd}
		if got := d.Ssthresh(&w, &Sample{}, CauseECE); got != c.want {
			t.Errorf("cwnd %d, alpha %d/1024: %d, want %d", c.cwnd, c.alpha, got, c.want)
		}
		if got, want := d.Ssthresh(&w, &Sample{}, CauseLoss), max(c.cwnd/2, 2); got != want {
			t.Errorf("loss at %d: %d, want %d (RFC 8257 3.5)", c.cwnd, got, want)
		}
	}
}

func TestDCTCPOptions(t *testing.T) {
	p := newPath(t, "dctcp", ControlOptions{InitialAlpha: -1, GShift: 2}, 16, ms)
	if p.control.Alpha() != 0 {
		t.Fatalf("alpha starts at %d, want 0", p.control.Alpha())
	}
	p.w.Ssthresh = 2
	p.round(p.w.Cwnd)
	if p.control.Alpha() != 256 {
		t.Errorf("alpha %d after a window of marks with g = 1/4, want 256", p.control.Alpha())
	}
	if p := newPath(t, "dctcp", ControlOptions{}, 16, ms); p.control.Alpha() != 1024 {
		t.Errorf("alpha starts at %d, want 1024", p.control.Alpha())
	}
}

// One long flow over a queue that marks above K. DCTCP swings around K + C RTT by about sqrt(2 (C RTT + K)) segments,
// and alpha is sqrt(2/W*) (Alizadeh et al. 2010, 3.3, equations 6 and 8).
func TestDCTCPSawtoothAtAThreshold(t *testing.T) {
	const pipe, k = 100, 30
	p := newPath(t, "dctcp", ControlOptions{}, 64, ms)
	p.w.Ssthresh = 2
	low, high, alpha, rounds := uint32(math.MaxUint32), uint32(0), 0.0, 0.0
	for round := range 2000 {
		marked := uint32(0)
		if p.w.Cwnd > pipe+k {
			marked = p.w.Cwnd // the whole window that is sent while the queue is above K
		}
		p.round(marked)
		if round >= 1000 {
			low, high = min(low, p.w.Cwnd), max(high, p.w.Cwnd)
			alpha += float64(p.control.Alpha()) / alphaOne
			rounds++
		}
		if marked > 0 {
			p.cut(CauseECE)
		}
	}
	wantAlpha := math.Sqrt(2.0 / (pipe + k)) // 0.124
	if got := alpha / rounds; math.Abs(got-wantAlpha) > 0.04 {
		t.Errorf("alpha %.3f, want about %.3f", got, wantAlpha)
	}
	amplitude := wantAlpha / 2 * (pipe + k + 1) // 8 segments
	if got := float64(high - low); math.Abs(got-amplitude) > 4 {
		t.Errorf("the window swings by %.0f (%d to %d), want about %.1f", got, low, high, amplitude)
	}
}
