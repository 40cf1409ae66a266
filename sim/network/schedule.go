package network

import (
	"iter"
	"math/bits"

	"weir/sim/event"
)

// Scheduler is a law that decides about order and drops at its port. The port becomes a served port.
type Scheduler interface {
	Law
	// Victim is called while pk does not fit. It returns a packet of p.Waiting to drop for it; pk itself, or nil, drops
	// pk.
	Victim(p *Port, pk *Packet, now event.Time) *Packet
	// Next is called when the line is free and packets wait. It returns the packet of p.Waiting to send. nil leaves the
	// choice to the port, which sends the first of the highest priority.
	Next(p *Port, now event.Time) *Packet
}

// Waiting returns the packets of a served port that wait for its line. The highest priority is first, and within a
// priority they are in order of arrival. Their Priority and Bytes must not change.
func (p *Port) Waiting() iter.Seq[*Packet] {
	return func(yield func(*Packet) bool) {
		if p.server == nil {
			return
		}
		for level := Priorities - 1; level >= 0; level-- {
			for pk := p.server.queues[level].first; pk != nil; pk = pk.next {
				if !yield(pk) {
					return
				}
			}
		}
	}
}

// setScheduler finds the Scheduler among the port's laws. It panics if there are two.
func (p *Port) setScheduler() {
	var found Scheduler
	for _, l := range p.Laws() {
		if s, ok := l.(Scheduler); ok {
			if found != nil {
				panic("network: two laws decide about order and drop at " + p.Name)
			}
			found = s
		}
	}
	if found != nil {
		p.serve(p.net.Queue.Now())
	}
	if p.server != nil {
		p.server.scheduler = found
	}
}

// next unlinks the packet to send; there must be one.
func (s *server) next(now event.Time) *Packet {
	if s.scheduler != nil {
		s.p.net.asking++
		pk := s.scheduler.Next(s.p, now)
		s.p.net.asking--
		if pk != nil {
			s.unlink(pk)
			return pk
		}
	}
	level := bits.Len8(s.used) - 1
	q := &s.queues[level]
	pk := q.first
	if q.first = pk.next; q.first == nil {
		s.used &^= 1 << level
	}
	pk.next = nil
	return pk
}

// unlink removes a packet that a law chose from its queue. It panics if the packet is not there.
func (s *server) unlink(pk *Packet) {
	level := pk.priority % Priorities
	q := &s.queues[level]
	var before *Packet
	at := q.first
	for at != pk {
		if at == nil {
			panic("network: a law chose a packet that is not waiting in " + s.p.Name)
		}
		before, at = at, at.next
	}
	if before == nil {
		q.first = pk.next
	} else {
		before.next = pk.next
	}
	if q.last == pk {
		q.last = before
	}
	if q.first == nil {
		s.used &^= 1 << level
	}
	pk.next = nil
}

// makeRoom drops the packets that the scheduler chooses until pk fits. It returns false if pk must be dropped.
func (s *server) makeRoom(pk *Packet, now event.Time) bool {
	n := s.p.net
	n.asking++ // packets that laws inject meanwhile go behind pk
	defer func() { n.asking-- }()
	for !s.fits(pk) {
		victim := s.scheduler.Victim(s.p, pk, now)
		if victim == nil || victim == pk {
			return false
		}
		s.unlink(victim)
		s.remove(victim)
		s.p.countMark(victim, -1)
		s.p.overflow(victim, now)
	}
	return true
}
