package testnet

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
)

// Rates of ports, in bit/s.
const (
	// SlowBps is so slow that a queue does not drain while a test fills it (but not slower: TBF's bucket holds 4.29 s at
	// most, and drops what is larger).
	SlowBps  = 40_000
	QuickBps = 1e9 // empties it
)

// AttachedTo is the number of programs at a port's egress.
func AttachedTo(t *testing.T, p attach.PortRef) (n int) {
	t.Helper()
	err := p.In(func() error {
		q, err := link.QueryPrograms(link.QueryOptions{Target: p.Ifindex, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			n = len(q.Programs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Pinned lists the names in a directory of pins; none if it is not there.
func Pinned(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
