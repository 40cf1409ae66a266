package controller

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"weir/datapath/testnet"
)

// BenchmarkSiege measures the effect of attacks on an honest switch: the time from a packet-in to the packet-out that answers it.
// The switch asks every 2 ms for ten seconds, or when the last question was answered or lost. The attackers are a process of
// their own and share the machine's cores with the controller.
func BenchmarkSiege(b *testing.B) {
	for _, a := range append([]attack{{name: "alone"}}, attacks...) {
		b.Run(a.name, func(b *testing.B) {
			r := newSiege(b)
			h := newHonest(b, r)
			if a.peers > 0 {
				attacker := r.attackFrom(b, a.name, "")
				defer attacker.Kill()
			}
			time.Sleep(2 * time.Second)
			before := memoryOf(b, r.controller)
			var took []float64
			lost := 0
			for b.Loop() {
				every := time.NewTicker(2 * time.Millisecond)
				for i, end := 0, time.Now().Add(10*time.Second); time.Now().Before(end); i++ {
					<-every.C
					if d, ok := h.ask(byte(i), time.Second); ok {
						took = append(took, float64(d)/1e3)
					} else {
						lost++
					}
				}
				every.Stop()
			}
			slices.Sort(took)
			if len(took) == 0 {
				b.Fatalf("no answer to %d questions", lost)
			}
			b.ReportMetric(took[len(took)/2], "p50-us")
			b.ReportMetric(took[len(took)*99/100], "p99-us")
			b.ReportMetric(took[len(took)-1], "max-us")
			b.ReportMetric(float64(lost), "lost")
			if s := r.status(b); s != nil {
				b.ReportMetric(float64(s.Core.SlowestStepUs), "slowest-step-us")
			}
			b.ReportMetric(before, "MB-before")
			b.ReportMetric(memoryOf(b, r.controller), "MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// memoryOf returns a process's resident memory in MB.
func memoryOf(tb testing.TB, p *testnet.Process) float64 {
	tb.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Cmd.Process.Pid))
	if err != nil {
		tb.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		tb.Fatal(err)
	}
	return float64(resident*os.Getpagesize()) / 1e6
}
