package tcp

import (
	"math"
	"testing"

	"weir/sim/event"
)

const exactTick = 1

// RFC 9438 4.2: K = cbrt(W_max (1 - β)/C) after a reduction from W_max, in seconds.
func TestCubicK(t *testing.T) {
	for _, c := range []struct {
		wMax uint32
		k    float64
	}{
		{10, 1.957}, {100, 4.217}, {1000, 9.086}, {10000, 19.574}, {100000, 42.172},
	} {
		p := newPath(t, "cubic", ControlOptions{Tick: exactTick}, c.wMax, 100*ms)
		p.cut(CauseLoss)
		cubic := p.control.(*cubic)
		cubic.update(p.w.Cwnd, 1, p.s.Now)
		got := float64(cubic.k) / 1024
		if math.Abs(got-c.k) > 0.002*c.k+1.0/1024 {
			t.Errorf("W_max %d: K = %.3f s, want %.3f", c.wMax, got, c.k)
		}
	}
}

// RFC 9438 equation 1: W_cubic(t) = C (t-K)³ + W_max, tabulated for W_max = 1000, cwnd 700: K is
// 9.0856 s. t = 0 gives 700, t = K gives 1000.
func TestCubicCurve(t *testing.T) {
	p := newPath(t, "cubic", ControlOptions{Tick: exactTick}, 1000, 100*ms)
	p.cut(CauseLoss)
	c := p.control.(*cubic)
	c.update(p.w.Cwnd, 1, 0)
	for _, row := range []struct {
		seconds float64
		want    float64
	}{
		{0, 700}, {1, 788.5}, {2, 857.7}, {4, 947.3}, {6, 988.2}, {8, 999.5}, {9.0856, 1000}, {10, 1000.3},
		{12, 1009.9}, {15, 1082.7}, {20, 1520.2},
	} {
		if got := float64(c.target(event.Time(row.seconds * 1e9))); math.Abs(got-row.want) > 2 {
			t.Errorf("W_cubic(%v s) = %v, want %v", row.seconds, got, row.want)
		}
	}
}

// The window of a flow with a long round trip follows the curve.
func TestCubicWindowFollowsTheCurve(t *testing.T) {
	const rtt = 100 * ms
	p := newPath(t, "cubic", ControlOptions{}, 1000, rtt)
	p.w.Ssthresh = 900
	p.round(0) // measures the delay
	wMax := float64(p.w.Cwnd)
	p.cut(CauseLoss)
	k := math.Cbrt(wMax * 0.3 / 0.4)
	start := p.s.Now
	for p.s.Now-start < 20_000*ms {
		p.round(0)
		at := float64(p.s.Now-start) / 1e9
		want := 0.4*(at-k)*(at-k)*(at-k) + wMax
		if got := float64(p.w.Cwnd); math.Abs(got-want) > 0.03*want {
			t.Fatalf("%.1f s after the loss: cwnd %.0f, want %.0f", at, got, want)
		}
	}
}

// RFC 9438 4.3: with a short RTT and a small window the flow grows as Reno's, by α_cubic = 3 (1-β)/(1+β) = 0.53
// segments per RTT after a reduction to 0.7.
func TestCubicIsRenoFriendly(t *testing.T) {
	p := newPath(t, "cubic", ControlOptions{Tick: exactTick}, 40, ms)
	p.w.Ssthresh = 40
	p.cut(CauseLoss)
	if p.w.Cwnd != 28 {
		t.Fatalf("cut to %d, want 28", p.w.Cwnd)
	}
	const rounds = 200
	for range rounds {
		p.round(0)
	}
	// Linux updates an unchanged window only every 31 ms, so it follows W_est in steps.
	want := 28 + rounds*3*0.3/1.7 // 133.9
	if got := float64(p.w.Cwnd); got < want-31*0.53-2 || got > want+4 {
		t.Errorf("after %d round trips cwnd %.0f, want %.0f or up to 31 round trips' growth less", rounds, got, want)
	}
	alone := newPath(t, "cubic", ControlOptions{NoFriendly: true, Tick: exactTick}, 40, ms)
	alone.w.Ssthresh = 40
	alone.cut(CauseLoss)
	for range rounds {
		alone.round(0)
	}
	if alone.w.Cwnd > 40 {
		t.Errorf("without the friendly region cwnd %d after 0.1 s, want below W_max", alone.w.Cwnd)
	}
}

// RFC 9438 4.6 and 4.7.
func TestCubicCutAndFastConvergence(t *testing.T) {
	c := newCubic(ControlOptions{})
	c.Start(nil, &Sample{})
	w := Window{Cwnd: 1000}
	if got := c.Ssthresh(&w, nil, CauseLoss); got != 700 || c.wMax != 1000 {
		t.Errorf("cut to %d with W_max %d, want 700 and 1000", got, c.wMax)
	}
	w.Cwnd = 800
	if got := c.Ssthresh(&w, nil, CauseLoss); got != 560 || c.wMax != 680 {
		t.Errorf("cut to %d with W_max %d, want 560 and 800 (1 + 0.7)/2 = 680", got, c.wMax)
	}
	c.options.NoFastConvergence = true
	w.Cwnd = 600
	if got := c.Ssthresh(&w, nil, CauseLoss); got != 420 || c.wMax != 600 {
		t.Errorf("cut to %d with W_max %d, want 420 and 600", got, c.wMax)
	}
	w.Cwnd = 1
	if got := c.Ssthresh(&w, nil, CauseTimeout); got != 2 {
		t.Errorf("a window of 1 gives ssthresh %d, want 2", got)
	}
}

