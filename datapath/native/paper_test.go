//go:build cgo

package native_test

import (
	"math"
	"testing"

	"weir/datapath/native"
)

// near fails unless got is want to within the law's rounding.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1.0/256 {
		t.Errorf("%s: %.4f, want %.4f", what, got, want)
	}
}

// Lines 8 to 10: the end of the last flow divides by a count of 0.
func TestFQ1_LastFlowDoesNotDivideByZero(t *testing.T) {
	var p printed
	p.synAck()
	p.fin()
	if !math.IsInf(p.rwnd, 1) {
		t.Errorf("as printed the window is %g: this test shows nothing", p.rwnd)
	}
	q := newQueue(t, config(), 1)
	q.FlowRemoved()
	near(t, "window without flows", q.window(), target)
}

// Γ is never reset, so Γ == M holds once in a queue's life. γ is not reset either, so that a queue at its
// target would still be corrected.
func TestFQ2_GammaBeginsAgainAfterAnUpdate(t *testing.T) {
	p := printed{rwnd: 10 * packet, beta: 1}
	for range 100 * m {
		p.timer(buffer)
	}
	if want := 10*packet - 4*packet; math.Abs(p.rwnd-float64(want)) > 1 {
		t.Errorf("as printed 100 periods of a full buffer leave %g, that of one leaves %d: this test shows nothing", p.rwnd, want)
	}
	c := config()
	c.SlowStart = native.SlowStartOff
	q := newQueue(t, c, 1)
	for range 3 {
		q.period(buffer) // κ = -4
	}
	near(t, "after 3 periods of a full buffer", q.window(), target-3*4*packet)
	for range 10 {
		q.period(target) // κ = 0
	}
	near(t, "after 10 periods at the target", q.window(), target-3*4*packet)
}

// As printed only a FIN begins slow start. The prose begins it with the first flow.
func TestFQ3_SlowStartBeginsWithTheFirstFlowAndAfterTheLast(t *testing.T) {
	var p printed
	p.synAck()
	for range m {
		p.timer(0)
	}
	if p.rwnd != target+packet {
		t.Errorf("as printed the first update adds %g", p.rwnd-target)
	}
	q := newQueue(t, config(), 1)
	q.period(0)
	near(t, "first update adds 2 MSS", q.window(), target+2*packet)
	q.tick(target)
	if q.State().SlowStart != 0 {
		t.Error("slow start goes on at the target")
	}
	q.FlowRemoved()
	near(t, "after the last flow", q.window(), target)
	q.FlowAdded(q.now)
	q.period(0)
	near(t, "it begins again", q.window(), target+2*packet)
}

// Lines 3 and 11 begin with the target. On a path that holds more, slow start then takes 2 MSS a period. A queue that begins with what
// its path holds grants that at once, but not to SYN-ACKs: first windows can come together, and share the target.
func TestStart_APathIsFilledAtOnce(t *testing.T) {
	const path = 30 * packet
	printed := newQueue(t, config(), 1)
	periods := 0
	for ; printed.window() < path; periods++ {
		printed.period(0)
	}
	if periods < 5 {
		t.Errorf("as printed the path is full after %d periods: this test shows nothing", periods)
	}
	c := config()
	c.StartBytes = path
	q := newQueue(t, c, 0)
	near(t, "first window of a connection", float64(q.OpeningQ8(1))/256, target)
	q.FlowAdded(q.now)
	near(t, "the flow's window", q.window(), path)
	q.FlowRemoved()
	q.FlowAdded(q.now)
	q.FlowAdded(q.now)
	near(t, "two flows, after the last had ended", q.window(), path/2)
	c.Variant = native.VariantFairSwitch
	hardware := newQueue(t, c, 1)
	near(t, "the hardware's", hardware.window(), target)
}

// One FIN too many makes the printed count negative, and two flows then count as one.
func TestFQ4_TheCountIsNeverNegative(t *testing.T) {
	p := printed{rwnd: target}
	p.fin()
	p.synAck()
	p.synAck()
	if p.beta != 1 {
		t.Errorf("as printed two flows count %g", p.beta)
	}
	q := newQueue(t, config(), 0)
	q.FlowRemoved()
	q.FlowAdded(0)
	q.FlowAdded(0)
	if got := q.State().Flows; got != 2 {
		t.Errorf("two flows count %d", got)
	}
	near(t, "each has half", q.window(), target/2)
}

