package reading

import (
	"testing"
	"time"

	"weir/datapath/internal/cdefine"
)

// Nothing waits for longer than the kernel program remembers it: a parking that was deleted takes what waits with it.
func TestWaiting(t *testing.T) {
	most := time.Duration(cdefine.Value(t, "../core/repair.h", "REPAIR_FORGET_NS"))
	for _, row := range []struct {
		bytes uint32
		since time.Duration
		want  uint32
	}{{1514, 0, 1514}, {1514, most, 1514}, {1514, most + 1, 0}, {1<<32 - 1514, 0, 0}} {
		if got := Waiting(row.bytes, row.since); got != row.want {
			t.Errorf("Waiting(%d, %v) = %d, want %d", row.bytes, row.since, got, row.want)
		}
	}
}