// After idle time the window continues at the same place of the curve.
func TestCubicIdleShiftsTheEpoch(t *testing.T) {
	p := newPath(t, "cubic", ControlOptions{Tick: exactTick}, 1000, 100*ms)
	p.cut(CauseLoss)
	c := p.control.(*cubic)
	c.update(p.w.Cwnd, 1, p.s.Now)
	before := c.target(p.s.Now + 1000*ms)
	p.s.Now += 11_000 * ms
	c.Idle(&p.w, &p.s, 10_000*ms)
	if after := c.target(p.s.Now); after != before {
		t.Errorf("target %d after 10 s of silence, want %d", after, before)
	}
	c.Idle(&p.w, &p.s, 100_000*ms)
	if c.epoch > p.s.Now {
		t.Error("the epoch begins in the future")
	}
}

func TestCubeRoot(t *testing.T) {
	for _, root := range []uint64{0, 1, 2, 3, 10, 1000, 1023, 1 << 20, 2097151} {
		if got := cubeRoot(root * root * root); got != root {
			t.Errorf("cube root of %d³ is %d", root, got)
		}
		if root > 0 && cubeRoot(root*root*root-1) != root-1 {
			t.Errorf("cube root of %d³ - 1 is not %d", root, root-1)
		}
	}
}

// hyAck passes HyStart one acknowledgement at the same window.
func hyAck(c *cubic, w *Window, at, rtt event.Time, una, nxt uint32) {
	c.Measure(w, &Sample{Now: at, RTT: rtt, SRTT: rtt, Una: una, Nxt: nxt, Delivered: 1, MSS: 1460, InFlight: w.Cwnd})
}

// Slow start ends if the delay of a round exceeds the shortest by an eighth (at least 4 ms, at most 16 ms), after eight
// samples.
func TestHyStartDelay(t *testing.T) {
	for _, c := range []struct {
		shortest, threshold event.Time
	}{{10 * ms, 4 * ms}, {80 * ms, 10 * ms}, {200 * ms, 16 * ms}} {
		for _, over := range []bool{false, true} {
			control := newCubic(ControlOptions{})
			control.Start(nil, &Sample{Nxt: 1000})
			w := Window{Cwnd: 32, Ssthresh: NoSsthresh, Clamp: maxCwnd}
			hyAck(control, &w, 0, c.shortest, 500, 1000)
			delay := c.shortest + c.threshold
			if over {
				delay++
			}
			// ACKs 3 ms apart are not a train. The first of them is past the end of the round.
			at := 500 * ms
			for i := range uint32(9) {
				if w.Ssthresh != NoSsthresh {
					t.Fatalf("shortest %v: ended after %d samples", c.shortest, i)
				}
				hyAck(control, &w, at, delay, 1001+i, 2000)
				at += 3 * ms
			}
			if ended := w.Ssthresh == 32; ended != over {
				t.Errorf("shortest %d ms, delay %d ns: ended %v, want %v", c.shortest/ms, delay, ended, over)
			}
		}
	}
}

// ACKs less than 2 ms apart end slow start, if they go on for half the shortest delay and the cushion. cushion: 4 * 64
// KiB at twice 32 segments in 10 ms take more than 1 ms, its bound.
func TestHyStartTrain(t *testing.T) {
	for _, c := range []struct {
		gap  event.Time
		want event.Time // time after the round began, 0: never
	}{{ms, 6 * ms}, {500 * ms / 1000, 6 * ms}, {2 * ms, 6 * ms}, {2*ms + 1, 0}} {
		control := newCubic(ControlOptions{})
		control.Start(nil, &Sample{Nxt: 1000})
		w := Window{Cwnd: 32, Ssthresh: NoSsthresh, Clamp: maxCwnd}
		ended := event.Time(0)
		for at := c.gap; at < 20*ms; at += c.gap {
			hyAck(control, &w, at, 10*ms, 500, 1000)
			if w.Ssthresh == 32 {
				ended = at
				break
			}
		}
		if ended != c.want {
			t.Errorf("ACKs %d ns apart: ended after %d ns, want %d", c.gap, ended, c.want)
		}
	}
}

func TestHyStartLeavesSmallWindowsAndCanBeOff(t *testing.T) {
	for _, c := range []struct {
		cwnd uint32
		off  bool
		want bool
	}{{15, false, false}, {16, false, true}, {16, true, false}} {
		control := newCubic(ControlOptions{NoHyStart: c.off})
		control.Start(nil, &Sample{Nxt: 1000})
		w := Window{Cwnd: c.cwnd, Ssthresh: NoSsthresh, Clamp: maxCwnd}
		for at := ms; at < 20*ms; at += ms {
			hyAck(control, &w, at, 10*ms, 500, 1000)
		}
		if ended := w.Ssthresh != NoSsthresh; ended != c.want {
			t.Errorf("cwnd %d, off %v: ended %v", c.cwnd, c.off, ended)
		}
	}
}

// A timeout clears what is known of the path: the next epoch has no plateau (RFC 9438 4.8).
func TestCubicTimeout(t *testing.T) {
	p := newPath(t, "cubic", ControlOptions{}, 100, 10*ms)
	p.round(0)
	p.w.Ssthresh = p.control.Ssthresh(&p.w, &p.s, CauseTimeout)
	p.control.Timeout(&p.w, &p.s)
	c := p.control.(*cubic)
	if c.wMax != 0 || c.minDelay != 0 || c.epoch != noEpoch || c.train.found {
		t.Errorf("after a timeout: %+v", *c)
	}
	if c.tick != defaultTick || c.second != event.Second || c.still != 28*ms {
		t.Errorf("the clock was forgotten: %d, %d, %d", c.tick, c.second, c.still)
	}
}
