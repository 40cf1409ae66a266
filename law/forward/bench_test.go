package forward

import (
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// BenchmarkSYN measures the law's work for the copy of a SYN of a known host, with 28 hosts on 6 switches.
func BenchmarkSYN(b *testing.B) {
	n := leafSpine(b, 4, 2, 7)
	n.begin(b)
	flow := fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(20), SrcPort: 1000, DstPort: 80}
	e := &fabric.PacketIn{At: at(1, 1), Kind: fabric.SYN, Frame: modelnet.TCP(hostMAC(1), hostMAC(20), flow, 2)}
	var out []law.Action
	b.ReportAllocs()
	for b.Loop() {
		out = n.law.Step(n.Now, e, out[:0])
	}
}

// BenchmarkLinkCut measures the law's work for a link that is cut and restored in a fabric of 40 leaves, 4 spines and 400 hosts,
// with all confirmations.
func BenchmarkLinkCut(b *testing.B) {
	n := leafSpine(b, 40, 4, 10)
	n.begin(b)
	var spent time.Duration
	for b.Loop() {
		for _, up := range []bool{false, true} {
			n.SetLink(at(1, 11), up)
			begun := time.Now()
			must(b, n.Settle())
			n.Tick(tick)
			must(b, n.Settle())
			spent += time.Since(begun)
		}
	}
	b.ReportMetric(float64(spent.Microseconds())/1000/float64(b.N), "ms-law-and-model/op")
}
