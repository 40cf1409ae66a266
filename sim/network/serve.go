package network

import (
	"weir/experiment"
	"weir/sim/event"
)

// Shared is a buffer that all ports of a switch share, with dynamic thresholds (Choudhury and Hahne, IEEE/ACM ToN 6(2),
// 1998): a queue may be as long as Num/Den times the free memory.
type Shared struct {
	Bytes    int64 // of the whole buffer
	Num, Den int64 // the factor alpha, each 1 or more
}

// sharedBuffer is the memory of one switch.
type sharedBuffer struct {
	Shared
	used int64
}

// admits reports whether a packet may join a queue of that length. It may not if the queue has reached its threshold,
// or if the memory has no room.
func (s *sharedBuffer) admits(queue, bytes int64) bool {
	free := s.Bytes - s.used
	return bytes <= free && queue*s.Den < free*s.Num
}

// server is the state of a port that decides only at the time of sending what it sends next.
type server struct {
	p       *Port
	done    event.Event // the packet on the line has left
	now     *Packet     // that packet; nil: idle
	packets int64       // in the buffer, including that one
	used    uint8       // bit i: queues[i] is not empty
	queues  [Priorities]queue
	shared  *sharedBuffer // nil: the port's own buffer
	nic     bool          // hosts may send by this port
	since   event.Time    // when the port became a served one

	limit     *limit    // nil: the line alone
	most      int64     // bytes of one priority that may wait; 0: as many as the port has room for
	scheduler Scheduler // nil: strict priorities, and the last to come is dropped
	tapped    uint32    // how many packets the tap has seen, when the port was a FIFO
}

// queue is the packets of one priority. The packet on the line counts in bytes, as in every buffer.
type queue struct {
	first, last *Packet
	bytes       int64
}

func newServer(p *Port, shared *sharedBuffer) *server {
	kind := p.net.nodes[p.Node].kind
	s := &server{p: p, shared: shared, since: p.net.Queue.Now(), nic: kind == experiment.Guest || kind == experiment.Hypervisor && p.peer.kind == experiment.Switch}
	s.done.Init(s)
	return s
}

// sendOther is Send for a port that is up and not a FIFO.
func (p *Port) sendOther(pk *Packet, now event.Time) {
	if p.kind == served {
		p.server.send(pk, now)
		return
	}
	if p.law != nil && !p.obey(pk, now) {
		return
	}
	p.countMark(pk, 1)
	p.leave(pk)
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

func (s *server) send(pk *Packet, now event.Time) {
	p := s.p
	s.catchUp(now)
	if p.law != nil && !p.obey(pk, now) {
		return
	}
	if !s.fits(pk) && (s.scheduler == nil || !s.makeRoom(pk, now)) {
		p.overflow(pk, now)
		return
	}
	p.countMark(pk, 1)
	bytes := int64(pk.bytes)
	if s.shared != nil {
		s.shared.used += bytes
	}
	p.backlog += bytes
	s.packets++
	s.queues[pk.priority%Priorities].bytes += bytes
	s.queue(pk)
	if s.now == nil {
		s.begin(now)
	}
	if s.scheduler != nil {
		p.net.settle()
	}
}

// catchUp has the packet on the line leave if its time has come but its event comes after this one.
func (s *server) catchUp(now event.Time) {
	if s.now != nil && s.done.At() <= now {
		s.Happen(&s.done, now)
	}
}

// fits reports whether the buffer has room for pk.
func (s *server) fits(pk *Packet) bool {
	bytes := int64(pk.bytes)
	if s.shared != nil {
		return s.shared.admits(s.queues[pk.priority%Priorities].bytes, bytes)
	}
	if s.most > 0 && s.queues[pk.priority%Priorities].bytes+bytes > s.most {
		return false
	}
	return s.p.backlog+bytes <= s.p.bytes && s.packets < s.p.packets
}

// queue appends pk to the packets of its priority.
func (s *server) queue(pk *Packet) {
	level := pk.priority % Priorities
	q := &s.queues[level]
	pk.next = nil
	if q.first == nil {
		q.first = pk
		s.used |= 1 << level
	} else {
		q.last.next = pk
	}
	q.last = pk
}

// begin puts the next packet, if there is one, on the line.
func (s *server) begin(now event.Time) {
	if s.used != 0 {
		s.now = s.next(now)
		s.start(now)
		if s.scheduler != nil {
			s.p.net.settle()
		}
	}
}

// start has the packet s.now begin as soon as line and bucket allow it.
func (s *server) start(now event.Time) {
	p, pk := s.p, s.now
	if p.bucket != nil {
		now = p.bucket.start(max(now, p.line.free), pk.bytes)
	} else if s.limit != nil {
		now = s.limit.begin(s, max(now, p.line.free), pk.bytes)
	}
	p.net.Queue.Set(&s.done, p.line.take(now, pk.bytes))
}

// Happen is called when the packet on the line has left the buffer and is on its way.
func (s *server) Happen(_ *event.Event, now event.Time) {
	pk, p := s.now, s.p
	s.now = nil
	p.net.Queue.Stop(&s.done)
	s.remove(pk)
	p.leave(pk)
	leaves := now
	if p.jitter != nil {
		leaves = p.jitter.leaves(now)
	}
	tap := p.tap
	if s.tapped > 0 {
		s.tapped--
		p.tap = nil
	}
	p.push(pk, leaves)
	p.left, p.tap = p.end, tap
	s.begin(now)
	if s.nic && p.net.Left != nil && p.net.NIC(pk.src) == p {
		p.net.Left(pk)
	}
}

// remove subtracts a packet's bytes from the buffer.
func (s *server) remove(pk *Packet) {
	bytes := int64(pk.bytes)
	s.packets--
	s.p.backlog -= bytes
	s.queues[pk.priority%Priorities].bytes -= bytes
	if s.shared != nil {
		s.shared.used -= bytes
	}
}

// flush drops all packets that have not left.
func (s *server) flush(now event.Time) {
	s.catchUp(now)
	if s.now != nil {
		s.undo(now) // a packet that has not begun gives its tokens back
	}
	s.p.net.Queue.Stop(&s.done)
	s.p.idle(now)
	lose := func(pk *Packet) {
		s.remove(pk)
		s.p.countMark(pk, -1)
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
	s.used, s.tapped = 0, 0
}
