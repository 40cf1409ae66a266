//go:build cgo

package native_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"weir/datapath/fairq/model"
	"weir/datapath/native"
)

// drawn returns a configuration of one queue with limits that keep the rounding error of the float model below
// the law's.
func drawn(t *rapid.T) native.FairQConfig {
	target := rapid.Uint32Range(1500, 1<<20).Draw(t, "target")
	period := rapid.Uint32Range(1, 20_000_000).Draw(t, "period")
	return native.FairQConfig{
		TargetBytes: target,
		BufferBytes: target * rapid.Uint32Range(0, 8).Draw(t, "buffer"),
		TickNs:      period / rapid.SampledFrom([]uint32{1, 2, 10}).Draw(t, "M"),
		PeriodNs:    period,
		FloorBytes:  rapid.SampledFrom([]uint32{0, 1, 536, 8960}).Draw(t, "floor"),
		CapBytes:    rapid.Uint32Range(1<<14, 1<<19).Draw(t, "cap"),
		StartBytes:  rapid.SampledFrom([]uint32{0, 1, target / 2, 8 * target}).Draw(t, "start"),
		Gain:        native.Gain(rapid.IntRange(0, 1).Draw(t, "gain")),
		SlowStart:   native.SlowStart(rapid.IntRange(0, 2).Draw(t, "slow start")),
		Variant:     native.Variant(rapid.IntRange(0, 1).Draw(t, "variant")),
	}
}

func modelOf(c native.FairQConfig) model.Config {
	return model.Config{
		TargetBytes: float64(c.TargetBytes), BufferBytes: float64(c.BufferBytes), TickNs: int64(c.TickNs), PeriodNs: int64(c.PeriodNs),
		FloorBytes: float64(c.FloorBytes), CapBytes: float64(c.CapBytes), StartBytes: float64(c.StartBytes),
		OVSGain: c.Gain == native.GainOVS, SlowStartPerFlow: c.SlowStart == native.SlowStartPerFlow,
		NoSlowStart: c.SlowStart == native.SlowStartOff, FairSwitch: c.Variant == native.VariantFairSwitch,
	}
}

// Opening returns the window that Rwnd would have if all open handshakes were flows, and does not change the
// state. Of a queue without flows it is the share of the target, whatever its flows begin with.
func TestFairQ_OpeningIsTheWindowBesideSoManyMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		law := native.NewFairQ(c, 0)
		defer law.Close()
		for range rapid.IntRange(0, 50).Draw(t, "flows") {
			law.FlowAdded(0)
		}
		for i := range rapid.IntRange(0, 40).Draw(t, "samples") {
			law.Sample(uint64(i+1)*uint64(c.TickNs), rapid.Uint32Range(0, 4*c.TargetBytes).Draw(t, "backlog"))
		}
		opening := rapid.Uint32Range(0, 3000).Draw(t, "opening")
		before := law.State()
		got := law.OpeningQ8(opening)
		if after := law.State(); after != before {
			t.Fatalf("OpeningQ8 changed the state: %+v, before %+v", after, before)
		}
		if before.Flows == 0 && opening > 0 {
			c.StartBytes = 0
			law = native.NewFairQ(c, 0)
			defer law.Close()
		}
		law.SetFlows(before.LastSampleNs, before.Flows+opening)
		if got != law.WindowQ8() {
			t.Fatalf("%d open handshakes with %d flows: %d, and %d once they are flows", opening, before.Flows, got, law.WindowQ8())
		}
	})
}

// The law and Algorithm 1 in floating point grant the same window after any events:
//
//	|W - W'| <= 1/256 + N * 2^-50 * S  bytes
//
// after N events, where S is the largest sum of windows, or step of it, so far. The first term is the law's: it
// divides once, downwards, and carries the rests of its other divisions. The second term is the float's: an
// event rounds the sum of windows by at most 8 times 2^-53 of it. Scaling with the count rounds by 2 of these,
// an increment by 4, its addition by 1. Errors add. A clamp sets both sides to one value or brings them nearer.
// With this test's configurations the second term stays below 2/256 in total.
func TestFairQ_AgreesWithAlgorithm1(t *testing.T) {
	const perRun = 40_000
	worst, total, updates := 0.0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		most := rapid.IntRange(1, 100).Draw(t, "flows")
		law, model := native.NewFairQ(c, 0), model.New(modelOf(c), 0)
		defer law.Close()
		now, step := int64(0), float64(c.TargetBytes)*9+2*9000*100
		largest := step
		for i := range perRun {
			before := model.Rwnd
			now += int64(event(r, law, model, uint64(now), most, c))
			largest = max(largest, model.Rwnd*model.Beta+step)
			if model.Rwnd != before {
				updates++
			}
			got, want := float64(law.WindowQ8())/256, model.Window()
			bound := 1.0/256 + float64(i)*0x1p-50*largest
			if off := math.Abs(got - want); off > bound || bound > 2.0/256 {
				t.Fatalf("event %d: window %.6f, Algorithm 1 has %.6f: off by %g, bound %g", i, got, want, off, bound)
			}
			worst = max(worst, math.Abs(got-want))
		}
		total += perRun
	})
	t.Logf("%d events, %d changes of the window; off by %.4f/256 byte at most", total, updates, worst*256)
	if updates*5 < total {
		t.Error("the window hardly ever changed: this shows nothing")
	}
}

