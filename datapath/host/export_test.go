package host

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// Memory returns the bytes that tables and programs take in the kernel.
func (h *Host) Memory(tb testing.TB) (sum uint64) {
	tb.Helper()
	for _, at := range byName(h.maps) {
		info, err := (*at).Info()
		if err != nil {
			tb.Fatal(err)
		}
		if n, ok := info.Memlock(); ok {
			sum += n
		}
	}
	for _, p := range []*ebpf.Program{h.program} {
		info, err := p.Info()
		if err != nil {
			tb.Fatal(err)
		}
		if n, ok := info.Memlock(); ok {
			sum += n
		}
		if n, err := info.JitedSize(); err == nil {
			sum += uint64(n)
		}
	}
	return sum
}

// OwnersToSweep reports whether the next Sweep must look at all grants.
func (h *Host) OwnersToSweep(tb testing.TB) bool {
	tb.Helper()
	_, anew, err := h.silentOwners(attach.MonotonicNs())
	if err != nil {
		tb.Fatal(err)
	}
	return anew
}

// Spend takes changes of classes from the budget.
func (h *Host) Spend(changes int) { h.limiter.budget -= float64(changes) }

// Abandon does what Open does when it fails at its end.
func (h *Host) Abandon() error { return h.abandon() }
