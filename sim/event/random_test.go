package event

import (
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
