package tcp

import "weir/sim/event"

// usage is how much of cwnd was used recently (Linux: tcp_cwnd_validate).
type usage struct {
	stamp   event.Time // when cwnd was last used fully, or set, or an ACK might let it grow (snd_cwnd_stamp)
	end     uint32     // the observed window ends when this is acknowledged
	most    uint32     // most segments in flight during it
	used    uint32     // most since stamp
	limited bool       // cwnd limited the sender during it
}

// reducing reports whether cwnd is being reduced (Linux: tcp_in_cwnd_reduction).
func (e *Endpoint) reducing() bool { return e.recovery == CWR || e.recovery == Recovering }

// beginReduction sets ssthresh, and begins to reduce cwnd (Linux: tcp_init_cwnd_reduction). ece: the network asked for
// it, so it is never undone.
func (e *Endpoint) beginReduction(why Cause, ece bool, now event.Time) {
	e.rec.high = e.nxt
	e.rec.probing = false
	e.rec.prrDelivered, e.rec.prrOut = 0, 0
	remember := why
	if ece {
		remember = CauseECE
	}
	e.win.Remember(remember, false)
	e.win.Count = 0
	e.win.Ssthresh = e.cc.Ssthresh(&e.win, e.fillSample(now), why)
	if e.ecnOK {
		e.ack.cwr = true // RFC 3168 6.1.2
	}
	if !e.profile.PRR {
		e.win.Cwnd = max(1, e.win.Ssthresh)
	}
}

// reduce reduces cwnd towards ssthresh. The ratio of sent to delivered segments is the ratio of ssthresh to the window
// before. Once less than ssthresh is in flight, it does slow start up to ssthresh (RFC 6937 3.1 with PRR-SSRB; Linux:
// tcp_cwnd_reduction).
func (e *Endpoint) reduce(delivered uint32, w *ackWork) {
	if !e.profile.PRR || delivered == 0 || e.win.PriorCwnd == 0 {
		return
	}
	r := &e.rec
	flight := e.inFlight()
	r.prrDelivered += delivered
	var send int64
	if room := int64(e.win.Ssthresh) - int64(flight); room < 0 {
		prior := uint64(e.win.PriorCwnd)
		send = int64((uint64(e.win.Ssthresh)*uint64(r.prrDelivered)+prior-1)/prior) - int64(r.prrOut)
	} else {
		send = max(int64(r.prrDelivered)-int64(r.prrOut), int64(delivered))
		if w.flags&ackAdvanced != 0 && w.lost == 0 {
			send++
		}
		send = min(room, send)
	}
	if r.prrOut == 0 {
		send = max(send, 1) // the fast retransmit itself
	}
	e.win.Cwnd = max(1, uint32(max(0, int64(flight)+send)))
}

// endReduction sets cwnd to ssthresh (Linux: tcp_end_cwnd_reduction). Without SACK and PRR it is at most the data in
// flight and one segment, to avoid a burst (RFC 6582 3.2 step 3, option 1).
func (e *Endpoint) endReduction() {
	if e.win.Ssthresh >= NoSsthresh || e.recovery != CWR && !e.rec.undoing {
		return
	}
	e.win.Cwnd = max(1, e.win.Ssthresh)
	if !e.profile.PRR && !e.sackOK && e.recovery != CWR {
		e.win.Cwnd = min(e.win.Cwnd, max(e.inFlight(), 1)+1)
	}
	e.usage.stamp = e.stack.Queue.Now()
}

// observeACK passes an ACK's measurements to congestion control, before recovery asks it for a threshold (Linux:
// tcp_in_ack_event, pkts_acked).
func (e *Endpoint) observeACK(now event.Time, w *ackWork) {
	if delivered := e.delivered - w.delivered; delivered > 0 || w.flags&ackAdvanced != 0 {
		s := e.ackSample(now, delivered, w)
		e.counters.MarkedSegments += int64(s.Marked)
		e.cc.Measure(&e.win, s)
	}
}

