package park_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/parktest"
	"weir/datapath/park"
	"weir/datapath/testnet"
)

// BenchmarkPark_Send times park_send with BPF_PROG_TEST_RUN, in ns above an empty program and in hash lookups of the same
// run. A parked packet has another mark afterwards, so every run has its own packet, and the time of a system call is in it.
func BenchmarkPark_Send(b *testing.B) {
	y := newYard(b, testnet.PathOptions{NoIPv6: true}, park.Options{}, 1e9)
	in := frameOf(false, nil, 1, 40, 0)
	least := func(b *testing.B, p *ebpf.Program) float64 {
		best := time.Hour
		for range 3000 {
			_, d, err := p.Benchmark(in, 1, nil)
			if err != nil {
				b.Fatal(err)
			}
			best = min(best, d)
		}
		return float64(best)
	}
	for name, rule := range map[string]parktest.ParkRule{
		"passes, not parked":       {Enabled: 1, All: 1, Cost: 0, Mark: 1},
		"parked, not padded":       {Enabled: 1, All: 1, Cost: 0},
		"parked, padded to 1.5 KB": {Enabled: 1, All: 1, Cost: 1514},
		"parked, padded to 9 KB":   {Enabled: 1, All: 1, Cost: 9000},
		"parked, padded to 16 KB":  {Enabled: 1, All: 1, Cost: 16000},
	} {
		b.Run(name, func(b *testing.B) {
			y.rule(b, rule)
			t := bpftest.Times(b, ebpf.RunOptions{Data: in}, y.objects.Empty, y.objects.HashLookup)
			bpftest.Cost(b, least(b, y.objects.ParkAll)-least(b, y.objects.Empty), t[1]-t[0])
		})
	}
}

// BenchmarkPark_Path times small packets through the whole switch, parked in a class that never waits, and not parked. The
// ratio is that of the two.
func BenchmarkPark_Path(b *testing.B) {
	y := newYard(b, testnet.PathOptions{NoIPv6: true}, park.Options{LimitPackets: 1 << 16, LimitBytes: 64 << 20}, 1e12)
	tx := testnet.NewRaw(b, y.Uplink)
	frame := frameOf(false, nil, 1, 40, 0)
	const packets = 2000
	least := func(b *testing.B, rule parktest.ParkRule) float64 {
		y.rule(b, rule)
		best := time.Hour
		for range 20 {
			start := time.Now()
			for range packets {
				tx.Send(b, frame)
			}
			best = min(best, time.Since(start))
		}
		return float64(best) / packets
	}
	for name, cost := range map[string]uint32{"not padded": 0, "padded to 1.5 KB": 1514} {
		b.Run(name, func(b *testing.B) {
			off := least(b, parktest.ParkRule{})
			on := least(b, parktest.ParkRule{Enabled: 1, All: 1, Cost: cost})
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(on-off, "ns/packet")
			b.ReportMetric(on/off, "ratio")
		})
	}
}

// BenchmarkPark_Rate measures the rate of a class with a backlog, as a part of the rate that was asked for.
func BenchmarkPark_Rate(b *testing.B) {
	for name, bps := range map[string]uint64{"10 Mbit per s": 10e6, "150 Mbit per s": 150e6, "1 Gbit per s": 1e9} {
		b.Run(name, func(b *testing.B) {
			const packets, cost, skipped = 1024, 1514, 24 // the first are the burst
			y := newYard(b, testnet.PathOptions{NoIPv6: true}, park.Options{}, bps)
			y.rule(b, parktest.ParkRule{Enabled: 1, All: 1, Cost: cost})
			tx, rx := testnet.NewRaw(b, y.Uplink), testnet.NewRaw(b, y.Rx)
			for n := range uint32(packets) {
				tx.Send(b, frameOf(false, nil, n, 40, 0))
			}
			for range packets {
				rx.Receive(b, isOurs)
			}
			var first, last uint64
			if err := y.objects.Times.Lookup(uint32(skipped), &first); err != nil {
				b.Fatal(err)
			}
			if err := y.objects.Times.Lookup(uint32(packets-1), &last); err != nil {
				b.Fatal(err)
			}
			wanted := float64(packets-1-skipped) * cost * 8e9 / float64(bps)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(wanted/float64(last-first), "of-the-rate")
		})
	}
}
