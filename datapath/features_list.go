package datapath

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// Use is a part of Weir that asks something of the kernel.
type Use string

// What Weir may be wanted for.
const (
	UseSwitch  Use = "switch"  // FairQ on ports
	UseMark    Use = "marking" // ECN marks at ports
	UseEdge    Use = "edge"    // at a host's uplink: shim, edge
	UseMeasure Use = "lab"     // measurement and guests of the lab
)

// Feature is one thing that Weir's programs ask of the kernel.
type Feature struct {
	Name  string
	Since string // "6.6"; or the kernel option that turns it on: "CONFIG_DEBUG_INFO_BTF"
	Uses  []Use
	// Err is nil where the kernel has it, a *MissingFeature where it has not, ErrPermission where only
	// root may ask, and another error where it could not be found out.
	Err error
}

// Needs is what brings the feature, in words.
func (f *Feature) Needs() string { return (&MissingFeature{f.Name, f.Since}).needs() }

// Features asks this kernel for everything that Weir's programs need. Nothing is attached and nothing
// stays.
func Features() []Feature {
	var out []Feature
	index := map[string]int{}
	add := func(use Use, probes []probe) {
		for _, p := range probes {
			i, known := index[p.Feature]
			if !known {
				err := p.check()
				if isPermission(err) {
					err = ErrPermission
				}
				i = len(out)
				index[p.Feature] = i
				out = append(out, Feature{Name: p.Feature, Since: p.Since, Err: err})
			}
			out[i].Uses = append(out[i].Uses, use)
		}
	}
	add(UseSwitch, append(fairQProbes(), fairQHelperProbes()...))
	add(UseMark, markProbes())
	add(UseEdge, edgeProbes())
	add(UseMeasure, append(measureProbes(), rtoProbes()[1:]...))
	return out
}

// fairQHelperProbes are those of helpers that every kernel with tcx should have, and that a vendor's
// may not.
func fairQHelperProbes() []probe {
	helper := func(kind ebpf.ProgramType, f asm.BuiltinFunc) func() (bool, error) {
		return func() (bool, error) { return supported(features.HaveProgramHelper(kind, f)) }
	}
	return []probe{
		{"timers of BPF programs (bpf_timer_start)", "5.15", helper(ebpf.SchedCLS, asm.FnTimerStart)},
		{"walks over maps (bpf_for_each_map_elem)", "5.13", helper(ebpf.Syscall, asm.FnForEachMapElem)},
		{"loops of BPF programs (bpf_loop)", "5.17", helper(ebpf.SchedCLS, asm.FnLoop)},
		{"locks in maps (bpf_spin_lock)", "5.1", helper(ebpf.SchedCLS, asm.FnSpinLock)},
		{"cookie of a network namespace (SO_NETNS_COOKIE)", "5.14", func() (bool, error) {
			_, err := NetnsCookie()
			return err == nil, nil
		}},
	}
}

// RehearseFairQ has the kernel's verifier look at the switch programs, with tables of a few flows that go
// at once. Nothing is attached.
func RehearseFairQ() error {
	source, err := newFairQSource(&FairQConfig{Flows: 1024})
	if err != nil {
		return err
	}
	maps, err := source.openMaps()
	if err != nil {
		return mayNot(err)
	}
	programs, err := source.load(maps)
	if err == nil {
		err = programs.Close()
	}
	return errors.Join(mayNot(err), maps.Close())
}

func mayNot(err error) error {
	if isPermission(err) {
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return err
}

// FairQMemory is about how many bytes of kernel memory the tables of a switch take that has room for so
// many connections, on a machine with so many CPUs. 0 flows: the default.
func FairQMemory(flows uint32, cpus int) (uint64, error) {
	if flows == 0 {
		flows = FairQFlows
	}
	source, err := newFairQSource(&FairQConfig{Flows: flows})
	if err != nil {
		return 0, err
	}
	var sum uint64
	for name := range (&fairqMaps{}).byName() {
		sum += mapMemory(source.spec.Maps[name], cpus)
	}
	return sum, nil
}

// mapMemory is what the kernel takes for a map whose entries are there from the start.
func mapMemory(m *ebpf.MapSpec, cpus int) uint64 {
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
			entries += uint64(cpus) // a spare of each CPU
		}
		return entries*(hashEntry+round(m.KeySize)+round(m.ValueSize)) + buckets*bucket
	case ebpf.PerCPUArray:
		return entries * (round(m.ValueSize)*uint64(cpus) + 8)
	case ebpf.LPMTrie: // entries come as they are needed
		return 0
	}
	return entries * round(m.ValueSize)
}
