package poll

import (
	"testing"

	"weir/law"
	"weir/law/fabric"
)

// BenchmarkAnswer measures a question to one switch and its answer with 48 ports.
func BenchmarkAnswer(b *testing.B) {
	l := New(ms)
	l.Step(0, &fabric.Joined{Switch: 1000}, nil)
	e := &fabric.PortStats{Switch: 1000, Ports: make([]fabric.Counters, 48)}
	var out []law.Action
	b.ReportAllocs()
	for b.Loop() {
		out = l.Step(l.Wake(), law.Tick{}, out[:0])
		out = l.Step(l.Wake()-1, e, out[:0])
	}
}
