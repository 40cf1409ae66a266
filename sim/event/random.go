package event

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// NewRandom returns a source of random numbers: PCG-DXSM, seeded with the SHA-256 of seed and name. The same seed and
// name give the same numbers on every machine; different names give independent numbers. Its integer methods and
// Float64 are exact everywhere. NormFloat64 and ExpFloat64 are not, because of fused multiply-add.
func NewRandom(seed int64, name string) *rand.Rand {
	text := binary.LittleEndian.AppendUint64(nil, uint64(seed))
	sum := sha256.Sum256(append(text, name...))
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])))
}
