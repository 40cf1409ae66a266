package network

import (
	"math/bits"

	"weir/sim/event"
)

// Shared is a buffer that all ports of a switch share, with dynamic thresholds (Choudhury and Hahne,
// IEEE/ACM ToN 6(2), 1998): a queue may be as long as Num/Den times what is free at the moment.
type Shared struct {
	Bytes    int64 // of the whole buffer
	Num, Den int64 // the factor alpha, each 1 or more
}

// sharedBuffer is the memory of one switch.
type sharedBuffer struct {
	Shared
	used int64
}

// admits tells whether a packet may join a queue of that length: not when the queue has reached its
// threshold, nor when the memory does not hold it.
func (s *sharedBuffer) admits(queue, bytes int64) bool {
	free := s.Bytes - s.used
	return bytes <= free && queue*s.Den < free*s.Num
}

// server is what a port has that knows only when it sends what it sends next.
type server struct {
	p       *Port
	done    event.Event // the packet on the line has left
	now     *Packet     // that packet; nil: idle
	packets int64       // in the buffer, that one too
	used    uint8       // bit i: queues[i] is not empty
	queues  [Priorities]queue
	shared  *sharedBuffer // nil: the port's own buffer
}

// queue is the packets of one priority. What is on the line counts in bytes, as in every buffer.
type queue struct {
	first, last *Packet
	bytes       int64
}

func newServer(p *Port, shared *sharedBuffer) *server {
	s := &server{p: p, shared: shared}
	s.done.Init(s)
	return s
}

// sendOther is Send of a port that is up and no FIFO.
func (p *Port) sendOther(pk *Packet, l Law, now event.Time) {
	if p.kind == served {
		p.server.send(pk, l, now)
		return
	}
	if l != nil && !p.obey(pk, l, now) {
		return
	}
	p.sent.add(pk)
	if p.net.places[pk.src].hypervisor == p.Node {
		p.push(pk, p.line.take(now, pk.bytes))
		p.left = p.end
		return
	}
	if p.tap != nil {
		p.tap(pk, now)
	}
	p.arrive(pk, now)
}

func (s *server) send(pk *Packet, l Law, now event.Time) {
	p := s.p
	if s.now != nil && s.done.At() <= now { // its event stands behind this one
		s.Happen(&s.done, now)
	}
	if l != nil && !p.obey(pk, l, now) {
		return
	}
	q := &s.queues[pk.priority%Priorities]
	bytes := int64(pk.bytes)
	if s.shared != nil {
		if !s.shared.admits(q.bytes, bytes) {
			p.overflow(pk, now)
			return
		}
		s.shared.used += bytes
	} else if p.backlog+bytes > p.bytes || s.packets >= p.packets {
		p.overflow(pk, now)
		return
	}
	p.backlog += bytes
	s.packets++
	q.bytes += bytes
	pk.next = nil
	if q.first == nil {
		q.first = pk
		s.used |= 1 << (pk.priority % Priorities)
	} else {
		q.last.next = pk
	}
	q.last = pk
	if s.now == nil {
		s.begin(now)
	}
}

// begin puts the first packet of the highest priority on the line.
func (s *server) begin(now event.Time) {
	level := bits.Len8(s.used) - 1
	if level < 0 {
		return
	}
	q, p := &s.queues[level], s.p
	pk := q.first
	if q.first = pk.next; q.first == nil {
		s.used &^= 1 << level
	}
	pk.next = nil
	s.now = pk
	if p.bucket != nil {
		now = p.bucket.start(max(now, p.line.free), pk.bytes)
	}
	p.net.Queue.Set(&s.done, p.line.take(now, pk.bytes))
}

// Happen: the packet on the line has left the buffer and is on its way.
func (s *server) Happen(_ *event.Event, now event.Time) {
	pk, p := s.now, s.p
	s.now = nil
	p.net.Queue.Stop(&s.done)
	s.remove(pk)
	p.sent.add(pk)
	p.push(pk, now)
	p.left = p.end
	s.begin(now)
}

// remove takes a packet's bytes out of the buffer.
func (s *server) remove(pk *Packet) {
	bytes := int64(pk.bytes)
	s.packets--
	s.p.backlog -= bytes
	s.queues[pk.priority%Priorities].bytes -= bytes
	if s.shared != nil {
		s.shared.used -= bytes
	}
}

// flush drops all that has not left.
func (s *server) flush(now event.Time) {
	if s.now != nil && s.done.At() <= now {
		s.Happen(&s.done, now)
	}
	s.p.net.Queue.Stop(&s.done)
	s.p.idle(now)
	lose := func(pk *Packet) {
		s.remove(pk)
		s.p.drop(pk, DropDown, now)
	}
	if pk := s.now; pk != nil {
		s.now = nil
		lose(pk)
	}
	for i := range s.queues {
		for q := &s.queues[i]; q.first != nil; {
			pk := q.first
			q.first = pk.next
			lose(pk)
		}
	}
	s.used = 0
}
