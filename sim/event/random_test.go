package event

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// The numbers of a seed and name must never change, because results are compared by their digests.
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
		0, 0, 0, 2, 248, 44, 19684, 2337, 149784934, 1543245174, 3230125302004433, 1018038380560699,
		86830539177307007, 10311070429553808, 3170556189976237085, math.MaxInt64,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The table of algorithm S, computed again: the sum of (ln 2)^i / i!, where ln 2 is the sum of 1 / (i 2^i).
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

// Mean and variance of a million numbers are within five of their standard errors.
func TestExponential_HasMeanAndVariance(t *testing.T) {
	const n = 1_000_000
	for _, mean := range []Time{1200, 12 * Microsecond, 200 * Millisecond, 1 << 60} {
		r := NewRandom(3, "moments")
		var sum, squares float64
		for range n {
			x := float64(Exponential(r, mean)) / float64(mean)
			sum += x
			squares += (x - 1) * (x - 1)
		}
		if got := sum / n; math.Abs(got-1) > 5/math.Sqrt(n) {
			t.Errorf("mean %d: the mean is %v times that", mean, got)
		}
		if got := squares / n; math.Abs(got-1) > 5*math.Sqrt(8.0/n) {
			t.Errorf("mean %d: the variance is %v times its square", mean, got)
		}
	}
}

// A million numbers compared with 1 - exp(-x), by Kolmogorov and Smirnov. If the two are the same, sqrt(n) times their
// largest distance has the median 0.828, and is above 2.45 once in 130,000. None of nine seeds may be above 2.45. The
// middle one must be between 0.6 and 1.22; one in seven is below 0.6 and nine in ten are below 1.22.
func TestExponential_HasTheDistribution(t *testing.T) {
	const n = 1_000_000
	var distances []float64
	x := make([]float64, n)
	for seed := range int64(9) {
		r := NewRandom(seed, "distribution")
		for i := range x {
			x[i] = float64(Exponential(r, 1<<60)) / (1 << 60)
		}
		slices.Sort(x)
		var distance float64
		for i, v := range x {
			f := -math.Expm1(-v)
			distance = max(distance, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
		}
		distances = append(distances, distance*math.Sqrt(n))
	}
	slices.Sort(distances)
	if middle := distances[4]; middle < 0.6 || middle > 1.22 || distances[8] > 2.45 {
		t.Errorf("the distances from the distribution are %v", distances)
	}
}

// always is a source whose numbers are all the same.
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
