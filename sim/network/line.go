package network

import "weir/sim/event"

// A full Ethernet frame, in bytes.
const (
	FullFrame = 14 + 1500                           // in a buffer: header and IP packet
	FullLine  = FullFrame + crcBytes + betweenBytes // on a line
)

const (
	leastFrame   = 60     // Ethernet pads shorter frames (IEEE 802.3, 3.2.8), without the CRC
	betweenBytes = 8 + 12 // preamble and start delimiter, gap between frames
	crcBytes     = 4
	bitNs        = 8 * 1e9 // a byte takes bitNs/rate nanoseconds
)

// line is a bit rate and the exact time until which it is busy: free + rest/rate nanoseconds. The rest is carried from
// packet to packet, so that a line that is busy for long does not drift.
type line struct {
	rate int64 // bit/s, above 0
	free event.Time
	rest int64 // 0 .. rate-1
	// The time of the last size of packet: nearly all packets have the same two or three sizes.
	bytes int32
	bare  bool // a packet takes only its own bytes; else padding, preamble, CRC and gap too
	whole event.Time
	part  int64
}

func newLine(rate int64, bare bool) line { return line{rate: rate, bare: bare, bytes: -1} }

// take occupies the line for a packet that is ready at the time from. It returns when the last bit has left, rounded
// down to a nanosecond. bytes is at most 2^30.
func (l *line) take(from event.Time, bytes int32) event.Time {
	if l.free < from {
		l.free, l.rest = from, 0
	}
	if bytes != l.bytes {
		l.measure(bytes)
	}
	l.free += l.whole
	l.rest += l.part
	if l.rest >= l.rate {
		l.rest -= l.rate
		l.free++
	}
	return l.free
}

func (l *line) measure(bytes int32) {
	l.bytes = bytes
	wire := int64(bytes)
	if !l.bare {
		wire = max(wire, leastFrame) + crcBytes + betweenBytes
	}
	l.whole, l.part = event.Time(wire*bitNs/l.rate), wire*bitNs%l.rate
}

// bucket is a token bucket that delays and never drops, as virtual scheduling in ITU-T I.371. full is when it would be
// full again: at an earlier time t it lacks (full - t) * rate.
type bucket struct {
	full  line
	depth event.Time // its size, as the time in which it fills
}

// start takes the tokens of a packet that is ready at the time from, and returns when it may begin. A packet larger
// than the bucket needs a full one.
func (b *bucket) start(from event.Time, bytes int32) event.Time {
	if bytes != b.full.bytes {
		b.full.measure(bytes)
	}
	need := b.full.whole
	if b.full.part > 0 {
		need++
	}
	lacks := need - max(b.depth, need) // 0 or less: by how much the bucket may be short of full
	if b.full.rest > 0 {
		lacks++
	}
	at := max(from, b.full.free+lacks)
	b.full.take(at, bytes)
	return at
}
