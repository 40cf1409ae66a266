package fairq_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"weir/datapath/internal/bpftest"
	"weir/datapath/internal/edgetest"
	"weir/datapath/internal/fairqtest"
)

// newEdgeModeBench is newBench with the switch program in edge mode, whose interval never ends.
func newEdgeModeBench(b *testing.B) *lawBench {
	b.Helper()
	spec, err := fairqtest.LoadFairQ()
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]any{
		fairqtest.FairQVarPortId: uint32(0), fairqtest.FairQVarTcpAt: uint32(34), fairqtest.FairQVarWideWindow: uint16(benchWindow),
		fairqtest.FairQVarEdgeInterval: uint32(1 << 30), fairqtest.FairQVarEdgeLease: uint32(1 << 31), fairqtest.FairQVarEdgeChange: uint16(32),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			b.Fatal(err)
		}
	}
	f := &lawBench{}
	if err := spec.LoadAndAssign(&f.FairQObjects, nil); err != nil {
		b.Fatalf("load: %+v", err)
	}
	b.Cleanup(func() { _ = f.Close() })
	return f
}

// withFlag sets the flag of a frame of benchFrame.
func withFlag(in []byte) []byte {
	out := append([]byte(nil), in...)
	out[34+12] |= flagged
	sum := uint32(^(uint16(out[34+16])<<8 | uint16(out[34+17]))) & 0xffff
	sum += flagged << 8
	sum = ^(sum&0xffff + sum>>16)
	out[34+16], out[34+17] = byte(sum>>8), byte(sum)
	return out
}

// BenchmarkFairQEdgeMode times an ACK in the switch as BenchmarkFairQ does, in full mode and in edge mode: one
// that is left to the edge, and one that advertises. (It arrives flagged, so that it advertises each time.)
func BenchmarkFairQEdgeMode(b *testing.B) {
	full, edge := newBench(b), newEdgeModeBench(b)
	answer := benchFrame(benchRight, benchLeft, 0x10, benchTimestamps, 0)
	for _, r := range []struct {
		name           string
		f              *lawBench
		program, above func(*lawBench) *ebpf.Program
		in             []byte
		counter        func(*fairqtest.FairQPortCounts) uint64
	}{
		{"full mode: ACK rewritten", full, rewriting, undoing, answer, func(c *fairqtest.FairQPortCounts) uint64 { return c.Rewritten }},
		{"edge mode: ACK left to the edge", edge, passing, emptily, answer, func(c *fairqtest.FairQPortCounts) uint64 { return c.LeftToEdge }},
		{"edge mode: ACK that advertises", edge, rewriting, undoing, withFlag(answer), func(c *fairqtest.FairQPortCounts) uint64 { return c.Rewritten }},
	} {
		b.Run(r.name, func(b *testing.B) {
			r.f.begin(b, 4000)
			bpftest.Once(b, r.f.WeirFairq, answer) // the first one advertises
			r.f.counted(b, r.counter)
			r.f.report(b, r.program(r.f), r.above(r.f), r.in)
			if r.f.counted(b, r.counter) == 0 {
				b.Fatal("the packets did not take this path")
			}
		})
	}
}

func rewriting(f *lawBench) *ebpf.Program { return f.RewriteAndUndo }
func undoing(f *lawBench) *ebpf.Program   { return f.Undo }
func passing(f *lawBench) *ebpf.Program   { return f.WeirFairq }
func emptily(f *lawBench) *ebpf.Program   { return f.Empty }

// BenchmarkFairQEdge times each path of the edge.
func BenchmarkFairQEdge(b *testing.B) {
	spec, err := edgetest.LoadEdge()
	if err != nil {
		b.Fatal(err)
	}
	for name, value := range map[string]uint32{edgetest.EdgeVarTcpAt: 34, edgetest.EdgeVarLease: 1 << 31, edgetest.EdgeVarMssMax: 1460} {
		if err := spec.Variables[name].Set(value); err != nil {
			b.Fatal(err)
		}
	}
	var e edgetest.EdgeObjects
	if err := spec.LoadAndAssign(&e, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	if err := e.Lookups.Put(edgetest.EdgeLookupKey{Ifindex: 1}, uint64(1)); err != nil {
		b.Fatal(err)
	}
	answer := benchFrame(benchRight, benchLeft, 0x10, benchTimestamps, 0)
	unknown := benchFrame(netip.MustParseAddrPort("10.0.0.9:5"), benchLeft, 0x10, benchTimestamps, 0)
	small := append([]byte(nil), withFlag(answer)...) // advertises a window below that of answer; nothing checks its checksum
	small[34+14], small[34+15] = 4000>>8, 4000&0xff
	for _, r := range []struct {
		name           string
		program, above *ebpf.Program
		in             []byte
		counter        func(*edgetest.EdgeEdgeCounts) uint64
	}{
		{"other traffic", e.WeirEdgeApply, e.Empty, benchUDP(), func(c *edgetest.EdgeEdgeCounts) uint64 { return c.NotTcp }},
		{"ACK of a flow without an advertised window", e.WeirEdgeApply, e.Empty, unknown, func(c *edgetest.EdgeEdgeCounts) uint64 { return c.Unadvertised }},
		{"ACK that advertises", e.ApplyAndUndo, e.Undo, small, func(c *edgetest.EdgeEdgeCounts) uint64 { return c.Advertised }},
		{"ACK limited", e.ApplyAndUndo, e.Undo, answer, func(c *edgetest.EdgeEdgeCounts) uint64 { return c.Applied }},
		{"from the guest: no flag", e.WeirEdgeGuard, e.Empty, answer, nil},
		{"from the guest: flag cleared", e.GuardAndUndo, e.Undo, withFlag(answer), func(c *edgetest.EdgeEdgeCounts) uint64 { return c.Forged }},
	} {
		b.Run(r.name, func(b *testing.B) {
			unit := bpftest.Bench{Empty: e.Empty, Lookup: e.HashLookup}
			unit.Report(b, ebpf.RunOptions{Data: r.in}, r.program, r.above, 1)
			if r.counter != nil && edgeCounted(b, &e, r.counter) == 0 {
				b.Fatal("the packets did not take this path")
			}
		})
	}
}

// edgeCounted sums a counter over the CPUs and resets all counters to 0.
func edgeCounted(b *testing.B, e *edgetest.EdgeObjects, counter func(*edgetest.EdgeEdgeCounts) uint64) (sum uint64) {
	b.Helper()
	var cpus []edgetest.EdgeEdgeCounts
	if err := e.Counts.Lookup(uint32(0), &cpus); err != nil {
		b.Fatal(err)
	}
	for i := range cpus {
		sum += counter(&cpus[i])
	}
	if err := e.Counts.Put(uint32(0), make([]edgetest.EdgeEdgeCounts, len(cpus))); err != nil {
		b.Fatal(err)
	}
	return sum
}
