package fairq_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/frames"
	"weir/datapath/internal/shimtest"
)

// BenchmarkFairQShim times each path of the shim as BenchmarkFairQ does those of the switch program.
func BenchmarkFairQShim(b *testing.B) {
	var s shimtest.ShimObjects
	if err := shimtest.LoadShimObjects(&s, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	if err := s.Lookups.Put(shimtest.ShimLookupKey{Ifindex: 1}, uint64(1)); err != nil {
		b.Fatal(err)
	}
	k, unknown := &talk{port: 1, client: 7, server: 7}, &talk{port: 2, client: 7, server: 7}
	bpftest.Once(b, s.WeirShimSend, k.syn(false))
	bpftest.Once(b, s.WeirShimHear, k.syn(true))
	written := func(c *shimtest.ShimShimCounts) uint64 { return c.Written }
	same := func(c *shimtest.ShimShimCounts) uint64 { return c.Same }
	for _, r := range []struct {
		name    string
		program *ebpf.Program
		in      []byte
		packets float64 // in one run
		counter func(*shimtest.ShimShimCounts) uint64
	}{
		{"other traffic", s.WeirShimSend, benchUDP(), 1, func(c *shimtest.ShimShimCounts) uint64 { return c.NotTcp }},
		{"bits written or cleared", s.SendAndClear, k.ack(false, 0, 1000), 2, written},
		{"bits that are right", s.WeirShimSend, k.ack(false, 7, 1000), 1, same},
		{"unknown connection", s.WeirShimSend, unknown.ack(false, 0, 1000), 1, func(c *shimtest.ShimShimCounts) uint64 { return c.Unknown }},
		{"nothing to clear", s.WeirShimClear, k.ack(false, 0, 1000), 1, same},
		{"SYN sent again", s.WeirShimSend, k.syn(false), 1, func(c *shimtest.ShimShimCounts) uint64 { return c.NoAck }},
		{"read at ingress: data", s.WeirShimHear, k.ack(true, 0, 1000), 1, nil},
		{"read at ingress: SYN-ACK", s.WeirShimHear, k.segment(true, frames.SYN|frames.ACK, 0, nil, 0), 1, func(c *shimtest.ShimShimCounts) uint64 { return c.Learnt }},
	} {
		b.Run(r.name, func(b *testing.B) {
			unit := bpftest.Bench{Empty: s.Empty, Lookup: s.HashLookup}
			unit.Report(b, ebpf.RunOptions{Data: r.in}, r.program, s.Empty, r.packets)
			if r.counter != nil && shimCounted(b, &s, r.counter) == 0 {
				b.Fatal("the packets did not take this path")
			}
		})
	}
}

// shimCounted sums a counter over the CPUs and resets all counters to 0.
func shimCounted(b *testing.B, s *shimtest.ShimObjects, counter func(*shimtest.ShimShimCounts) uint64) (sum uint64) {
	b.Helper()
	var cpus []shimtest.ShimShimCounts
	if err := s.Counts.Lookup(uint32(0), &cpus); err != nil {
		b.Fatal(err)
	}
	for i := range cpus {
		sum += counter(&cpus[i])
	}
	if err := s.Counts.Put(uint32(0), make([]shimtest.ShimShimCounts, len(cpus))); err != nil {
		b.Fatal(err)
	}
	return sum
}