// control changes cwnd after an ACK (Linux: tcp_cong_control).
func (e *Endpoint) control(now event.Time, w *ackWork) {
	delivered := e.delivered - w.delivered
	switch {
	case e.reducing():
		e.reduce(delivered, w)
	case w.flags&ackAcked != 0:
		s := &e.stack.sample
		if s.Delivered != delivered { // recovery has asked for a threshold since
			s = e.ackSample(now, delivered, w)
		}
		e.cc.Grow(&e.win, s)
		e.usage.stamp = now // also if it did not grow (Linux: tcp_cong_avoid)
	}
}

// ackSample returns the Sample of an ACK.
func (e *Endpoint) ackSample(now event.Time, delivered uint32, w *ackWork) *Sample {
	s := e.fillSample(now)
	if w.lastRTT >= 0 {
		s.RTT = max(w.lastRTT, 1)
	}
	s.Delivered = delivered
	s.InFlight = w.flight
	s.Bytes = int32(e.una - w.priorUna)
	if w.flags&ackECE != 0 {
		s.Marked = delivered
	}
	s.Limited = e.limited()
	return s
}

// fillSample returns a Sample for any time: the fields of an ACK are 0.
func (e *Endpoint) fillSample(now event.Time) *Sample {
	s := &e.stack.sample
	*s = Sample{
		Now: now, SRTT: e.rtt.smoothed(), MinRTT: e.rtt.least, Deadline: e.deadline,
		Remaining: e.unsent + int64(e.nxt-e.una), Una: e.una, Nxt: e.nxt, MSS: int32(e.mss), InFlight: e.inFlight(),
		Flight: e.flightSize(),
	}
	return s
}

// flightSize returns FlightSize of RFC 5681 (4), segments. Segments of limited transmit are beyond cwnd and do not
// count (RFC 3042). Within a recovery cwnd is reduced already, and does not bound the segments in flight. After a
// timeout FlightSize is what was sent since.
func (e *Endpoint) flightSize() uint32 {
	if e.reducing() {
		return e.board.len()
	}
	return min(e.board.len(), e.win.Cwnd)
}

// limited reports whether cwnd limits the sender (Linux: tcp_is_cwnd_limited). In slow start the window may grow to
// twice the segments in flight.
func (e *Endpoint) limited() bool {
	if e.usage.limited {
		return true
	}
	return e.win.SlowStarting() && e.win.Cwnd < 2*e.usage.most
}

// validate records, after sending, how much of the window was used (RFC 2861; Linux: tcp_cwnd_validate).
func (e *Endpoint) validate(limited bool, now event.Time) {
	u := &e.usage
	out := e.board.len()
	if !before(e.una, u.end) || limited || !u.limited && out > u.most {
		u.limited = limited
		u.most = out
		u.end = e.nxt
	}
	if e.limited() {
		u.used, u.stamp = 0, now
		return
	}
	u.used = max(u.used, out)
	if e.profile.WindowValidation && e.profile.SlowStartAfterIdle && now-u.stamp >= e.rtt.rto {
		e.shrinkUnused(now)
	}
}

// shrinkUnused reduces cwnd halfway to what the program used within an RTO (Linux: tcp_cwnd_application_limited). It
// does nothing if the peer's window is the limit. Each ACK of new data puts it off, so it happens only if none came for an
// RTO.
func (e *Endpoint) shrinkUnused(now event.Time) {
	u := &e.usage
	if e.recovery == Open && e.unsent == 0 {
		if used := max(u.used, e.profile.InitialWindow); used < e.win.Cwnd {
			e.win.Ssthresh = e.win.Current(false)
			e.win.Cwnd = (e.win.Cwnd + used) / 2
		}
		u.used = 0
	}
	u.stamp = now
}

// restartAfterIdle reduces the window if nothing was sent for more than an RTO (RFC 5681 4.1; Linux:
// tcp_slow_start_after_idle_check).
func (e *Endpoint) restartAfterIdle(now event.Time) {
	if e.board.len() > 0 || e.unsent > 0 || !e.maySend() {
		return
	}
	idle := now - e.lastSent
	e.cc.Idle(&e.win, e.fillSample(now), idle)
	if e.profile.SlowStartAfterIdle && idle > e.rtt.rto {
		e.win.Restart(idle, e.rtt.rto, e.profile.InitialWindow)
		e.usage.used, e.usage.stamp = 0, now
	}
}
