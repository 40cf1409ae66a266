package network

import (
	"fmt"

	"weir/law"
	"weir/sim/event"
)

// byteUnits is a byte in the unit of a limit's tokens: the tokens of 1 bit/s in 1 ns.
const byteUnits = 8e9

// mostBucket is the largest token bucket, in bytes: twice that in units fits in an int64.
const mostBucket = 1 << 29

// limit is a token bucket before the line of a served port, whose rate may change while packets wait. It acts when a
// packet is next to be sent; Shape's bucket acts when it is queued. It counts exactly, so that a change of the rate
// makes or loses no token.
type limit struct {
	rate int64 // bit/s, above 0
	full int64 // size of the bucket, units
	have int64 // tokens at the time at, units; below 0 after a frame that is larger than the bucket
	at   event.Time

	// State that a change must undo while the next packet waits for tokens.
	start  event.Time // of that packet, or the last one
	before struct {
		have int64
		at   event.Time
		line line
	}
}

// fill adds the tokens up to now.
func (l *limit) fill(now event.Time) {
	if now <= l.at {
		return
	}
	lacks, gone := l.full-l.have, int64(now-l.at)
	if gone > lacks/l.rate {
		l.have = l.full
	} else {
		l.have += gone * l.rate
	}
	l.at = now
}

// take takes the tokens of a frame that is ready at the time from, and returns the first nanosecond at which they are
// there. A frame larger than the bucket needs a full one.
func (l *limit) take(from event.Time, bytes int32) event.Time {
	l.fill(from)
	need := int64(bytes) * byteUnits
	if lacks := min(need, l.full) - l.have; lacks > 0 {
		wait := (lacks + l.rate - 1) / l.rate
		from += event.Time(wait)
		l.have = min(l.full, l.have+wait*l.rate)
	}
	l.have -= need
	l.at = max(l.at, from)
	return from
}

// begin returns the time at which the server's next packet begins.
func (l *limit) begin(s *server, from event.Time, bytes int32) event.Time {
	l.before.have, l.before.at, l.before.line = l.have, l.at, s.p.line
	l.start = l.take(from, bytes)
	return l.start
}

// SetRate limits the port to a rate from now on, by a token bucket of that many bytes, or of one full frame if that is
// more. A rate of 0 removes the limit. It may be called at any time: waiting packets follow the new rate, and the
// packet on the line finishes at the old one. The first bucket is full. After a change it keeps its tokens, as many as
// fit. It returns an error if rate or bucket is out of range.
//
// The port becomes a served port. A wire gets a NIC's buffer, and a line that takes almost no time. To limit guests on
// a hypervisor, call it before the traffic, with a rate of 0 if need be. Connections that are open when a guest's wire
// becomes a port would still look at the hypervisor's NIC (Network.NIC). SetRate replaces Shape, which is cheaper and
// for a rate that never changes.
func (p *Port) SetRate(rate law.Rate, bucket law.Bytes) error {
	if rate < 0 || rate > maxRate || bucket < 0 || bucket > mostBucket {
		return fmt.Errorf("port %s: rate %v or bucket %v is out of range: 0 to %v, 0B to %v", p.Name, rate, bucket, law.Rate(maxRate), law.Bytes(mostBucket))
	}
	now := p.net.Queue.Now()
	p.serve(now)
	s := p.server
	s.catchUp(now)
	waits := s.now != nil && s.undo(now)
	p.bucket = nil
	switch full := max(int64(bucket), FullFrame) * byteUnits; {
	case rate == 0:
		s.limit = nil
	case s.limit == nil:
		s.limit = &limit{rate: int64(rate), full: full, have: full, at: now}
	default:
		l := s.limit
		l.fill(now)
		l.rate, l.full, l.have = int64(rate), full, min(l.have, full)
	}
	if waits {
		s.start(now)
	}
	return nil
}

// SetQueue limits the bytes of each priority that wait at a served port from now on; 0: only the port's buffer limits
// them. Packets that wait already stay.
func (p *Port) SetQueue(most law.Bytes) { p.server.most = int64(most) }

// Limit returns the values of the last SetRate; 0: no limit.
func (p *Port) Limit() (rate law.Rate, bucket law.Bytes) {
	if p.server == nil || p.server.limit == nil {
		return 0, 0
	}
	l := p.server.limit
	return law.Rate(l.rate), law.Bytes(l.full / byteUnits)
}

// undo returns the tokens and the line time of the next packet if it has not begun, and reports whether it did.
func (s *server) undo(now event.Time) bool {
	l := s.limit
	if l == nil || l.start <= now {
		return false
	}
	l.have, l.at, s.p.line = l.before.have, l.before.at, l.before.line
	s.p.net.Queue.Stop(&s.done)
	return true
}

// serve makes a FIFO or a wire a served port. Packets in a FIFO's buffer stay there. A port with Shape must be idle,
// because its packets have taken their tokens.
func (p *Port) serve(now event.Time) {
	switch p.kind {
	case served:
		return
	case wire:
		free := p.line.free // packets between guests of one hypervisor are on their way
		p.line = newLine(maxRate, p.line.bare)
		p.line.free = free
		p.left = p.end
	case fifo:
		p.drain(now)
		if p.bucket != nil && p.left != p.end {
			panic("network: packets wait in " + p.Name + ", which has a fixed rate (Shape)")
		}
	}
	p.kind, p.server = served, newServer(p, nil)
	s := p.server
	s.tapped = p.end - p.left
	for i := p.left; i != p.end; i++ {
		slot := &p.ring[i&uint32(len(p.ring)-1)]
		s.packets++
		s.queues[slot.pk.priority%Priorities].bytes += int64(slot.pk.bytes)
		if s.now != nil {
			s.queue(slot.pk)
		} else { // it is on the line
			s.now, p.line.free, p.line.rest = slot.pk, slot.leaves, 0
			p.net.Queue.Set(&s.done, slot.leaves)
		}
		slot.pk = nil
	}
	p.end = p.left
	p.resetJitter()
	if p.first == p.end {
		p.net.Queue.Stop(&p.arrival)
	}
}
