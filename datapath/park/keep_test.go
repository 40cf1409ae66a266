package park

import (
	"testing"

	"weir/datapath/testnet"
)

// A heartbeat does not wait for a parking that is busy, and the parking is made again afterwards.
func TestPark_KeepSoon(t *testing.T) {
	n := testnet.NewNamespace(t)
	p, err := Open(n.Enter, Options{LimitBytes: 1 << 20, LimitPackets: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	there := func() bool {
		t.Helper()
		s, exists, err := Look(n.Enter, p.o)
		if err != nil {
			t.Fatal(err)
		}
		return exists && s.Queue
	}
	if err := Remove(n.Enter, p.o); err != nil || there() {
		t.Fatalf("removed: %t, %v", !there(), err)
	}
	p.mu.Lock()
	for range 100 {
		p.KeepSoon()
	}
	p.mu.Unlock()
	testnet.Until(t, "it is made again", func() bool { p.KeepSoon(); return there() })
}
