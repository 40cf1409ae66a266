package sim

import (
	"fmt"
	"math"
	"testing"

	"weir/sim/event"
	"weir/sim/tcp"
)

// Cubic's response function, RFC 9438 section 5. With a loss every 1/p segments, cycles begin at β W_max and end at
// W_max after K = cbrt(W_max (1-β)/C), and
//
//	AVG_W_cubic = (C (3+β) / (4 (1-β)))^(1/4) RTT^(3/4) / p^(3/4), and AVG_W_cubic = (3+β)/4 W_max,
//
// or, where that is less, Reno's (4.3): AVG_AIMD(α, β) = sqrt(α (1+β) / (2 (1-β) p)) with α = 3 (1-β)/(1+β), which is
// sqrt(3/2p), and (1+β)/2 of the largest window.
const (
	lawC     = 0.4
	lawBeta  = 0.7
	lawAlpha = 3 * (1 - lawBeta) / (1 + lawBeta)
)

func cubicAverage(p, rtt float64) float64 {
	return math.Pow(lawC*(3+lawBeta)/(4*(1-lawBeta)), 0.25) * math.Pow(rtt/p, 0.75)
}

func cubicPeak(p, rtt float64) float64 { return cubicAverage(p, rtt) * 4 / (3 + lawBeta) }

func friendlyAverage(p float64) float64 {
	return math.Sqrt(lawAlpha * (1 + lawBeta) / (2 * (1 - lawBeta) * p))
}

// Table 1 of RFC 9438 has the function for an RTT of 0.1 s and p of 10^-4, 10^-5 and 10^-6.
func TestResponse_CubicLawIsTheRFCs(t *testing.T) {
	near(t, "AVG_W_cubic(1e-4, 0.1 s)", cubicAverage(1e-4, 0.1), 187, 0.005)
	near(t, "AVG_W_cubic(1e-5, 0.1 s)", cubicAverage(1e-5, 0.1), 1054, 0.005)
	near(t, "AVG_W_cubic(1e-6, 0.1 s)", cubicAverage(1e-6, 0.1), 5926, 0.005)
}

// The cubic region. The flow begins at the law's own W_max. With all losses 1/p segments apart every W_max nearly
// repeats itself, because the curve is flat there. A flow that begins elsewhere approaches it only over hundreds of
// cycles (TestResponse_CubicComesBack). The derivation has no fast convergence, so it is off. The repair of a loss
// takes one RTT in K, and windows are whole segments. For these 1.5 to 4 % were allowed at first; all results were
// within 0.2 %, and the bound is now 0.5 %. The test is about the curve's form. For a given W_max the mean hardly
// depends on C: TestCubicK of sim/tcp and the random losses below test that.
func TestResponse_CubicRegion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n      int64
		rtt    event.Time
		cycles int
	}{
		{10_000, 100 * event.Millisecond, 10},
		{10_000, 200 * event.Millisecond, 10},
		{30_000, 100 * event.Millisecond, 6},
		{100_000, 100 * event.Millisecond, 4},
		{100_000, 40 * event.Millisecond, 4},
	} {
		p, rtt := 1/float64(c.n), float64(c.rtt)/1e9
		if cubicAverage(p, rtt) < friendlyAverage(p) {
			t.Fatalf("p 1/%d at %v s is not in the cubic region", c.n, rtt)
		}
		cfg := *tcp.Default("cubic")
		cfg.Options.NoFastConvergence = true
		path := newLossyPath(t, cfg, c.rtt, cubicPeak(p, rtt))
		cycles := c.cycles * *longer
		path.run(cycles+2, every(c.n))
		near(t, fmt.Sprintf("cubic, %d ms, p 1/%d", c.rtt/event.Millisecond, c.n),
			path.window(1, cycles+1), cubicAverage(p, rtt), 0.005)
	}
}

// friendlyByHand is the sawtooth of W_est in whole segments and RTTs (sawtoothByHand), as Linux follows it. W_est grows
// by one for each 15/8 windows acknowledged, and the window follows an RTT later. An unchanged window is updated again
// after 1/32 s.
func friendlyByHand(n int64, rtt, peak float64) float64 {
	var est, acked, still int64
	patience := int64(math.Ceil(0.032 / rtt))
	cut := func(w int64) int64 {
		est, acked, still = w*7/10, 0, patience
		return est
	}
	grow := func(w int64) int64 {
		gap := est - w
		for acked += w; acked > w*15/8; acked -= w * 15 / 8 {
			est++
		}
		if still++; still < patience {
			return w // not updated
		}
		if gap <= 0 {
			still = 0
			return w
		}
		still = patience - 1 // a changed window is updated each time
		return w + gap
	}
	return sawtoothByHand(n, int64(peak), cut, grow)
}

