package tcp

import "weir/sim/event"

// Flags of a segment (Linux: TCPCB_*).
const (
	segSacked  uint8 = 1 << iota // SACKED_ACKED: the receiver has it
	segLost                      // LOST
	segRetrans                   // SACKED_RETRANS: retransmitted, and that copy may be in flight
	segEver                      // EVER_RETRANS: sent more than once (Karn)
	segFIN                       // its last byte is the FIN
)

// segment is the record of data that was sent and not acknowledged.
type segment struct {
	sent   event.Time // last transmission
	leaves event.Time // when that will have left the NIC; 0: not known (smallQueue)
	seq    uint32
	bytes  uint32 // of sequence space: payload, and 1 for a FIN
	order  uint32 // number of the last transmission among all of this end
	flags  uint8
}

func (s *segment) end() uint32 { return s.seq + s.bytes }

// scoreboard has the segments in flight, in the order of their sequence numbers. A segment's number counts from 0 for
// the first ever sent, modulo 2^32. Without loss a segment costs one push and one pop.
type scoreboard struct {
	ring       []segment // a power of two
	head, tail uint32    // numbers: of the segment at SND.UNA, and of the next one
}

// Limits of a scoreboard.
const (
	firstSegments = 16
	maxSegments   = 1 << 20
)

// len returns packets_out.
func (b *scoreboard) len() uint32 { return b.tail - b.head }

// at returns segment n, which is in flight. The pointer is valid until the next push.
func (b *scoreboard) at(n uint32) *segment { return &b.ring[n&uint32(len(b.ring)-1)] }

// push adds a record after the last.
func (b *scoreboard) push() *segment {
	if b.len() == uint32(len(b.ring)) {
		b.grow()
	}
	s := b.at(b.tail)
	b.tail++
	return s
}

func (b *scoreboard) grow() {
	ring := make([]segment, max(firstSegments, 2*len(b.ring)))
	for n := b.head; n != b.tail; n++ {
		ring[n&uint32(len(ring)-1)] = *b.at(n)
	}
	b.ring = ring
}

// find returns the number of the first segment that ends after seq, or tail if there is none.
func (b *scoreboard) find(seq uint32) uint32 {
	low, high := b.head, b.tail
	for low != high {
		mid := low + (high-low)/2
		if after(b.at(mid).end(), seq) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// copyOf is a retransmission. They are kept in the order in which they were made.
type copyOf struct{ number, order uint32 }

// copies is a queue of retransmissions. A retransmission that was acknowledged, or replaced by a later copy of its
// segment, stays until it comes to the front.
type copies struct {
	ring       []copyOf // a power of two
	head, tail uint32
}

func (c *copies) push(n, order uint32) {
	if c.tail-c.head == uint32(len(c.ring)) {
		ring := make([]copyOf, max(firstSegments, 2*len(c.ring)))
		for i := c.head; i != c.tail; i++ {
			ring[i&uint32(len(ring)-1)] = c.ring[i&uint32(len(c.ring)-1)]
		}
		c.ring = ring
	}
	c.ring[c.tail&uint32(len(c.ring)-1)] = copyOf{n, order}
	c.tail++
}

// before and after compare sequence numbers, and other 32-bit numbers that wrap (RFC 9293 3.4).
func before(a, b uint32) bool { return int32(a-b) < 0 }
func after(a, b uint32) bool  { return int32(b-a) < 0 }
