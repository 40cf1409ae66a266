package controller

import (
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
)

// BenchmarkFrame is the controller's own work for a packet of 60 bytes that a switch sent: queued, taken in turn, handed to
// two laws that do nothing.
func BenchmarkFrame(b *testing.B) {
	c := newCore(newFence(nil, 1, nil), nil, namedLaw{name: "one", Law: saying{}}, namedLaw{name: "two", Law: saying{}})
	s := &session{id: 1}
	c.sessions[1] = s
	frame := make([]byte, 60)
	b.ReportAllocs()
	for b.Loop() {
		c.turns.may(s, fabric.PacketIn{At: law.Port{Switch: 1, N: 1}, Kind: fabric.SYN, Frame: frame})
		s, e, _ := c.turns.next()
		begun := time.Now()
		c.take(event{s, e})
		c.turns.spent(s, e, time.Since(begun))
	}
}
