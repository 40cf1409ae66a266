package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// smallQueue bounds what a connection has in its host's NIC (Linux: TCP Small Queues). A sender whose own
// line is the bottleneck then does not fill it with its window, and loses nothing in its own host.
type smallQueue struct {
	event event.Event
	nic   *network.Port // nil: not bounded
	first uint32        // number of the first segment that may still be in the NIC
}

// Numbers of Linux's small queues.
const (
	gsoSegments   = 2  // tcp_min_tso_segs
	pacingShift   = 10 // sk_pacing_shift: 1/1024 s of the pacing rate
	tsoRTTShift   = 9  // tcp_tso_rtt_log: a round trip of 512 us halves what is added to a burst
	pacingInStart = 200
	pacingElse    = 120 // percent of cwnd a round trip
)

// burst is the largest packet that Linux gives the NIC at once (tcp_tso_autosize): a millisecond at the
// pacing rate, and where the round trip is short up to 64 KiB.
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

// throttled says whether the NIC holds enough of this connection: two bursts (tcp_small_queue_check). Once one
// of them has left, sending goes on.
func (e *Endpoint) throttled(now event.Time) bool {
	q := &e.small
	if q.nic == nil {
		return false
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
		// What was sent again may leave after what stands behind it.
		e.stack.Queue.Set(&q.event, max(e.board.at(n).leaves, e.board.at(q.first).leaves))
	}
	return true
}

// leaving notes when the segment that was just sent will have left the NIC.
func (e *Endpoint) leaving(s *segment) {
	if e.small.nic != nil {
		s.leaves = e.small.nic.FreeAt()
	}
}

// smallQueueTimer is the event of smallQueue.
type smallQueueTimer Endpoint

// Happen goes on sending.
func (t *smallQueueTimer) Happen(_ *event.Event, now event.Time) {
	e := (*Endpoint)(t)
	e.push(now, false)
}
