package event

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
)

// NewRandom returns a source of random numbers: PCG-DXSM, seeded with the SHA-256 of seed and name. The same seed and
// name give the same numbers on every machine; different names give independent numbers. Its integer methods and
// Float64 are exact everywhere. NormFloat64 and ExpFloat64 are not, because of fused multiply-add: use Exponential.
func NewRandom(seed int64, name string) *rand.Rand {
	text := binary.LittleEndian.AppendUint64(nil, uint64(seed))
	sum := sha256.Sum256(append(text, name...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])))
}

// partial[k] is 2^64 (L/1! + L^2/2! + ... + L^k/k!) with L = ln 2, rounded down: Q of algorithm S. It approaches 2^64
// (e^L - 1) = 2^64.
var partial = [...]uint64{
	0, 0xb17217f7d1cf79ab, 0xeef193f6d75a96fc, 0xfd27186259aaf6c2, 0xff9d6dd050f4c5a7,
	0xfff4cfcfef1e626b, 0xfffee81886e1c62f, 0xffffe7fe850e0bb5, 0xfffffe2a8731b17d, 0xffffffdfac6eeadc,
	0xfffffffdf9640067, 0xffffffffe22ec79c, 0xfffffffffe6a9ded, 0xffffffffffebff81, 0xffffffffffff1417,
	0xfffffffffffff5ce, 0xffffffffffffff95, 0xfffffffffffffffb, 0xffffffffffffffff,
}

// Exponential draws from the exponential distribution with that mean, rounded to the nearest nanosecond. mean is from 0
// to the largest Time. A result above the largest Time becomes the largest Time.
//
// It is Knuth's algorithm S (The Art of Computer Programming 2, 3.4.1, after Ahrens and Dieter 1972) in fixed point. It
// is exact but for the last of 64 bits. It uses integers only, so the result does not depend on a machine's logarithm.
func Exponential(r *rand.Rand, mean Time) Time {
	// S1: the number of ones before the first zero, each with probability 1/2 and worth ln 2.
	var j uint64
	for ones := 64; ones == 64; {
		ones = bits.LeadingZeros64(^r.Uint64())
		j += uint64(ones)
	}
	u := r.Uint64()
	if u >= partial[1] { // S3: the smallest of k numbers, for the k that u selects
		k := 2
		for k < len(partial)-1 && u >= partial[k] {
			k++
		}
		v := uint64(math.MaxUint64)
		for range k {
			v = min(v, r.Uint64())
		}
		u, _ = bits.Mul64(v, partial[1]) // S4: (j + v) ln 2
	}
	whole, fraction := bits.Mul64(j, partial[1])
	fraction, carry := bits.Add64(fraction, u, 0)
	whole += carry

	over, product := bits.Mul64(uint64(mean), whole)
	more, low := bits.Mul64(uint64(mean), fraction)
	more += low >> 63 // round to nearest
	if over != 0 || product > math.MaxInt64-more {
		return math.MaxInt64
	}
	return Time(product + more)
}
