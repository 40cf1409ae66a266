package attach

import (
	"math/bits"

	"github.com/cilium/ebpf"
)

// MapMemory returns the bytes that the kernel takes for a map whose entries are allocated at the start.
func MapMemory(m *ebpf.MapSpec, cpus int) uint64 {
	const (
		hashEntry, lruEntry = 48, 48 // struct htab_elem before the key
		bucket              = 16
	)
	round := func(n uint32) uint64 { return uint64(n+7) &^ 7 }
	entries := uint64(m.MaxEntries)
	switch m.Type {
	case ebpf.Hash, ebpf.LRUHash:
		buckets := uint64(1) << bits.Len64(entries-1)
		if m.Type == ebpf.Hash {
			entries += uint64(cpus) // one spare entry for each CPU
		}
		return entries*(hashEntry+round(m.KeySize)+round(m.ValueSize)) + buckets*bucket
	case ebpf.PerCPUArray:
		return entries * (round(m.ValueSize)*uint64(cpus) + 8)
	case ebpf.LPMTrie: // entries are allocated as needed
		return 0
	}
	return entries * round(m.ValueSize)
}
