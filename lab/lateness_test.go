package lab

import (
	"testing"
	"time"
)

func TestMedianLateness(t *testing.T) {
	const frame = 100 * time.Microsecond
	var times []int64
	for i := range int64(60) {
		at := int64(time.Second) + i*int64(frame)
		if i < 3 {
			at = int64(time.Second) // the bucket was full
		}
		if i >= 30 {
			at += 500_000 // a stall, in which tokens were lost
		}
		times = append(times, at+[]int64{0, 40_000, 90_000}[i%3])
	}
	if got := medianLateness(times, frame, 3); got != 40*time.Microsecond {
		t.Errorf("%v, want 40us", got)
	}
	if got := medianLateness(times[:3], frame, 3); got != 0 {
		t.Errorf("%v of frames that do not count", got)
	}
}
