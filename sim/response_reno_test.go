package sim

import (
	"fmt"
	"math"
	"testing"

	"weir/sim/event"
	"weir/sim/tcp"
)

// The Mathis law (Mathis, Semke, Mahdavi, Ott: Computer Communication Review 27(3), 1997). A sawtooth between W/2 and W
// that grows by a segment per RTT carries 3/8 W² segments. One of them is lost, so that W = sqrt(8/3p), and
//
//	throughput = C MSS/RTT / sqrt(p), C = sqrt(3/2) = 1.22.
//
// The paper's other constant, sqrt(3/4) for a receiver that acknowledges every second segment, is for a sender that
// counts ACKs. Ours counts the segments that they acknowledge, as Linux does (RFC 3465): C is the same for both.

// renoPeak returns W.
func renoPeak(p float64) float64 { return math.Sqrt(8 / (3 * p)) }

// sawtoothByHand returns the mean window of a sawtooth in whole segments and RTTs, with a loss every n segments. It has
// one RTT at the window after the cut, in which the loss is repaired. Then it has one at each window, and the next loss
// cuts the last one short. It is slow and obvious; the simulator is neither.
func sawtoothByHand(n, w int64, cut, grow func(w int64) int64) float64 {
	const cycles = 60
	trips := 0.0
	for range cycles {
		w = cut(w)
		left := n - w
		for trips++; left > w; trips++ {
			left -= w
			w = grow(w)
		}
		trips += float64(left) / float64(w)
	}
	return cycles * float64(n) / trips
}

func renoByHand(n int64) float64 {
	half, more := func(w int64) int64 { return w / 2 }, func(w int64) int64 { return w + 1 }
	return sawtoothByHand(n, int64(renoPeak(1/float64(n))), half, more)
}

// segmentsOff returns the uncertainty of the RTTs of sawtoothByHand: the ACKs of segments sent before the loss may grow
// the window once more. With delayed ACKs, the last segment of a window may wait for the first of the next: half a
// segment of 3/4 W on average.
func segmentsOff(peak float64, delayed bool) float64 {
	if delayed {
		return (1 + 0.5/0.75) / peak
	}
	return 1 / peak
}

// With a loss every 1/p segments, as the law's derivation assumes. Mathis et al. find it within 10 to 20 %. The bound
// here is 10 % up to p = 1/1000, and 20 % above: about ten whole windows, and the RTT of a repair, are no longer a
// straight line. The sawtooth in whole segments must match within one segment. (The first run was up to 2 % beyond a
// tolerance of one RTT in W/2, which counted the repair alone. This showed that the law lacks the whole segments.)
func TestResponse_MathisPeriodic(t *testing.T) {
	t.Parallel()
	type settings struct {
		control string
		delayed bool
	}
	for _, s := range []settings{{"reno", true}, {"reno", false}, {"sack", false}, {"newreno", false}} {
		for _, rtt := range []event.Time{event.Millisecond, 10 * event.Millisecond, 100 * event.Millisecond} {
			for _, n := range []int64{10000, 3333, 1000, 333, 100} {
				if s.control != "reno" && (rtt != 10*event.Millisecond || n > 1000) {
					continue // the window is the same code; recovery is not
				}
				cfg := *tcp.Default(s.control)
				if !s.delayed {
					cfg.DelayedACK, cfg.QuickACKs = 0, 0
				}
				p := 1 / float64(n)
				path := newLossyPath(t, cfg, rtt, renoPeak(p))
				cycles := 12 * *longer
				path.run(cycles+4, every(n))
				what := fmt.Sprintf("%s, delayed ACKs %v, %d ms, p 1/%d", s.control, s.delayed, rtt/event.Millisecond, n)
				lawSpread := 0.10
				if n < 1000 {
					lawSpread = 0.20
				}
				got := path.window(3, cycles+3)
				near(t, what, got, math.Sqrt(1.5/p), lawSpread)
				near(t, "    by hand", got, renoByHand(n), segmentsOff(renoPeak(p), s.delayed))
				if k := path.flow.sender.Counters(); k.Timeouts > 0 {
					t.Errorf("%s: %d timeouts", what, k.Timeouts)
				}
			}
		}
	}
}

// renoRandom returns C if each segment is lost independently with probability p. x = w²/2 grows by 1 per segment and
// falls to x/4 at a loss. So before a loss it is a sum of exponentials of means 1/p, 1/4p, 1/16p ... Its moments follow
// from E[x^(s-1)] s = p (1 - 4^-s) E[x^s]:
//
//	E[(px)^s] = Γ(1+s) Π (1 - 4^-(k+s)) / (1 - 4^-k), k = 1, 2 ...
//
// Throughput is 1 / (RTT E[1/w]) with E[1/w] = p E[w] / 2 over segments: C = sqrt(2) / E[(px)^(1/2)] = 1.31 (Ott,
// Kemperman, Mathis 1996; the paper's table 1).
func renoRandom() float64 {
	m := math.Gamma(1.5)
	for k := 1.0; k < 30; k++ {
		m *= (1 - math.Pow(4, -k-0.5)) / (1 - math.Pow(4, -k))
	}
	return math.Sqrt2 / m
}

// With random losses. The paper's own simulations are within 10 % for large windows, and further below for windows
// small enough for timeouts (here at p = 1/100, 13 segments): 20 %. Random drawing adds 1/2/sqrt(losses), at most 4 %.
func TestResponse_MathisRandom(t *testing.T) {
	t.Parallel()
	if c := renoRandom(); math.Abs(c-1.31) > 0.001 {
		t.Fatalf("C for random losses is %.4f, and 1.31 in the paper", c)
	}
	for _, c := range []struct {
		n         int64
		rtt       event.Time
		losses    int
		tolerance float64
	}{
		{10000, 10 * event.Millisecond, 150, 0.10},
		{1000, event.Millisecond, 500, 0.10},
		{1000, 10 * event.Millisecond, 500, 0.10},
		{1000, 100 * event.Millisecond, 500, 0.10},
		{100, 10 * event.Millisecond, 3000, 0.20},
		{100, 100 * event.Millisecond, 3000, 0.20},
	} {
		p := 1 / float64(c.n)
		path := newLossyPath(t, *tcp.Default("reno"), c.rtt, renoPeak(p))
		r := event.NewRandom(1, "losses")
		losses := c.losses * *longer
		path.run(losses+10, func(bool, int64) bool { return r.Float64() < p })
		near(t, fmt.Sprintf("reno, random, %d ms, p 1/%d", c.rtt/event.Millisecond, c.n),
			path.window(9, losses+9), renoRandom()/math.Sqrt(p), c.tolerance)
		k := path.flow.sender.Counters()
		t.Logf("    %d losses, %d reductions, %d timeouts", len(path.marks), k.FastRetransmits, k.Timeouts)
	}
}
