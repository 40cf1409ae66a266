package channel

import (
	"sync/atomic"
	"time"

	"weir/openflow"
)

// Types is the number of counted message types; the last one is for types that OpenFlow 1.3 does not have.
const Types = 32

func slot(t openflow.Type) int { return int(min(t, Types-1)) }

// counters are written by the reading goroutine and read by anybody.
type counters struct {
	in    [Types]atomic.Uint64
	bytes atomic.Uint64

	packetIns, strange, undecodable, unknown, pauses atomic.Uint64
}

// RTT holds the times of echo requests. They include the work that either side did first.
type RTT struct {
	Last, Smooth, Least time.Duration // Smooth moves by an eighth, as TCP's
	Count               uint64
}

// Stats holds a connection's figures since it was made.
type Stats struct {
	Since             time.Time
	In, Out           [Types]uint64 // messages by openflow.Type
	BytesIn, BytesOut uint64        // without the overhead of TLS
	RTT               RTT

	PacketInsDropped uint64 // above the rate
	Strange          uint64 // answers without an open question
	Undecodable      uint64 // messages that the codec refused
	Unknown          uint64 // messages that a switch does not send
	Pauses           uint64 // times that reading waited because of a rate
	Refused          uint64 // messages that found no room in the queue

	QueuedBytes, QueuedMessages int // encoded and not yet in the kernel's buffer
	Outstanding                 int // questions without an answer
	Role                        openflow.Role
	Generation                  uint64 // of the last request for a role
}

// Stats returns the figures now.
func (c *Conn) Stats() Stats {
	s := Stats{
		Since: c.since, BytesIn: c.count.bytes.Load(), PacketInsDropped: c.count.packetIns.Load(),
		Strange: c.count.strange.Load(), Undecodable: c.count.undecodable.Load(), Unknown: c.count.unknown.Load(),
		Pauses: c.count.pauses.Load(),
	}
	for i := range s.In {
		s.In[i] = c.count.in[i].Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Out, s.BytesOut, s.Refused = c.out.types, c.out.bytes, c.out.refused
	s.QueuedBytes, s.QueuedMessages = len(c.out.buf)+c.out.flight, c.out.messages+c.out.flightN
	s.Outstanding, s.Role, s.Generation, s.RTT = c.asked, c.role, c.generation, c.rtt
	return s
}

func (c *Conn) measured(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.rtt
	if r.Count++; r.Count == 1 {
		r.Smooth, r.Least = d, d
	}
	r.Last, r.Least = d, min(r.Least, d)
	r.Smooth += (d - r.Smooth) / 8
}
