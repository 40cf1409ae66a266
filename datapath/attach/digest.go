package attach

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// digestKey names a constant of the programs that keep a table of connections: flow_digest_key of
// bpf/lib/segment.h.
const (
	digestKey   = "flow_digest_key"
	digestWords = 20
)

// SetRandomDigestKey calls SetDigestKey with a random seed, for tables that end with the process.
func SetRandomDigestKey(spec *ebpf.CollectionSpec) error {
	var seed [16]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return fmt.Errorf("seed of the tables: %w", err)
	}
	return SetDigestKey(spec, seed)
}

// SetDigestKey sets the key of the hashes with which a program's tables find connections. Programs that
// share a table need the same seed. No sender may know the seed, or it could choose addresses that collide.
func SetDigestKey(spec *ebpf.CollectionSpec, seed [16]byte) error {
	var key [digestWords]uint32
	for i := range key {
		sum := sha256.Sum256(append(seed[:], byte(i)))
		key[i] = binary.LittleEndian.Uint32(sum[:])
	}
	v, ok := spec.Variables[digestKey]
	if !ok {
		return fmt.Errorf("the program has no %s", digestKey)
	}
	return v.Set(key)
}
