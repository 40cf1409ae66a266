package tcp

import "weir/sim/event"

// rackState is RFC 8985 5.2, with Linux's names.
type rackState struct {
	sent      event.Time // RACK.xmit_ts: when the latest delivered segment was sent
	rtt       event.Time // RACK.rtt: how long that took
	end       uint32     // RACK.end_seq: its end
	roundEnd  uint32     // the reordering window grows once per RTT: number of delivered segments
	steps     uint8      // RACK.reo_wnd_mult
	persist   uint8      // RACK.reo_wnd_persist: recoveries for which steps is kept
	advanced  bool       // sent or rtt changed since the last search for losses
	reordered bool       // RACK.reordering_seen
	dsack     bool       // a DSACK arrived that was not processed yet
}

// rackPersist is how many recoveries a wider reordering window lasts (RFC 8985 6.2 step 4).
const rackPersist = 16

// rackAdvance processes a delivered segment (RFC 8985 6.2 steps 1 and 2; Linux: tcp_rack_advance).
func (e *Endpoint) rackAdvance(s *segment, now event.Time) {
	r := &e.rack
	rtt := now - s.sent
	if s.flags&segEver != 0 && rtt < e.rtt.least {
		return // the ACK is for the copy before
	}
	r.advanced = true
	r.rtt = rtt
	if sentAfter(s.sent, s.end(), r.sent, r.end) {
		r.sent, r.end = s.sent, s.end()
	}
}

// sentAfter is RACK_sent_after: the later transmission; for equal times the larger sequence number.
func sentAfter(t1 event.Time, end1 uint32, t2 event.Time, end2 uint32) bool {
	return t1 > t2 || t1 == t2 && after(end1, end2)
}

// rackWindow adapts the reordering window: DSACKs show that it was too small (RFC 8985 6.2 step 4; Linux:
// tcp_rack_update_reo_wnd).
func (e *Endpoint) rackWindow(w *ackWork) {
	r := &e.rack
	if !r.dsack {
		if r.persist == 0 {
			r.steps = 1
		}
		return
	}
	if before(w.delivered, r.roundEnd) {
		r.dsack = false // the DSACK of this RTT was counted
		return
	}
	r.steps = uint8(min(int(r.steps)+1, 255))
	r.dsack = false
	r.roundEnd = e.delivered + e.inFlight()
	r.persist = rackPersist
}

// rackReorder returns RACK.reo_wnd: how much later than the latest delivered segment an earlier one may arrive.
func (e *Endpoint) rackReorder() event.Time {
	r := &e.rack
	if !r.reordered {
		if e.recovery >= Recovering || e.dupThreshReached() {
			return 0
		}
	}
	return min(e.rtt.least/4*event.Time(r.steps), e.rtt.smoothed())
}

// rackIdentify marks segments lost that were sent before the latest delivered one and should have arrived by now (RFC
// 8985 6.2 step 5; Linux: tcp_rack_mark_lost). For those that may still arrive it sets a timer. It reports whether it
// did.
//
// Linux orders segments by their last transmission. Here there are two orders: segments sent once are in this order on
// the scoreboard, from rec.rackNext on, and retransmissions in the queue of copies.
func (e *Endpoint) rackIdentify(now event.Time, w *ackWork) bool {
	if !e.rack.advanced {
		return false
	}
	e.rack.advanced = false
	wait := e.rackDetect(now, w)
	if wait <= 0 {
		return false
	}
	e.setTimer(timerReorder, now+wait+max(e.profile.ProbeSlack, event.Microsecond)) // when it is certainly over
	return true
}

// rackDetect is RACK_detect_loss. It returns the longest wait for a segment that may still arrive; 0: none.
func (e *Endpoint) rackDetect(now event.Time, w *ackWork) event.Time {
	r := &e.rec
	window := e.rackReorder()
	wait := event.Time(0)
	stopped := false
	for n := r.rackNext; n != e.board.tail; n++ {
		s := e.board.at(n)
		if s.flags&(segSacked|segLost|segEver) == 0 {
			if !sentAfter(e.rack.sent, e.rack.end, s.sent, s.end()) {
				break
			}
			if left := e.rack.rtt + window - (now - s.sent); left > 0 {
				wait = max(wait, left)
				stopped = true
				continue
			}
			e.markLost(n, w)
		}
		if !stopped {
			r.rackNext = n + 1
		}
	}
	return max(wait, e.rackDetectCopies(now, window, w))
}

// rackDetectCopies is rackDetect for retransmissions.
func (e *Endpoint) rackDetectCopies(now, window event.Time, w *ackWork) event.Time {
	wait := event.Time(0)
	stopped := false
	for i := e.copies.head; i != e.copies.tail; i++ {
		c := &e.copies.ring[i&uint32(len(e.copies.ring)-1)]
		if !e.copyInFlight(*c) {
			if !stopped {
				e.copies.head = i + 1
			}
			continue
		}
		s := e.board.at(c.number)
		if !sentAfter(e.rack.sent, e.rack.end, s.sent, s.end()) {
			break
		}
		if left := e.rack.rtt + window - (now - s.sent); left > 0 {
			wait = max(wait, left)
			stopped = true
			continue
		}
		e.markLost(c.number, w)
		if !stopped {
			e.copies.head = i + 1
		}
	}
	return wait
}

// copyInFlight reports whether a retransmission is still the latest of its segment, and not known to have arrived or to
// be lost. A probe's retransmission is included, although it is not counted (segRetrans).
func (e *Endpoint) copyInFlight(c copyOf) bool {
	if before(c.number, e.board.head) || !before(c.number, e.board.tail) {
		return false
	}
	s := e.board.at(c.number)
	return s.order == c.order && s.flags&segSacked == 0 && s.flags&(segLost|segRetrans) != segLost
}

// rackTimeout processes the end of the wait (RFC 8985 6.3; Linux: tcp_rack_reo_timeout).
func (e *Endpoint) rackTimeout(now event.Time) {
	w := ackWork{priorUna: e.una, flight: e.inFlight(), delivered: e.delivered}
	e.rackDetect(now, &w)
	if w.flight != e.inFlight() {
		if e.recovery != Recovering {
			e.enterRecovery(false, now)
			e.reduce(1, &w)
		}
		e.sendLost(now)
	}
	if e.timer.kind != timerRTO {
		e.armRTO(now)
	}
}
