package compare

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

// slowT returns the quantile of Student's t calculated from its density alone: it adds up the area from 0 in small
// steps until it is p - 1/2. p is above 1/2. Past 10,000 it gives up and returns NaN.
func slowT(p, freedom float64) float64 {
	a, _ := math.Lgamma((freedom + 1) / 2)
	b, _ := math.Lgamma(freedom / 2)
	height := math.Exp(a-b) / math.Sqrt(freedom*math.Pi)
	density := func(x float64) float64 { return height * math.Pow(1+x*x/freedom, -(freedom+1)/2) }
	area, x := 0.0, 0.0
	for x < 1e4 {
		step := 1e-4 * (1 + x)
		area += step / 6 * (density(x) + 4*density(x+step/2) + density(x+step))
		x += step
		if area >= p-0.5 {
			return x
		}
	}
	return math.NaN()
}

// slowDifference follows the description: the seeds that both have, else all; mean, deviation and interval by
// their definitions.
func slowDifference(a, b map[int64]float64, confidence float64) (meanA, meanB, half float64, by string) {
	var common []int64
	for seed := range a {
		if _, ok := b[seed]; ok {
			common = append(common, seed)
		}
	}
	mean := func(of []float64) float64 {
		sum := 0.0
		for _, v := range of {
			sum += v
		}
		return sum / float64(len(of))
	}
	variance := func(of []float64) float64 {
		sum := 0.0
		for _, v := range of {
			sum += (v - mean(of)) * (v - mean(of))
		}
		return sum / float64(len(of)-1)
	}
	var x, y, d []float64
	if len(common) >= 2 {
		for _, seed := range common {
			x, y, d = append(x, a[seed]), append(y, b[seed]), append(d, b[seed]-a[seed])
		}
		n := float64(len(d))
		return mean(x), mean(y), slowT((1+confidence)/2, n-1) * math.Sqrt(variance(d)/n), Paired
	}
	for _, v := range a {
		x = append(x, v)
	}
	for _, v := range b {
		y = append(y, v)
	}
	if len(a) < 2 || len(b) < 2 {
		if len(common) == 1 {
			return a[common[0]], b[common[0]], 0, ""
		}
		return mean(x), mean(y), 0, ""
	}
	n, m := float64(len(x)), float64(len(y))
	u, v := variance(x)/n, variance(y)/m
	if u+v == 0 {
		return mean(x), mean(y), 0, Welch
	}
	freedom := (u + v) * (u + v) / (u*u/(n-1) + v*v/(m-1))
	return mean(x), mean(y), slowT((1+confidence)/2, freedom) * math.Sqrt(u+v), Welch
}

// For any seeds of the sides, means and interval follow the definitions.
func TestDifference_IsTheDefinitions(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) map[int64]float64 {
			// Thousandths: the square of a value near 0 is 0 in floating point, and the definition would divide by
			// it.
			values := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-100_000, 1_000_000).Draw(t, "v")) / 1000 })
			return rapid.MapOfN(rapid.Int64Range(1, 12), values, 1, 8).Draw(t, name)
		}
		a, b := side("a"), side("b")
		confidence := rapid.SampledFrom([]float64{0.9, 0.95, 0.99}).Draw(t, "confidence")
		got := difference("m", a, b, confidence)
		meanA, meanB, half, by := slowDifference(a, b, confidence)
		seen[by]++
		// The slow quantile is exact to its step, 1e-4.
		near := func(x, y float64) bool { return math.Abs(x-y) <= 3e-4*(math.Abs(half)+1e-6)+1e-9*(math.Abs(x)+1) }
		if !near(got.A, meanA) || !near(got.B, meanB) || !near(got.Difference, meanB-meanA) || got.By != by {
			t.Fatalf("%+v, want %v, %v, %q", got, meanA, meanB, by)
		}
		if (got.Low == nil) != (by == "") {
			t.Fatalf("%+v: interval by %q", got, by)
		}
		if by == "" {
			if got.Significant {
				t.Fatalf("%+v: significant without an interval", got)
			}
			return
		}
		low, high := meanB-meanA-half, meanB-meanA+half
		if !near(*got.Low, low) || !near(*got.High, high) {
			t.Fatalf("%v .. %v, want %v .. %v", *got.Low, *got.High, low, high)
		}
		if got.Significant != (*got.Low > 0 || *got.High < 0) {
			t.Fatalf("%+v", got)
		}
	})
	for _, by := range []string{Paired, Welch, ""} {
		if seen[by] == 0 {
			t.Errorf("no case of %q was tried", by)
		}
	}
}

// A textbook table of Student's t, two-sided 95 %: half the width of the interval over the standard error.
func TestInterval_KnownQuantiles(t *testing.T) {
	for n, want := range map[int]float64{2: 12.706, 3: 4.303, 4: 3.182, 6: 2.571, 11: 2.228, 21: 2.086} {
		x, y := make([]float64, n), make([]float64, n)
		for i := range y {
			y[i] = float64(i*i%7) + 1
		}
		low, high := paired(x, y, 0.95)
		if got := (high - low) / 2 / math.Sqrt(stat.Variance(y, nil)/float64(n)); math.Abs(got-want) > 5e-4 {
			t.Errorf("%d seeds: t is %.4f, the table says %v", n, got, want)
		}
	}
}

// Seeds make the same change to both sides: paired by seed the difference is significant, with independent sides
// it is not.
func TestDifference_PairingSeesWhatSeedsHide(t *testing.T) {
	a, b, others := map[int64]float64{}, map[int64]float64{}, map[int64]float64{}
	for seed, v := range map[int64]float64{1: 10, 2: 40, 3: 25, 4: 70} {
		a[seed], b[seed] = v, v+2+float64(seed)/10
		others[seed+10] = b[seed]
	}
	if d := difference("m", a, b, 0.95); d.By != Paired || !d.Significant || math.Abs(d.Difference-2.25) > 1e-12 {
		t.Errorf("%+v, want 2.25, significant", d)
	}
	if d := difference("m", a, others, 0.95); d.By != Welch || d.Significant {
		t.Errorf("%+v, want no significance", d)
	}
}

// slowKS compares both distributions at every value of either.
func slowKS(x, y []float64) float64 {
	below := func(of []float64, at float64) float64 {
		n := 0
		for _, v := range of {
			if v <= at {
				n++
			}
		}
		return float64(n) / float64(len(of))
	}
	most := 0.0
	for _, at := range slices.Concat(x, y) {
		most = math.Max(most, math.Abs(below(x, at)-below(y, at)))
	}
	return most
}

// The library's distance follows the definition, also with repeated values.
func TestKolmogorovSmirnov_IsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := func(name string) []seedTimes {
			var out []seedTimes
			for seed := range rapid.IntRange(1, 3).Draw(t, name) {
				of := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 9).Draw(t, "v")) }), 1, 12).Draw(t, name)
				slices.Sort(of)
				out = append(out, seedTimes{int64(seed), of})
			}
			return out
		}
		a, b := values("a"), values("b")
		x, y := pool(a), pool(b)
		if got, want := stat.KolmogorovSmirnov(x, nil, y, nil), slowKS(x, y); math.Abs(got-want) > 1e-9 {
			t.Fatalf("distance %v of %v and %v, want %v", got, x, y, want)
		}
		most := 0.0
		for i := range a[1:] {
			most = max(most, slowKS(a[i].times, a[i+1].times))
		}
		if got := between(a); (got == nil) != (len(a) < 2) || got != nil && math.Abs(*got-most) > 1e-9 {
			t.Fatalf("from seed to seed %v, want %v", got, most)
		}
	})
}
