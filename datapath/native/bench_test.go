//go:build cgo

package native_test

import (
	"testing"

	"weir/datapath/native"
)

// BenchmarkFairQ times one call from Go into the law, and its ratio to baseline_call: the call that does the
// least, which is the cost of cgo.
func BenchmarkFairQ(b *testing.B) {
	baselineNs := 0.0
	run := func(name string, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			f(b)
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if name == "baseline_call" {
				baselineNs = ns
			}
			if baselineNs > 0 {
				b.ReportMetric(ns/baselineNs, "baselines")
			}
		})
	}
	c := config()
	c.SlowStart = native.SlowStartOff
	run("baseline_call", func(b *testing.B) {
		q := newQueue(b, c, 16)
		for b.Loop() {
			q.SawMSS(0)
		}
	})
	run("sample", func(b *testing.B) {
		c.PeriodNs = 1 << 30 // never updates
		q := newQueue(b, c, 16)
		for b.Loop() {
			q.now++
			q.Sample(q.now, target)
		}
	})
	run("sample_and_update", func(b *testing.B) {
		c.PeriodNs = tickNs
		q := newQueue(b, c, 16)
		for b.Loop() {
			q.tick(uint32(q.now) % buffer)
		}
	})
	run("flow_added_and_removed", func(b *testing.B) {
		q := newQueue(b, c, 16)
		for b.Loop() {
			q.FlowAdded(q.now)
			q.FlowRemoved()
		}
	})
	run("window_no_call", func(b *testing.B) {
		q := newQueue(b, c, 16)
		sum := uint64(0)
		for b.Loop() {
			sum += q.WindowQ8()
		}
		if sum == 0 {
			b.Fatal("no window")
		}
	})
	run("window_rewrite", func(b *testing.B) {
		ack := native.WindowAck{WindowQ8: target << 8, FloorBytes: 1460, Field: 512, Shift: 7}
		var edge native.WindowEdge
		for b.Loop() {
			ack.Ack++
			native.WindowRewrite(&ack, &edge)
		}
	})
}
