package traffic_test

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/experiment"
	"weir/lab/traffic"
)

// cpu returns the processor time of this process so far, including its time in the kernel.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bench runs the traffic once for each b.N and returns the outcome of the last run, with the processor time of all
// runs.
func bench(b *testing.B, n *pairNet, cfg *experiment.Config) (*traffic.Outcome, time.Duration) {
	b.Helper()
	var out *traffic.Outcome
	before := cpu(b)
	for b.Loop() {
		var err error
		if out, err = traffic.Run(context.Background(), n, cfg, 1, traffic.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	return out, (cpu(b) - before) / time.Duration(b.N)
}

// BenchmarkShortFlows: 630 clients' connections of 11.5 KB each, as fast as possible. Compare conn/s with the need
// of the experiments (some thousands); us-cpu/conn is the cost of one connection.
func BenchmarkShortFlows(b *testing.B) {
	out, used := bench(b, newPair(b, 0), config(time.Minute, item(experiment.Traffic{
		Data: "pull", Pattern: "closed_loop", Size: 11_500, Requests: 12_600, Concurrency: 630,
	})))
	b.ReportMetric(float64(len(out.Flows))/out.Ended.Seconds(), "conn/s")
	b.ReportMetric(float64(used.Microseconds())/float64(len(out.Flows)), "us-cpu/conn")
}

// BenchmarkBulk: one flow at 200 Mbit/s for a second. %cpu is the share of one core that the traffic's programs
// and their part of the kernel use.
func BenchmarkBulk(b *testing.B) {
	out, used := bench(b, newPair(b, 200e6), config(time.Second, item(experiment.Traffic{Pattern: "bulk"})))
	b.ReportMetric(float64(out.Flows[0].Bytes)*8/1e6, "Mbit/s")
	b.ReportMetric(100*used.Seconds(), "%cpu")
}

// BenchmarkUDP: 100 Mbit/s at a constant rate for a second.
func BenchmarkUDP(b *testing.B) {
	out, used := bench(b, newPair(b, 0), config(time.Second, item(experiment.Traffic{Proto: "udp", Pattern: "cbr", Rate: 100e6})))
	b.ReportMetric(float64(out.Flows[0].Bytes)*8/1e6*1500/1472, "Mbit/s")
	b.ReportMetric(100*used.Seconds(), "%cpu")
}

// BenchmarkForeignBulk is BenchmarkBulk between guests whose TCP is netstack: all of the work, not only the
// kernel's part, is in this process.
func BenchmarkForeignBulk(b *testing.B) {
	n := newMixedPair(b, 200e6, "a", "b")
	out, used := bench(b, n, config(time.Second, n.item(experiment.Traffic{Pattern: "bulk"})))
	b.ReportMetric(float64(out.Flows[0].Bytes)*8/1e6, "Mbit/s")
	b.ReportMetric(100*used.Seconds(), "%cpu")
}

// BenchmarkForeignShortFlows is BenchmarkShortFlows between guests whose TCP is netstack.
func BenchmarkForeignShortFlows(b *testing.B) {
	n := newMixedPair(b, 0, "a", "b")
	out, used := bench(b, n, config(time.Minute, n.item(experiment.Traffic{
		Data: "pull", Pattern: "closed_loop", Size: 11_500, Requests: 12_600, Concurrency: 630,
	})))
	b.ReportMetric(float64(len(out.Flows))/out.Ended.Seconds(), "conn/s")
	b.ReportMetric(float64(used.Microseconds())/float64(len(out.Flows)), "us-cpu/conn")
}
