package tcp

import "weir/sim/event"

// enterLoss begins recovery by timeout (RFC 5681 3.1 (4), 6298 5; Linux: tcp_enter_loss).
func (e *Endpoint) enterLoss(now event.Time) {
	fresh := e.recovery < Recovering
	e.markAllLost(now)
	// ssthresh is reduced once for the data in flight, however often its retransmission times out. Linux does not
	// reduce it within a recovery either.
	s := e.fillSample(now)
	switch {
	case e.recovery <= Disorder || !after(e.rec.high, e.una) || e.recovery == Loss && e.rec.retries == 0:
		e.win.Remember(CauseTimeout, e.reducing())
		e.win.Ssthresh = e.cc.Ssthresh(&e.win, s, CauseTimeout)
		e.beginUndo()
	case e.reducing() && e.profile.Options.HalveFlight:
		// Less may be in flight than when the reduction began, and (4) applies to the present: "no more than".
		e.win.Ssthresh = min(e.win.Ssthresh, e.cc.Ssthresh(&e.win, s, CauseTimeout))
	}
	e.cc.Timeout(&e.win, s)
	e.win.Cwnd = e.inFlight() + 1
	e.win.Count = 0
	e.usage.stamp = now
	e.setRecovery(Loss)
	e.rec.high = e.nxt
	e.rec.probing = false
	if e.ecnOK {
		e.ack.cwr = true
	}
	// F-RTO (RFC 5682 3.1 step 1): not within a recovery, but again for the same loss.
	e.rec.frto = e.profile.FRTO && (fresh || e.rec.retries > 0)
}

// markAllLost marks segments in flight as lost, except those that may still arrive according to RACK (Linux:
// tcp_timeout_mark_lost).
func (e *Endpoint) markAllLost(now event.Time) {
	w := ackWork{}
	e.recover = e.nxt
	if !e.sackOK {
		e.sackedOut, e.duplicates = 0, 0
	}
	for n := e.board.head; n != e.board.tail; n++ {
		s := e.board.at(n)
		if e.useRACK && n != e.board.head && e.rack.rtt > now-s.sent {
			continue
		}
		e.markLost(n, &w)
	}
}

// processLoss processes an ACK after a timeout (RFC 5682 3.1, with SACK 2.1; Linux: tcp_process_loss). It returns what
// to send.
func (e *Endpoint) processLoss(dup uint32, w *ackWork) resend {
	recovered := !before(e.una, e.rec.high)
	if w.flags&ackAdvanced != 0 && e.undoLoss(false) {
		return resendNothing
	}
	if e.rec.frto {
		// Step 3.b: a segment sent once, before the timeout, arrived.
		if w.flags&ackOrigSacked != 0 && e.undoLoss(true) {
			return resendNothing
		}
		if after(e.nxt, e.rec.high) {
			if w.flags&ackSacked != 0 || dup > 0 {
				e.rec.frto = false // step 3.a: the loss was real
			}
		} else if w.flags&ackAdvanced != 0 && !recovered {
			e.rec.high = e.nxt
			// Step 2.b: send new data, and wait for its ACKs.
			if e.unsent > 0 && after(e.windowEnd(), e.nxt) {
				return resendNew
			}
			e.rec.frto = false
		}
	}
	if recovered {
		e.undoRecovery() // steps 2.a and 3.a
		return resendNothing
	}
	if !e.sackOK {
		// A duplicate ACK now shows that new data of step 2.b arrived.
		if after(e.nxt, e.rec.high) && dup > 0 {
			e.addDuplicate(dup)
		} else if w.flags&ackAdvanced != 0 {
			e.sackedOut = 0
		}
	}
	return resendLost
}

// classify counts a timeout by its cause, as papers on incast do (SED names both). FLoss-TO, full window loss: nothing
// arrived of what was sent since the last transmission of the first missing segment. LAck-TO, lack of ACKs: some of it
// arrived, but too few ACKs came back, or too late, for fast retransmit. A real sender can only guess; this one looks
// at what the peer received.
func (e *Endpoint) classify() {
	e.counters.Timeouts++
	if peer := e.other(); peer != nil && !before(peer.lastOrder, e.board.at(e.board.head).order) {
		e.counters.LAck++
		return
	}
	e.counters.FLoss++
}
