package record

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weir/law"
	"weir/law/telemetry"
)

// BenchmarkEvent compares what an event costs the laws' goroutine: in the format, as a line of JSON, and as a copy for another
// goroutine. The report is of a switch with so many busy ports, and is answered by 8 grants.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{1, 8, 48} {
		e := &telemetry.Telemetry{At: 1, T: time.Millisecond}
		for i := range n {
			e.Ports = append(e.Ports, telemetry.Port{N: uint32(i), BacklogBytes: 83_000, PeakBytes: 99_000, Packets: 812, Bytes: 1_200_000, SentBytes: 1_190_000})
		}
		var out []law.Action
		for i := range 8 {
			out = append(out, law.Grant{Key: law.Key{Pair: law.Pair{VM: law.VM(i + 1), Peer: vmAddress(i)}}, Value: 1, Lease: time.Second, Cause: 77})
		}
		b.Run(fmt.Sprintf("recording/%d", n), func(b *testing.B) {
			w, err := New(Config{Path: b.TempDir() + "/rec"})
			if err != nil {
				b.Fatal(err)
			}
			l, serial, room := w.Tap(&always{out}, "sicc", 0, nil), uint64(0), make([]law.Action, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				serial++
				w.Cause(serial)
				room = l.Step(1e9, e, room[:0])
			}
			b.ReportMetric(float64(w.whole.Len()), "B/event")
			b.ReportMetric(100*float64(w.Status().Lost)/float64(serial), "%lost")
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(fmt.Sprintf("json/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				line, err := json.Marshal((&Entry{Serial: 1, Now: 1e9, Event: Item[law.Event]{Value: e}, Steps: []Step{{Law: 1, Actions: wrapped(out)}}}).Plain())
				if err != nil {
					b.Fatal(err)
				}
				size = len(line)
			}
			b.ReportMetric(float64(size), "B/event")
		})
		b.Run(fmt.Sprintf("copy/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = law.Own(e), law.Own(out)
			}
		})
	}
}

func wrapped(list []law.Action) (out []Item[law.Action]) {
	for _, a := range list {
		out = append(out, Item[law.Action]{Value: a})
	}
	return out
}
