//go:build cgo

package fluid

import (
	"math"
	"testing"
	"time"

	"weir/datapath/native"
)

// reported is RWNDQ1's queue (SPEC 1.1): 10 Gbit/s, 100 us, 83 packets, α 20 %, T 50 us, M 10.
func reported() Case {
	return Case{
		Model:  Model{RateBps: 10e9 / 8, RTT: 100 * time.Microsecond, Tick: 50 * time.Microsecond},
		Buffer: 83 * 1500, Alpha: 0.2, Updates: 10, MSS: 1500, Flows: 1,
	}
}

// A constant sum of windows first fills the BDP; the rest stays in the queue.
func TestModel_WindowsThatDoNotChange(t *testing.T) {
	m := reported().Model
	pipe := m.RateBps * m.RTT.Seconds()
	for _, sum := range []float64{pipe / 2, pipe, pipe + 30_000} {
		c := m.Run(200, func() float64 { return sum }, func(float64) {})
		least, mean, most := c.Range(0.9, 1)
		if want := max(0, sum-pipe); math.Abs(least-want) > 15 || math.Abs(most-want) > 15 || math.Abs(mean-want) > 15 {
			t.Errorf("windows of %.0f: %.0f to %.0f bytes, want %.0f", sum, least, most, want)
		}
	}
}

// A grant takes effect half a round trip later, not sooner, whatever the ratio of T and the round trip.
func TestModel_IsLateByHalfARoundTrip(t *testing.T) {
	for _, rtt := range []time.Duration{100e3, 90e3, 37e3, 1e6} {
		m := reported().Model
		m.RTT = rtt
		sum := 0.0
		c := m.Run(100, func() float64 { return sum }, func(float64) { sum = 1e9 }) // at the end of the first T
		first := 0
		for c.Queue[first] == 0 {
			first++
		}
		got := float64(first) * c.StepS
		if want := m.Tick.Seconds() + rtt.Seconds()/2; math.Abs(got-want) > 1.5*c.StepS {
			t.Errorf("round trip %v: the queue grows after %.1f us, want %.1f", rtt, got*1e6, want*1e6)
		}
	}
}

// Fig. 1: with slow start the mean reaches 16.3 packets by 20,000 T.
func TestCase_Q0MeanQueue(t *testing.T) {
	c := reported()
	if got := c.Run(20_000).MeanAt(20_000) / 1500; math.Abs(got-16.3) > 0.1 {
		t.Errorf("mean %.2f packets after 20,000 T, the report has 16.3", got)
	}
	c.ConstantRTT = true
	course := c.Run(20_000)
	if least, _, most := course.Range(0.75, 1); most-least < 20*1500 {
		t.Errorf("as typeset the queue no longer swings: %.0f to %.0f", least, most)
	}
	if got := course.MeanAt(20_000) / 1500; math.Abs(got-16.3) > 0.2 {
		t.Errorf("as typeset its mean is %.2f packets: it no longer hides the swing", got)
	}
}

func TestVerdict_Settles(t *testing.T) {
	for v, want := range map[Verdict]bool{
		{Swing: 0.09, Mean: 1}: true, {Swing: 0.11, Mean: 1}: false,
		{Mean: 0.91}: true, {Mean: 0.89}: false, {Mean: 1.09}: true, {Mean: 1.11}: false,
	} {
		if v.Settles() != want {
			t.Errorf("%+v settles: %v", v, !want)
		}
	}
}

// The code's gain takes out the whole error at once, so it settles only if the path has answered one update
// before the next. The paper's gain moves by a segment an update.
func TestCase_WhereItSettles(t *testing.T) {
	for _, tt := range []struct {
		gain    native.Gain
		alpha   float64
		tick    time.Duration
		settles bool
	}{
		{native.GainPaper, 0.2, 50e3, true},
		{native.GainPaper, 0.2, 1e3, true},
		{native.GainPaper, 0.05, 400, false},
		{native.GainOVS, 0.2, 50e3, true},
		{native.GainOVS, 0.2, 10e3, true},
		{native.GainOVS, 0.2, 5e3, false},
		{native.GainOVS, 0.05, 1e3, false},
	} {
		c := reported()
		c.Gain, c.Alpha, c.Tick = tt.gain, tt.alpha, tt.tick
		if v := c.Judge(); v.Settles() != tt.settles {
			t.Errorf("gain %d, alpha %v, T %v: %+v, want it to settle: %v", tt.gain, tt.alpha, tt.tick, v, tt.settles)
		}
	}
}
