package mark_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/marktest"
)

// BenchmarkMark times the program with BPF_PROG_TEST_RUN, in ns/packet above an empty program. It also gives
// the time in hash lookups ("lookups"), timed in the same run. Compare machines by lookups, not by ns.
func BenchmarkMark(b *testing.B) {
	m := newTestMark(b)
	var ifindex uint32 = 1 // the loopback device, which TEST_RUN's packets are of
	if err := m.objects.Lookups.Put(marktest.MarkLookupKey{Ifindex: ifindex}, uint64(1)); err != nil {
		b.Fatal(err)
	}
	ipv4, ipv6 := frame{}, frame{ipv6: true, next: 6}
	tagged := frame{tags: []uint16{0x88a8, 0x8100}}
	rows := []struct {
		name    string
		in      []byte
		backlog uint32
	}{
		{"ipv4 under the threshold", ipv4.bytes(ect0), 0},
		{"ipv6 under the threshold", ipv6.bytes(ect0), 0},
		{"ipv4 with two tags under the threshold", tagged.bytes(ect0), 0},
		{"ipv4 not ECT over the threshold", ipv4.bytes(notECT), threshold + 1},
		// The first run marks the packet; the later runs find it marked.
		{"ipv4 CE over the threshold", ipv4.bytes(ect0), threshold + 1},
		{"not IP", append([]byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x08, 0x06}, make([]byte, 46)...), threshold + 1},
	}
	for _, r := range rows {
		b.Run(r.name, func(b *testing.B) {
			m.set(b, marktest.MarkMarkConfig{ThresholdBytes: threshold}, r.backlog)
			unit := bpftest.Bench{Empty: m.objects.Empty, Lookup: m.objects.HashLookup}
			unit.Report(b, ebpf.RunOptions{Data: r.in}, m.objects.WeirMark, m.objects.Empty, 1)
		})
	}
}

// BenchmarkMark_Rewrite times a packet that is marked, in ns above one that passes. Both include the system
// call of a single run.
func BenchmarkMark_Rewrite(b *testing.B) {
	m := newTestMark(b)
	for name, f := range map[string]frame{"ipv4": {}, "ipv6": {ipv6: true, next: 6}} {
		b.Run(name, func(b *testing.B) {
			in := f.bytes(ect0)
			least := func(backlog uint32) time.Duration {
				m.set(b, marktest.MarkMarkConfig{ThresholdBytes: threshold}, backlog)
				best := time.Hour
				for range 2000 {
					_, d, err := m.objects.WeirMark.Benchmark(in, 1, nil)
					if err != nil {
						b.Fatal(err)
					}
					best = min(best, d)
				}
				return best
			}
			pass := least(0)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(least(threshold+1)-pass), "ns/rewrite")
		})
	}
}
