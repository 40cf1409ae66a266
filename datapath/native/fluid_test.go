//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/fairq/fluid"
	"weir/datapath/native"
)

// reportModel is the queue of the authors' analysis in their model of it, with a sample for the law every T.
func reportModel() *fluid.Model {
	return &fluid.Model{RateBps: rateBps, RTT: rttNs, Tick: tickNs}
}

// packets returns the queue's extremes, in packets: the largest of the first quarter, and the least, mean and
// largest of the last.
func packets(c *fluid.Course) (first, least, mean, most float64) {
	_, _, first = c.Range(0, 0.25)
	least, mean, most = c.Range(0.75, 1)
	return first / packet, least / packet, mean / packet, most / packet
}

// govern runs the law with this many flows on the model.
func govern(t *testing.T, m *fluid.Model, c native.FairQConfig, flows, ticks int) (first, least, mean, most float64) {
	q := newQueue(t, c, flows)
	return packets(m.Run(ticks,
		func() float64 { return q.window() * float64(q.State().Flows) },
		func(backlog float64) { q.tick(uint32(backlog)) }))
}

// With either gain the queue settles at its target, and stays within the buffer until then.
func TestFluid_QueueSettlesAtItsTarget(t *testing.T) {
	for _, gain := range []native.Gain{native.GainPaper, native.GainOVS} {
		for _, variant := range []native.Variant{native.VariantAlg1, native.VariantFairSwitch} {
			for _, flows := range []int{1, 2, 16, 64} {
				c := config()
				c.Gain, c.Variant = gain, variant
				if variant == native.VariantFairSwitch && gain == native.GainOVS {
					c.PeriodNs = 32 * tickNs // TestFairSwitch_GainOVSNeedsAnUpdatePerMean
				}
				first, least, mean, most := govern(t, reportModel(), c, flows, 4000)
				t.Logf("gain %d, variant %d, %d flows: first up to %.1f packets, then %.2f .. %.2f .. %.2f", gain, variant, flows, first, least, mean, most)
				if first > 83 || least < 16.5 || most > 16.7 {
					t.Errorf("gain %d, variant %d, %d flows: first up to %.1f packets, then %.2f to %.2f, want 16.6 and never over 83",
						gain, variant, flows, first, least, most)
				}
			}
		}
	}
}

// FairSwitch's mean covers the last 32 samples. With gain ovs an update takes out the whole error, so it must
// not come more often than every 32 samples. Every M = 10 samples it takes out the same error three times, and
// the queue swings between empty and twice its target.
func TestFairSwitch_GainOVSNeedsAnUpdatePerMean(t *testing.T) {
	c := config()
	c.Gain, c.Variant = native.GainOVS, native.VariantFairSwitch
	if _, least, _, most := govern(t, reportModel(), c, 16, 4000); least > 1 || most < 30 {
		t.Errorf("M = 10: %.2f to %.2f packets: it no longer swings", least, most)
	}
}

// As typeset, with a round trip that does not depend on the queue, the model does not settle: it swings about
// the target, which is its mean.
func TestFluid_ConstantRTTDoesNotSettle(t *testing.T) {
	c := config()
	c.CapBytes = 0
	typeset := reportModel()
	typeset.ConstantRTT = true
	_, least, mean, most := govern(t, typeset, c, 1, 20000)
	t.Logf("%.2f .. %.2f .. %.2f packets", least, mean, most)
	if most-least < 10 || mean < 0.8*16.6 || mean > 1.2*16.6 {
		t.Errorf("%.2f to %.2f packets, mean %.2f", least, most, mean)
	}
}

// Windows of at least one whole segment put flows*MSS in flight, and the queue then stays at flows*MSS - BDP
// whatever its target is.
func TestFQ12_ManyFlowsQueueWhatTheFloorPutsInFlight(t *testing.T) {
	_, least, _, most := govern(t, reportModel(), config(), 150, 4000)
	if want := 150 - bdp/packet; least < want-0.1 || most > want+0.1 {
		t.Errorf("150 flows: %.2f to %.2f packets, want %.2f", least, most, want)
	}
}

// Slow start as printed gives each of 80 flows 2 MSS at once, more than the buffer. If all flows share the
// step, they overshoot by as much as one flow would.
func TestFQ11_SlowStartStepsForAllFlowsTogether(t *testing.T) {
	c := config()
	together, _, _, _ := govern(t, reportModel(), c, 80, 4000)
	c.SlowStart = native.SlowStartPerFlow
	each, _, _, _ := govern(t, reportModel(), c, 80, 4000)
	if each <= 83 {
		t.Errorf("as printed the queue reaches %.1f packets: this test shows nothing", each)
	}
	if together > 16.6+2*2 {
		t.Errorf("the queue reaches %.1f packets, want at most 2 steps over 16.6", together)
	}
}

// RWNDQ1 Eq. 2 as typeset sums Q/αB outside the mean. It settles where the sum of M samples is the target, at
// αB/M. The law settles at αB.
func TestFQ18_EquilibriumIsTheTarget(t *testing.T) {
	sum, ticks, rwnd := 0.0, 0, float64(target)
	_, least, _, most := packets(reportModel().Run(20_000, func() float64 { return rwnd }, func(backlog float64) {
		sum += backlog / target
		if ticks++; ticks == m {
			rwnd += packet / m * (1 - sum)
			sum, ticks = 0, 0
		}
	}))
	if least < 1.5 || most > 1.8 {
		t.Errorf("as typeset the queue settles at %.2f to %.2f packets, not at 1.66: this test shows nothing", least, most)
	}
	_, least, _, most = govern(t, reportModel(), config(), 1, 8000)
	if least < 16.5 || most > 16.7 {
		t.Errorf("the queue settles at %.2f to %.2f packets, want 16.6", least, most)
	}
}
