package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// smallQueue limits the data that a connection has in its host's NIC (Linux: TCP Small Queues). A sender whose own line
// is the bottleneck then does not fill the NIC with its window, and drops nothing in its own host.
type smallQueue struct {
	event event.Event
	nic   *network.Port // nil: no limit
	first uint32        // number of the first segment that may still be in the NIC

	count *nicCount // of a served NIC; nil: none so far
}

// nicCount counts the data of a connection in a served NIC. Such a NIC cannot predict when a segment will leave:
// Network.Left reports it then.
type nicCount struct {
	queued int64 // bytes of data that have not left
	resume int64 // waiting: sending continues when queued has fallen to this
	waits  bool
}

// Constants of Linux's small queues.
const (
	gsoSegments   = 2  // tcp_min_tso_segs
	pacingShift   = 10 // sk_pacing_shift: 1/1024 s of the pacing rate
	tsoRTTShift   = 9  // tcp_tso_rtt_log: each 512 us of RTT halve the addition to a burst
	pacingInStart = 200
	pacingElse    = 120 // percent of cwnd per RTT
)

// burst returns the largest packet that Linux gives the NIC at once, bytes (tcp_tso_autosize): a millisecond at the
// pacing rate, and up to 64 KiB if the RTT is short.
func (e *Endpoint) burst() int64 {
	bytes := int64(0)
	if srtt := e.rtt.smoothed(); srtt > 0 {
		percent := int64(pacingElse)
		if e.win.Cwnd < e.win.Ssthresh/2 {
			percent = pacingInStart
		}
		window := int64(max(e.win.Cwnd, e.board.len())) * int64(e.mss)
		bytes = min(gsoMaxBytes, window*percent/100*int64(event.Second>>pacingShift)/int64(srtt))
	}
	if shift := e.rtt.least / event.Microsecond >> tsoRTTShift; shift < 32 {
		bytes += gsoMaxBytes >> shift
	}
	return max(min(bytes, gsoMaxBytes), gsoSegments*int64(e.mss))
}

// throttled reports whether the NIC has enough data of this connection: two bursts (tcp_small_queue_check). Sending
// continues when one of them has left.
func (e *Endpoint) throttled(now event.Time) bool {
	q := &e.small
	if q.nic == nil {
		return false
	}
	if q.nic.Served() {
		return e.throttledByCount()
	}
	if before(q.first, e.board.head) {
		q.first = e.board.head
	}
	for q.first != e.board.tail && e.board.at(q.first).leaves <= now {
		q.first++
	}
	if q.first == e.board.tail || e.board.len() <= 1 {
		return false
	}
	from := e.board.at(q.first).seq
	queued := int64(e.nxt - from)
	if queued <= 2*gsoSegments*int64(e.mss) {
		return false
	}
	burst := e.burst()
	if queued <= 2*burst {
		return false
	}
	n := q.first
	for n != e.board.tail-1 && int64(e.board.at(n).end()-from) < burst {
		n++
	}
	if !q.event.Pending() {
		// A retransmitted segment may leave after its successors.
		e.stack.Queue.Set(&q.event, max(e.board.at(n).leaves, e.board.at(q.first).leaves))
	}
	return true
}

// throttledByCount is throttled for a NIC that is a served port.
func (e *Endpoint) throttledByCount() bool {
	q := e.counting()
	if e.board.len() <= 1 || q.queued <= 2*gsoSegments*int64(e.mss) {
		return false
	}
	burst := e.burst()
	if q.queued <= 2*burst {
		return false
	}
	q.resume, q.waits = q.queued-burst, true
	return true
}

// counting returns the count for a NIC that is a served port. If the NIC became one during the connection, the count
// begins with the data that had not left by then.
func (e *Endpoint) counting() *nicCount {
	if e.small.count == nil {
		c := &nicCount{}
		e.small.count = c
		since := e.small.nic.ServedSince()
		for n := e.board.head; n != e.board.tail; n++ {
			if s := e.board.at(n); s.leaves > since {
				c.queued += int64(s.end() - s.seq)
			}
		}
	}
	return e.small.count
}

// left implements Network.Left.
func (s *Stack) left(pk *network.Packet) {
	if pk.Proto() != network.TCP || pk.Payload() == 0 || int(pk.Conn()) >= len(s.conns) {
		return
	}
	side := 1
	if pk.ToAcceptor() {
		side = 0
	}
	e := s.conns[pk.Conn()].ends[side]
	if e == nil || e.small.nic == nil || !e.small.nic.Served() {
		return
	}
	q := e.counting()
	q.queued = max(0, q.queued-int64(pk.Payload()))
	if q.waits && q.queued <= q.resume {
		q.waits = false
		if !e.small.event.Pending() {
			s.Queue.Set(&e.small.event, s.Queue.Now()) // not at once: the network is still processing the packet
		}
	}
}

// entering counts the data bytes of a segment that is about to be sent by a NIC that is a served port.
func (e *Endpoint) entering(bytes uint32) {
	if e.small.nic != nil && e.small.nic.Served() {
		e.counting().queued += int64(bytes)
	}
}

// leaving notes when the segment that was just sent will have left the NIC.
func (e *Endpoint) leaving(s *segment) {
	if e.small.nic != nil && !e.small.nic.Served() {
		s.leaves = e.small.nic.FreeAt()
	}
}

// smallQueueTimer is the event of smallQueue.
type smallQueueTimer Endpoint

// Happen continues to send.
func (t *smallQueueTimer) Happen(_ *event.Event, now event.Time) {
	e := (*Endpoint)(t)
	e.push(now, false)
}
