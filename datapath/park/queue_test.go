package park

import (
	"testing"

	"weir/datapath/internal/cdefine"
)

// The programs and the queue agree on the handles of the classes. With another handle HTB would send packets at once.
func TestHandles(t *testing.T) {
	for name, is := range map[string]uint64{
		"PARK_HANDLE": rootHandle, "PARK_HELD": heldHandle, "PARK_FIRST": firstHandle, "PARK_KEPT": keptHandle, "PARK_KEPT_AGAIN": againHandle,
		"PARK_PORTS": Ports,
	} {
		if want := cdefine.Value(t, "../bpf/lib/park.h", name); is != want {
			t.Errorf("%s is %#x there and %#x here", name, want, is)
		}
	}
}
