package network

import "weir/sim/event"

// A full Ethernet frame, in bytes.
const (
	FullFrame = 14 + 1500                           // as it is queued: header and IP packet
	FullLine  = FullFrame + crcBytes + betweenBytes // as a line carries it
)

const (
	leastFrame   = 60     // Ethernet pads shorter frames (IEEE 802.3, 3.2.8), CRC apart
	betweenBytes = 8 + 12 // preamble and start delimiter, gap between frames
	crcBytes     = 4
	bitNs        = 8 * 1e9 // a byte takes bitNs/rate nanoseconds
)

// line is a bit rate and how long it is taken, exactly: until free + rest/rate nanoseconds. The rest is
// carried from packet to packet, so that a line that is busy for long does not drift.
type line struct {
	rate int64 // bit/s, above 0
	free event.Time
	rest int64 // 0 .. rate-1
	// What the last size of packet took: nearly all have the same two or three sizes.
	bytes int32
	bare  bool // a packet takes just its own bytes; else padding, preamble, CRC and gap as well
	whole event.Time
	part  int64
}

func newLine(rate int64, bare bool) line { return line{rate: rate, bare: bare, bytes: -1} }

// take holds the line for a packet that is ready at the time from. It returns when its last bit has
// left, rounded down to a nanosecond. bytes is at most 2^30.
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

// bucket is a token bucket that delays (never drops), as the virtual scheduling of ITU-T I.371 has it:
// full is when it would be full again, so that at a time t before that it lacks (full - t) * rate.
type bucket struct {
	full  line
	depth event.Time // what it holds, as the time in which it fills
}

// start is when a packet may begin that is ready at the time from, and takes its tokens. A packet
// larger than the bucket needs a full one.
func (b *bucket) start(from event.Time, bytes int32) event.Time {
	if bytes != b.full.bytes {
		b.full.measure(bytes)
	}
	need := b.full.whole
	if b.full.part > 0 {
		need++
	}
	lacks := need - max(b.depth, need) // 0 or less: by so much the bucket may be short of full
	if b.full.rest > 0 {
		lacks++
	}
	at := max(from, b.full.free+lacks)
	b.full.take(at, bytes)
	return at
}