// The authors' code counts 0..M, M+1 ticks, and divides by M. The law updates every M*T, by the mean.
func TestFQ10_AnUpdateIsTheMeanOfMTicks(t *testing.T) {
	c := config()
	c.SlowStart = native.SlowStartOff
	q := newQueue(t, c, 1)
	code, count, sum := float64(target), 0, 0.0
	for i := 1; i <= m+1; i++ {
		before := q.window()
		q.tick(0)
		if changed := q.window() != before; changed != (i == m) {
			t.Errorf("tick %d changed the window: %t", i, changed)
		}
		sum += packet // κ = 1
		if count++; count > m {
			code += sum / m
		}
	}
	near(t, "one MSS, the most that κ <= 1 allows", q.window(), target+packet)
	if code != target+1.1*packet {
		t.Errorf("the code's form adds %g MSS: this test shows nothing", (code-target)/packet)
	}
}

// The code's gain is αB/MSS times the paper's. The law has both, and the flows share the step of both.
func TestFQ10_BothGains(t *testing.T) {
	for _, flows := range []int{1, 4} {
		for _, backlog := range []float64{0, target / 2, target, 2 * target} {
			for gain, step := range map[native.Gain]float64{
				native.GainPaper: packet * (1 - backlog/target),
				native.GainOVS:   target - backlog,
			} {
				c := config()
				c.SlowStart, c.Gain, c.FloorBytes, c.CapBytes = native.SlowStartOff, gain, 1, 0
				q := newQueue(t, c, flows)
				q.period(uint32(backlog))
				want := max((target+step)/float64(flows), 1)
				if got := q.window(); got > want || got < want-1.0/256 {
					t.Errorf("gain %d, %d flows, backlog %g: window %.4f, want %.4f", gain, flows, backlog, got, want)
				}
			}
		}
	}
}

// A timer that is late while the queue is long gives the same window as one on time: the law weighs each
// backlog by its duration. A law that counts ticks winds up.
func TestLateTicksChangeNothingOnAverage(t *testing.T) {
	c := config()
	c.SlowStart, c.FloorBytes, c.CapBytes = native.SlowStartOff, 1, 0
	punctual, late := newQueue(t, c, 3), newQueue(t, c, 3)
	counted := printed{rwnd: target / 3, beta: 3}
	gaps := []int{1, 9, 3, 5, 2} // ticks between the late timer's; 20 together
	for range 500 {
		for range 20 {
			punctual.tick(target * 3 / 4)
			late.tick(target * 3 / 4)
			counted.timer(target * 3 / 4)
			counted.reset()
		}
		for range 20 {
			punctual.tick(target * 5 / 4)
		}
		for _, gap := range gaps {
			late.now += uint64(gap-1) * tickNs
			late.tick(target * 5 / 4)
			counted.timer(target * 5 / 4)
			counted.reset()
		}
	}
	if a, b := punctual.State(), late.State(); a != b {
		t.Errorf("in time %+v\n   late %+v", a, b)
	}
	near(t, "the mean is the target", late.window(), target/3)
	if counted.rwnd < 10*target/3 {
		t.Errorf("counting ticks gives %g: this test shows nothing", counted.rwnd)
	}
}

// FairSwitch (SPEC 1.3): a new count begins at target/count, and a burst has a weight of 1/32 per sample.
func TestFairSwitch_DividesTheTargetAndAveragesTheQueue(t *testing.T) {
	c := config()
	c.Variant, c.FloorBytes = native.VariantFairSwitch, 1
	q := newQueue(t, c, 5)
	near(t, "5 flows", q.window(), target/5)
	q.period(0)
	near(t, "no slow start", q.window(), (target+packet)/5)
	q.FlowRemoved()
	near(t, "4 flows", q.window(), target/4)
	for range m { // the mean rises by B/32 a tick: B/32 .. 10 B/32
		q.tick(buffer)
	}
	mean := 0.0
	for i := 1; i <= m; i++ {
		mean += math.Floor(float64(i)*buffer/32) / m
	}
	near(t, "the mean is what counts", q.window(), (target+packet*(1-mean/target))/4)
}
