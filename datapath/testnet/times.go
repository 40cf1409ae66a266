package testnet

import (
	"slices"
	"testing"
	"time"
)

// ReportTimes reports percentiles of times, in µs: p50-us-WHAT and so on. It sorts the times, and reports nothing if there are none.
func ReportTimes(b *testing.B, times []time.Duration, what string) {
	b.Helper()
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	for name, part := range map[string]float64{"p50": 0.5, "p99": 0.99, "p99.9": 0.999} {
		b.ReportMetric(float64(times[min(int(part*float64(len(times))), len(times)-1)].Microseconds()), name+"-us-"+what)
	}
}
