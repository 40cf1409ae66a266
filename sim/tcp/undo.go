package tcp

// beginUndo notes where a reduction began, so that it can be undone if it was spurious (Linux: tcp_init_undo).
func (e *Endpoint) beginUndo() {
	r := &e.rec
	r.undoing, r.undoFrom = true, e.una
	r.undoCopies = int32(e.retransOut)
	if r.probing && r.probeCopy {
		r.undoCopies++
	}
	if r.undoCopies == 0 {
		r.undoCopies = -1
	}
}

// mayUndo reports whether the reduction was needless. DSACKs answered every retransmission (RFC 3708), or the ACK
// echoes a timestamp from before the first one (Eifel, RFC 3522). Linux: tcp_may_undo.
func (e *Endpoint) mayUndo() bool {
	r := &e.rec
	return e.profile.Undo && r.undoing && (r.undoCopies == 0 || e.delayed())
}

// delayed reports whether the ACK answers the original and not a retransmission (Linux: tcp_packet_delayed).
func (e *Endpoint) delayed() bool {
	return e.timestamps && e.rec.hasRetrans && before(e.rec.echo, e.rec.firstOrder)
}

// undo undoes the reduction (Linux: tcp_undo_cwnd_reduction). unmark also clears the marks of lost segments.
func (e *Endpoint) undo(unmark bool) {
	if unmark {
		for n := e.board.head; n != e.board.tail && e.lostOut > 0; n++ {
			s := e.board.at(n)
			if s.flags&segLost != 0 {
				s.flags &^= segLost
				e.lostOut--
			}
		}
		e.lostPending = 0
		e.rec.next, e.rec.rackNext = e.board.head, e.board.head
		e.rec.judged, e.rec.sackedJudged = e.board.head, 0
	}
	if e.win.PriorSst != 0 {
		e.ack.cwr = e.ack.cwr && e.win.PriorSst <= e.win.Ssthresh
		e.win.Restore(e.cc.Undo(&e.win))
		e.counters.Undone++
	}
	e.usage.stamp = e.stack.Queue.Now()
	e.rec.undoing = false
	e.rack.advanced = true // search for losses again
}

// undoRecovery ends recovery at its recovery point, and undoes it if it was needless (Linux: tcp_try_undo_recovery). It
// reports whether the state stays. Without SACK it stays until data above the point is acknowledged; otherwise late
// duplicate ACKs would begin another recovery (RFC 6582 4.1).
func (e *Endpoint) undoRecovery() bool {
	if e.mayUndo() {
		if e.recovery == Loss {
			e.counters.Spurious++
		}
		e.undo(false)
	}
	if e.una == e.rec.high && !e.sackOK {
		e.forgetRetrans()
		return true
	}
	e.setRecovery(Open)
	return false
}

// undoLoss ends recovery by timeout if the timeout was spurious (Linux: tcp_try_undo_loss).
func (e *Endpoint) undoLoss(frto bool) bool {
	if !frto && !e.mayUndo() {
		return false
	}
	e.undo(true)
	e.counters.Spurious++
	e.rec.retries = 0
	e.rec.frto = false
	if e.una == e.rec.high && !e.sackOK {
		e.forgetRetrans()
		return true
	}
	if frto || e.sackOK {
		e.setRecovery(Open)
	}
	return true
}

// undoDSACK ends a recovery if all its retransmissions were needless (Linux: tcp_try_undo_dsack).
func (e *Endpoint) undoDSACK() bool {
	if !e.profile.Undo || !e.rec.undoing || e.rec.undoCopies != 0 {
		return false
	}
	e.undo(false)
	return true
}

// undoPartial processes a partial ACK, which may answer the original. It reports whether to wait for the other
// retransmissions (Linux: tcp_try_undo_partial).
func (e *Endpoint) undoPartial() bool {
	if !e.profile.Undo || !e.rec.undoing || !e.delayed() {
		return false
	}
	e.rack.reordered = true
	if e.retransOut > 0 {
		return true
	}
	e.forgetRetrans()
	e.undo(true)
	e.keepOpen()
	return false
}
