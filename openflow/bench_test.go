package openflow_test

import (
	"syscall"
	"testing"

	of "weir/openflow"
)

// written returns a message as bytes.
func written(b *testing.B, m of.Message) []byte {
	b.Helper()
	wire, err := of.Append(nil, 1, m)
	if err != nil {
		b.Fatal(err)
	}
	return wire
}

// cpuTime returns this process's time on processors so far, in ns: on a busy machine the clock says little.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// perCPU reports how many operations a processor does in a second of its time, since began.
func perCPU(b *testing.B, began int64) {
	b.Helper()
	b.ReportMetric(float64(b.N)*1e9/float64(cpuTime(b)-began), "per-cpu-s")
}

func BenchmarkPacketInDecode(b *testing.B) {
	wire := written(b, &of.PacketIn{
		BufferID: of.NoBuffer, TotalLen: 128, Reason: of.PacketInAction, Match: of.Match{of.InPort(3)}, Data: make([]byte, 128),
	})
	var in of.PacketIn
	b.ReportAllocs()
	defer perCPU(b, cpuTime(b))
	for b.Loop() {
		if _, err := of.ParseHeader(wire); err != nil {
			b.Fatal(err)
		}
		if err := in.DecodeBody(wire[of.HeaderLen:]); err != nil {
			b.Fatal(err)
		}
		if port, ok := in.Match.InPort(); !ok || port != 3 {
			b.Fatal("no port")
		}
	}
}

func BenchmarkPortStatsDecode48(b *testing.B) {
	reply := make(of.PortStatsReply, 48)
	for i := range reply {
		reply[i].PortNo, reply[i].TxBytes = of.PortNo(i+1), uint64(i)
	}
	wire := written(b, &of.MultipartReply{Type: of.MultipartPortStats, Body: reply})
	b.Run("iterated", func(b *testing.B) {
		b.ReportAllocs()
		defer perCPU(b, cpuTime(b))
		for b.Loop() {
			it, err := of.IteratePortStats(wire[of.HeaderLen:])
			if err != nil {
				b.Fatal(err)
			}
			var s of.PortStats
			sum := uint64(0)
			for it.Next(&s) {
				sum += s.TxBytes
			}
			if sum != 48*47/2 {
				b.Fatal(sum)
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		var m of.MultipartReply
		b.ReportAllocs()
		defer perCPU(b, cpuTime(b))
		for b.Loop() {
			if err := m.DecodeBody(wire[of.HeaderLen:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkFlowModAppend(b *testing.B) {
	m := &of.FlowMod{
		Priority: 10, BufferID: of.NoBuffer, OutPort: of.PortAny, OutGroup: of.GroupAny, IdleTimeout: 10,
		Match:        of.Match{of.InPort(1), of.EthType(0x800), of.IPProto(6), of.TCPSrc(40000), of.TCPDst(80)},
		Instructions: of.Instructions{of.InstructionApplyActions{Actions: of.Actions{of.ActionOutput{Port: 2, MaxLen: of.NoMaxLen}}}},
	}
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	defer perCPU(b, cpuTime(b))
	for b.Loop() {
		var err error
		if buf, err = of.Append(buf[:0], 1, m); err != nil {
			b.Fatal(err)
		}
	}
}
