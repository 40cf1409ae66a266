package network

import (
	"fmt"
	"testing"

	"weir/law"
	"weir/sim/event"
)

// back has the receiver of a packet send the next one by the same port, so that the queue keeps its length.
type back struct {
	port *Port
	left int
}

func (b *back) Deliver(_ NodeID, pk *Packet, _ event.Time) {
	n := b.port.net
	n.Free(pk)
	if b.left--; b.left == 0 {
		n.Queue.Halt()
	}
	next := n.NewPacket()
	next.src, next.dst, next.bytes = 1, 2, 1514
	b.port.Send(next)
}

// BenchmarkHop is one packet through one port: from the pool, queued, sent, arrived, back to the pool. Its cost should
// not depend on the queue's length.
func BenchmarkHop(b *testing.B) {
	for _, c := range []struct {
		name string
		o    Options
	}{{"fifo", Options{}}, {"priorities", Options{Priorities: true}}, {"shared", Options{Shared: &Shared{Bytes: 1 << 40, Num: 1, Den: 1}}}} {
		for _, queued := range []int{10, 1000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, queued), func(b *testing.B) {
				n, _ := build(b, pair(10e9, 10_000, law.Limit{N: 1 << 40}), c.o)
				p := n.PortByName("switch->b")
				sink := &back{port: p, left: -1}
				n.Sink = sink
				for range queued {
					p.Send(n.packet(1, 2, 1514, 0))
				}
				n.Queue.Run(event.Millisecond)
				sink.left = b.N
				b.ReportAllocs()
				b.ResetTimer()
				n.Queue.Run(1 << 60)
			})
		}
	}
}

// BenchmarkBuild builds the network of a fat tree with k=16: 1024 hosts with hypervisors, 320 switches.
func BenchmarkBuild(b *testing.B) {
	g := fatTree(16, true)
	b.ReportAllocs()
	for b.Loop() {
		build(b, g, Options{})
	}
}
