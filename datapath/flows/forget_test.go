package flows

import (
	"testing"

	"weir/internal/testroot"
)

// A port that is removed leaves nothing in the table: neither flows that a reading has seen, nor those that none has.
func TestRemove_ForgetsUnreadFlows(t *testing.T) {
	testroot.Need(t, "loads kernel programs")
	f, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	f.ports = []*port{{Port: Port{N: 7}}, {Port: Port{N: 8}}}
	put := func(number, ports uint32) {
		t.Helper()
		if err := f.maps.Sent.Put(kernelSentKey{Port: number, Ports: ports}, kernelSentFlow{Bytes: 10}); err != nil {
			t.Fatal(err)
		}
	}
	put(7, 1)
	put(8, 1)
	if changes, err := f.Read(1, nil); err != nil || len(changes) != 2 {
		t.Fatalf("%d changes, %v, want 2", len(changes), err)
	}
	put(7, 2)
	put(8, 2)
	if err := f.Remove(7); err != nil {
		t.Fatal(err)
	}
	changes, err := f.Read(2, nil)
	if err != nil || len(changes) != 1 || changes[0].Port != 8 {
		t.Errorf("%+v, %v, want the new flow of port 8 only", changes, err)
	}
}
