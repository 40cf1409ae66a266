package testnet

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/attach"
)

// Rates of ports, in bit/s.
const (
	// SlowBps is so slow that a queue does not drain while a test fills it. It is not slower because TBF's
	// token bucket holds at most 4.29 s and drops larger frames.
	SlowBps  = 40_000
	QuickBps = 1e9 // drains it quickly
)

// AttachedTo returns the number of programs at a port's egress.
func AttachedTo(t *testing.T, p attach.PortRef) (n int) {
	t.Helper()
	err := p.In(func() error {
		programs, err := attach.ProgramsAt(p.Ifindex, ebpf.AttachTCXEgress) // others may be attached meanwhile
		n = len(programs)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Pinned lists the names in a directory of pins; nothing if the directory does not exist.
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