// event makes one event happen to both and returns the time it took, in ns.
func event(r *rand.Rand, law *native.FairQ, model *model.Queue, now uint64, most int, c native.FairQConfig) (gap uint64) {
	switch r.IntN(16) {
	case 0:
		if model.Beta == 0 {
			gap = r.Uint64N(uint64(c.PeriodNs)) // without flows nothing samples
		}
		if int(model.Beta) < most {
			law.FlowAdded(now + gap)
			model.FlowAdded(int64(now + gap))
		}
	case 1:
		if r.IntN(4) > 0 || int(model.Beta) > most/2 { // more flows come than go
			law.FlowRemoved()
			model.FlowRemoved()
		}
	case 2:
		if r.IntN(100) == 0 {
			mss := uint32(1460 + r.IntN(7500))
			law.SawMSS(mss)
			model.MSS = max(model.MSS, float64(mss))
		}
	default:
		gap = r.Uint64N(uint64(c.PeriodNs)*3 + 1)
		if r.IntN(4) > 0 {
			gap /= 8
		}
		backlog := r.Uint32N(c.TargetBytes * 2)
		if r.IntN(20) == 0 {
			backlog = r.Uint32()
			if c.BufferBytes == 0 {
				backlog %= c.TargetBytes * 8
			}
		}
		law.Sample(now+gap, backlog)
		model.Sample(int64(now+gap), float64(backlog))
	}
	return gap
}

// The bound's first term is exact, not slack: over the whole range of every value the sum of windows is the
// exact rational's, rounded down to 1/256 byte. So no product wraps either.
func TestFairQ_IsExactOverItsWholeRange(t *testing.T) {
	events := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c := native.FairQConfig{
			TargetBytes: 1 + uint32(sized(r, 32)), PeriodNs: 1 + uint32(sized(r, 30)),
			FloorBytes: 1 + uint32(sized(r, 30)), Gain: native.Gain(r.IntN(2)), SlowStart: native.SlowStart(r.IntN(3)),
		}
		if c.TargetBytes == 0 {
			c.TargetBytes = 1
		}
		s := native.FairQState{
			AggregateQ8: sized(r, 58), Flows: 1 + uint32(sized(r, 20)), MSSBytes: 1 + uint16(sized(r, 15)), SlowStart: uint8(r.IntN(2)),
		}
		law := native.NewFairQ(c, 0)
		defer law.Close()
		law.SetState(s)
		sum := new(big.Rat).SetFrac(new(big.Int).SetUint64(s.AggregateQ8), big.NewInt(256))
		gamma := new(big.Int)
		now, elapsed, slow := uint64(0), uint64(0), s.SlowStart == 1
		for range 2000 {
			gap := min(sized(r, 32), uint64(c.PeriodNs))
			backlog := uint32(sized(r, 32))
			if r.IntN(2) == 0 {
				backlog = c.TargetBytes - uint32(r.Uint64N(min(uint64(c.TargetBytes), 3)))
			}
			now, elapsed = now+gap, elapsed+gap
			law.Sample(now, backlog)
			deviation := big.NewInt(int64(c.TargetBytes) - int64(backlog))
			gamma.Add(gamma, deviation.Mul(deviation, new(big.Int).SetUint64(gap)))
			slow = slow && backlog < c.TargetBytes
			if elapsed >= uint64(c.PeriodNs) {
				elapsed -= uint64(c.PeriodNs)
				exactUpdate(sum, gamma, slow, c, s)
				gamma.SetInt64(0)
			}
			q8 := new(big.Int).Mul(sum.Num(), big.NewInt(256))
			q8.Div(q8, sum.Denom()) // towards minus infinity
			if got := law.State(); got.AggregateQ8 != q8.Uint64() || !q8.IsUint64() {
				t.Fatalf("%+v: aggregate %d, exactly %s", c, got.AggregateQ8, q8)
			}
			events++
		}
	})
	t.Logf("%d events", events)
}

// exactUpdate is lines 20 to 24 of Algorithm 1 in rationals, for all windows together.
func exactUpdate(sum *big.Rat, gamma *big.Int, slow bool, c native.FairQConfig, s native.FairQState) {
	flows, mss := int64(s.Flows), int64(s.MSSBytes)
	switch {
	case slow && c.SlowStart == native.SlowStartPerFlow:
		sum.Add(sum, big.NewRat(2*mss*flows, 1))
	case slow:
		sum.Add(sum, big.NewRat(2*mss, 1))
	case c.Gain == native.GainOVS:
		sum.Add(sum, new(big.Rat).SetFrac(gamma, big.NewInt(int64(c.PeriodNs))))
	default:
		step := new(big.Rat).SetFrac(gamma, big.NewInt(int64(c.PeriodNs)))
		sum.Add(sum, step.Mul(step, big.NewRat(mss, int64(c.TargetBytes))))
	}
	if floor := big.NewRat(int64(c.FloorBytes)*flows, 1); sum.Cmp(floor) < 0 {
		sum.Set(floor)
	}
	if limit := big.NewRat(1<<30*flows, 1); sum.Cmp(limit) > 0 {
		sum.Set(limit)
	}
}