// The Reno-friendly region, with all of Linux's settings. The simulator is below the law's figure for three reasons.
// The repair takes an RTT of each cycle. Linux does not update an unchanged window for 1/32 s, in which W_est grows.
// Rounding and delay cost two segments: half a segment each for a whole window and a whole W_est, a cut that rounds
// down, and the RTT by which the window is behind. (The first run showed the need for the last two: it was up to 3.2 %
// beyond a tolerance without them. By hand they are confirmed within a segment and a half.)
func TestResponse_CubicFriendlyRegion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n   int64
		rtt event.Time
	}{
		{1000, 10 * event.Millisecond},
		{10_000, 10 * event.Millisecond},
		{1000, 20 * event.Millisecond},
		{1000, 40 * event.Millisecond},
		{100_000, 10 * event.Millisecond},
	} {
		p, rtt := 1/float64(c.n), float64(c.rtt)/1e9
		average := friendlyAverage(p)
		if cubicAverage(p, rtt) > average {
			t.Fatalf("p 1/%d at %v s is not in the friendly region", c.n, rtt)
		}
		peak := average * 2 / (1 + lawBeta)
		trips := peak * (1 - lawBeta) / lawAlpha
		path := newLossyPath(t, *tcp.Default("cubic"), c.rtt, peak)
		cycles := 12 * *longer
		path.run(cycles+4, every(c.n))
		got := path.window(3, cycles+3)
		near(t, fmt.Sprintf("cubic as reno, %d ms, p 1/%d", c.rtt/event.Millisecond, c.n),
			got, average, 1/trips+(2+lawAlpha/(32*rtt))/average)
		near(t, "    by hand", got, friendlyByHand(c.n, rtt, peak), 1.5/average)
	}
}

// A flow returns to the law's W_max from both sides, but slowly. To first order it does not return: W_max moves by C
// (T-K)³ in a cycle of T, a percent or two for a flow that is a quarter off.
func TestResponse_CubicComesBack(t *testing.T) {
	t.Parallel()
	const n, rtt, cycles = 10_000, 0.1, 40
	law := cubicAverage(1.0/n, rtt)
	for _, begin := range []float64{0.75, 1.25} {
		cfg := *tcp.Default("cubic")
		cfg.Options.NoFastConvergence = true
		path := newLossyPath(t, cfg, 100*event.Millisecond, begin*cubicPeak(1.0/n, rtt))
		path.run(cycles+2, every(n))
		first, last := path.window(1, 5)/law-1, path.window(cycles-3, cycles+1)/law-1
		t.Logf("from %.2f of W_max: %+.1f %% of the law, %d cycles on %+.1f %%", begin, 100*first, cycles, 100*last)
		if math.Abs(last) >= math.Abs(first) {
			t.Errorf("from %.2f of W_max the flow does not come back: %+.1f %%, then %+.1f %%", begin, 100*first, 100*last)
		}
	}
}

// cubicByHand returns the mean window of RFC 9438 under losses that are these numbers of segments apart: its equations
// 1 to 4 and fast convergence in real numbers, a step per RTT. It is slow and obvious; cc_cubic.go is neither.
func cubicByHand(gaps []int64, rtt, wMax float64, fast bool) float64 {
	w, out := lawBeta*wMax, wMax
	segments, trips, pending := 0.0, 0.0, 0.0
	for _, gap := range gaps {
		if pending += float64(gap); pending < out {
			continue // in the window that is being repaired: one reduction for both (4.6)
		}
		left := pending - w // what is sent while the loss is repaired
		segments, trips, pending = segments+pending, trips+1, 0
		k, origin, begin := 0.0, w, w
		if wMax > w {
			k, origin = math.Cbrt((wMax-w)/lawC), wMax
		}
		for trip := 0.0; left > 0; trip++ {
			part := math.Min(1, left/w)
			left, trips = left-part*w, trips+part
			t := (trip + part) * rtt
			w = math.Max(w, math.Max(origin+lawC*(t-k)*(t-k)*(t-k), begin+lawAlpha*(trip+part)))
		}
		out, wMax = w, w
		if fast && w < origin {
			wMax = w * (1 + lawBeta) / 2
		}
		w = math.Max(2, lawBeta*w)
	}
	return segments / trips
}

// With random losses the response function is not valid: its derivation lacks the long way back from a small W_max. The
// result is compared with the RFC's equations for the same losses. Their window is a real number that changes once per
// RTT: 5 %. Ours repairs, counts ACKs and meets a second loss a little earlier or later: 5 % more. This is the bound
// for all regions. In the cubic region all results were within 1 %, and the bound there is 3 %.
func TestResponse_CubicRandom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n      int64
		rtt    event.Time
		losses int
		fast   bool
		spread float64
	}{
		{10_000, 100 * event.Millisecond, 60, true, 0.03},
		{10_000, 100 * event.Millisecond, 60, false, 0.03},
		{1000, 100 * event.Millisecond, 500, true, 0.03},
		{1000, 10 * event.Millisecond, 500, true, 0.10},
	} {
		p, rtt := 1/float64(c.n), float64(c.rtt)/1e9
		peak := math.Max(cubicPeak(p, rtt), friendlyAverage(p)*2/(1+lawBeta))
		cfg := *tcp.Default("cubic")
		cfg.Options.NoFastConvergence = !c.fast
		path := newLossyPath(t, cfg, c.rtt, peak)
		r := event.NewRandom(1, "losses")
		losses := c.losses * *longer
		path.run(losses+1, func(first bool, _ int64) bool { return first && r.Float64() < p })
		gaps := []int64{path.marks[0].segments}
		for i := range path.marks[1:] {
			gaps = append(gaps, path.marks[i+1].segments-path.marks[i].segments)
		}
		// Both begin at peak with a loss. Nearly all that is sent before the first mark is sent after that loss.
		mean := float64(path.marks[losses].segments) / float64(path.marks[losses].at) * float64(c.rtt)
		near(t, fmt.Sprintf("cubic, random, %d ms, p 1/%d, fast %v", c.rtt/event.Millisecond, c.n, c.fast),
			mean, cubicByHand(gaps, rtt, peak, c.fast), c.spread)
		t.Logf("    %.2f of the response function", mean/math.Max(cubicAverage(p, rtt), friendlyAverage(p)))
	}
}
