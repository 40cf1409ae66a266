package law

import (
	"testing"
	"time"
)

// The buffer has room for a burst that comes back. At fast ports the burst is shorter than a timer may be late.
func TestRepairAt(t *testing.T) {
	for _, row := range []struct {
		rate         Rate
		buffer       Bytes
		burst        time.Duration
		limit, bound Bytes
	}{
		{150e6, 85_300, 200 * time.Microsecond, 75_494, 1_875_000},
		{1e9, 85_300, 200 * time.Microsecond, 54_244, 2 << 20},
		{10e9, 125_000, 33_333 * time.Nanosecond, 77_278, 2 << 20}, // 200 us are 250 KB
		{100e9, 1_000_000, 26_666 * time.Nanosecond, 660_611, 2 << 20},
	} {
		got, err := RepairAt(row.rate, row.buffer, 2<<20)
		if err != nil || got.Burst != row.burst || got.Limit != row.limit || got.Bound != row.bound || got.Full != row.buffer-2*1514 {
			t.Errorf("%v, %v: %+v, %v", row.rate, row.buffer, got, err)
		}
	}
	if _, err := RepairAt(1e9, 9000, 2<<20); err == nil {
		t.Error("a buffer of 9000 bytes has no room for what comes back and two frames")
	}
}
