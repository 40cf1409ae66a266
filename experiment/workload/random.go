package workload

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"

	"weir/law"
)

// random is one source of randomness with its own generator, so that one source drawing more does not change
// another. Every value is the same on every machine: a product that is added to something is first rounded by an
// explicit conversion, which forbids a fused multiply-add. The logarithm is our own, because math.Log differs in
// the last bit between machines.
type random struct{ pcg *rand.PCG }

// newRandom returns the source for a seed, traffic item and purpose.
func newRandom(seed int64, item, purpose string) random {
	hi, lo := seedOf(seed, item, purpose)
	return random{rand.NewPCG(hi, lo)}
}

func seedOf(seed int64, item, purpose string) (hi, lo uint64) {
	text := binary.BigEndian.AppendUint64(nil, uint64(seed))
	text = append(text, item...)
	text = append(text, 0)
	text = append(text, purpose...)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
}

// unit returns a uniform value in [0, 1), a multiple of 2^-53.
func (r random) unit() float64 { return toUnit(r.pcg.Uint64()) }

func toUnit(v uint64) float64 { return float64(v>>11) / (1 << 53) }

// below returns a uniform value in 0..n-1; n is 1 or more. Its bias is below n/2^64.
func (r random) below(n int) int {
	hi, _ := bits.Mul64(r.pcg.Uint64(), uint64(n))
	return int(hi)
}

// duration returns a uniform value in [0, limit).
func (r random) duration(limit law.Duration) law.Duration {
	return min(law.Duration(float64(r.unit()*float64(limit))), max(limit-1, 0))
}

// never is later than the end of any run, but small enough to be added to another time without overflow.
const never = law.Duration(1 << 61)

// exponential returns an exponential value with the given mean in ns, which may be a fraction. The value is
// rounded to whole nanoseconds, and is at most never.
func (r random) exponential(meanNs float64) law.Duration {
	mean := min(meanNs, float64(never))
	return law.Duration(min(math.Round(float64(-ln(1-r.unit())*mean)), float64(never)))
}

// shuffled returns 0..n-1 in random order (Fisher and Yates).
func (r random) shuffled(n int) []int {
	order := make([]int, n)
	for i := range order {
		j := r.below(i + 1)
		order[i], order[j] = order[j], i
	}
	return order
}

// mix is the finaliser of splitmix64: a stateless generator for values that are read by number, in any order.
func mix(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

// ln returns the natural logarithm of x > 0, to about 1 ulp, the same on every machine:
// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m-1)/(m+1)).
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = float64(m*2), e-1
	}
	s := (m - 1) / (m + 1)
	square := float64(s * s) // at most 0.0295: 11 terms reach 2^-53
	sum := 0.0
	for k := 23; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(e)*math.Ln2) + float64(float64(2*s)*sum)
}
