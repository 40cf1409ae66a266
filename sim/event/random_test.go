package event

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// The numbers of a seed and name must never change: results are compared by digests of them.
func TestNewRandom_GivesTheSameNumbersForEver(t *testing.T) {
	for _, c := range []struct {
		seed int64
		name string
		want [3]uint64
	}{
		{0, "", [3]uint64{0x774eeec809f0eb48, 0x5ceecb0d09df55e0, 0xd95c4267b1fafdb}},
		{1, "loss", [3]uint64{0xb95b701566e1e21a, 0x671b0c3b0e7b3c32, 0x94ca4960e35c80ca}},
		{1, "arrivals", [3]uint64{0x57acaf9f836010a5, 0xe0495d85c4cc140a, 0xeff216659ef05db6}},
		{-7, "loss", [3]uint64{0x131a8ff04a36f1d6, 0x9066e4866efa771d, 0x9951309cd1fb35a0}},
	} {
		r := NewRandom(c.seed, c.name)
		if got := [3]uint64{r.Uint64(), r.Uint64(), r.Uint64()}; got != c.want {
			t.Errorf("seed %d, %q: %#x, want %#x", c.seed, c.name, got, c.want)
		}
	}
	r := NewRandom(1, "integers and fractions")
	got := []float64{float64(r.IntN(1000)), float64(r.Int64N(1e15)), r.Float64(), float64(r.Perm(100)[0])}
	if want := []float64{62, 565379009595229, 0.2669081898080936, 88}; !slices.Equal(got, want) {
		t.Errorf("IntN, Int64N, Float64, Perm: %v, want %v", got, want)
	}
}

func TestExponential_GivesTheSameNumbersForEver(t *testing.T) {
	r := NewRandom(1, "exponential")
	var got []Time
	for _, mean := range []Time{0, 1, 1200, 12000, Second, 1e15, math.MaxInt64 / 100, math.MaxInt64} {
		got = append(got, Exponential(r, mean), Exponential(r, mean))
	}
	want := []Time{
		0, 0, 1, 1, 1911, 44, 8902, 128, 108790014, 661075815, 572856427326016, 45027454091328,
		18478357561007309, 83814694674630326, math.MaxInt64, math.MaxInt64,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The table of algorithm S, computed anew: the sum of (ln 2)^i / i!, ln 2 being the sum of 1 / (i 2^i).
func TestPartial_IsTheSeriesOfKnuth(t *testing.T) {
	const precision = 300
	number := func(x int64) *big.Float { return new(big.Float).SetPrec(precision).SetInt64(x) }
	ln2, half := number(0), number(1)
	for i := int64(1); i < precision; i++ {
		half.Quo(half, number(2))
		ln2.Add(ln2, new(big.Float).Quo(half, number(i)))
	}
	sum, term := number(0), number(1)
	for k, got := range partial {
		if k > 0 {
			term.Quo(term.Mul(term, ln2), number(int64(k)))
			sum.Add(sum, term)
		}
		want, _ := new(big.Float).SetMantExp(sum, 64).Uint64()
		if got != want {
			t.Errorf("partial[%d] = %#x, want %#x", k, got, want)
		}
	}
	if last := partial[len(partial)-1]; last != math.MaxUint64 {
		t.Errorf("the table ends at %#x, before 1", last)
	}
}

// One million numbers against 1 - exp(-x): the largest distance of the two distributions (Kolmogorov and Smirnov) is
// above 1.95/sqrt(n) for one seed in a thousand if they are the same; mean and variance are within five of their
// standard errors. The seed is fixed, so the test is too.
func TestExponential_HasTheDistribution(t *testing.T) {
	const n = 1_000_000
	for _, mean := range []Time{1200, 12 * Microsecond, 200 * Millisecond, 1 << 60} {
		r := NewRandom(3, "distribution")
		x := make([]float64, n)
		var sum, squares float64
		for i := range x {
			x[i] = float64(Exponential(r, mean)) / float64(mean)
			sum += x[i]
			squares += (x[i] - 1) * (x[i] - 1)
		}
		if mean := sum / n; math.Abs(mean-1) > 5/math.Sqrt(n) {
			t.Errorf("the mean is %v times what was asked", mean)
		}
		if variance := squares / n; math.Abs(variance-1) > 5*math.Sqrt(8.0/n) {
			t.Errorf("the variance is %v times the mean's square", variance)
		}
		slices.Sort(x)
		if mean < Millisecond {
			continue // whole nanoseconds are too coarse for the distance
		}
		var distance float64
		for i, v := range x {
			f := -math.Expm1(-v)
			distance = max(distance, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
		}
		if distance > 1.95/math.Sqrt(n) {
			t.Errorf("mean %d: the distribution is %v off, over %v", mean, distance, 1.95/math.Sqrt(n))
		}
	}
}

// always is a source whose every number is the same.
type always uint64

func (a always) Uint64() uint64 { return uint64(a) }

func TestExponential_AtItsEnds(t *testing.T) {
	if got := Exponential(rand.New(always(0)), math.MaxInt64); got != 0 {
		t.Errorf("the smallest is %d, want 0", got)
	}
	r := NewRandom(1, "ends")
	for range 100_000 {
		if got := Exponential(r, math.MaxInt64); got < 0 {
			t.Fatalf("%d is before now", got)
		}
		if got := Exponential(r, 0); got != 0 {
			t.Fatalf("mean 0 gives %d", got)
		}
	}
}
