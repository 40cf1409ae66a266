package tcp

import "weir/sim/event"

// markLost marks segment n lost (Linux: tcp_mark_skb_lost). A copy of it in flight counts as lost too: the segment must
// be retransmitted.
func (e *Endpoint) markLost(n uint32, w *ackWork) {
	s := e.board.at(n)
	if s.flags&segSacked != 0 {
		return
	}
	if s.flags&segRetrans != 0 {
		s.flags &^= segRetrans
		e.retransOut--
		if s.flags&segLost != 0 {
			e.lostPending++
			w.flags |= ackLostRetrans
			w.lost++
		}
	}
	if s.flags&segLost == 0 {
		s.flags |= segLost
		e.lostOut++
		e.lostPending++
		w.lost++
	}
	if before(n, e.rec.next) {
		e.rec.next = n
	}
}

// identify finds lost segments, by the method of the connection (Linux: tcp_identify_packet_loss and
// tcp_update_scoreboard).
func (e *Endpoint) identify(now event.Time, w *ackWork) {
	switch {
	case e.board.len() == 0:
	case !e.sackOK:
		e.identifyReno(w)
	case e.useRACK:
		if e.rackIdentify(now, w) {
			w.flags &^= ackSetTimer
		}
	}
}

// identifyReno is RFC 6582 3.2: the first segment is lost at the third duplicate ACK (step 2), and again at each
// partial ACK (step 3).
func (e *Endpoint) identifyReno(w *ackWork) {
	seen := e.sackedOut
	if e.profile.AllDuplicates && after(e.una, e.recover) { // step 1: else they may answer what was sent again
		seen = e.duplicates
	}
	begins := e.recovery < Recovering && seen >= e.profile.DupThresh
	partial := e.recovery == Recovering && w.flags&ackAdvanced != 0
	if partial {
		e.rec.partials++
	}
	if (begins || partial) && e.board.at(e.board.head).flags&segLost == 0 {
		e.markLost(e.board.head, w)
		e.rec.force = !e.profile.PRR
	}
}

// identifySACK is IsLost of RFC 6675 4, counted in segments: a segment is lost if DupThresh segments above it are
// SACKed. Each segment is judged once. Those below rec.judged are lost or SACKed (sackedJudged of them), and the SACKed
// ones above decide about the next.
func (e *Endpoint) identifySACK(w *ackWork) {
	r := &e.rec
	for r.judged != e.board.tail {
		s := e.board.at(r.judged)
		above := e.sackedOut - r.sackedJudged
		switch {
		case s.flags&segSacked != 0:
			if above <= 1 {
				return // only itself
			}
			r.sackedJudged++
		case above < e.profile.DupThresh:
			return
		case s.flags&segLost == 0:
			e.markLost(r.judged, w)
		}
		r.judged++
	}
}

// forgetMarks moves the positions of identifySACK and of retransmission into the segments in flight, after SND.UNA
// moved.
func (e *Endpoint) forgetMarks() {
	r := &e.rec
	if before(r.next, e.board.head) {
		r.next = e.board.head
	}
	if before(r.rackNext, e.board.head) {
		r.rackNext = e.board.head
	}
	if before(r.judged, e.board.head) {
		r.judged, r.sackedJudged = e.board.head, 0
	}
}

// dupThreshReached reports whether duplicate ACKs, or SACKs instead of them, show a loss (RFC 5681 3.2, RFC 6675 5
// (2)).
func (e *Endpoint) dupThreshReached() bool { return e.sackedOut >= e.profile.DupThresh }

// addDuplicate counts a duplicate ACK as a segment that arrived. Without SACK it is unknown which (RFC 6582 3.2 step 3
// inflates the window instead; Linux: tcp_add_reno_sack).
func (e *Endpoint) addDuplicate(n uint32) {
	if n == 0 {
		return
	}
	e.duplicates += n
	prior := e.sackedOut
	e.sackedOut += n
	e.limitDuplicates()
	if e.sackedOut > prior {
		e.delivered += e.sackedOut - prior
	}
}

// limitDuplicates keeps one segment for the hole (Linux: tcp_limit_reno_sacked).
func (e *Endpoint) limitDuplicates() {
	out := e.board.len()
	holes := min(max(e.lostOut, 1), out)
	if e.sackedOut+holes > out {
		e.sackedOut = out - holes
	}
}

// removeDuplicates subtracts the duplicates that an ACK covers; one segment filled the hole (Linux:
// tcp_remove_reno_sacks; RFC 6582 deflates the window by as much).
func (e *Endpoint) removeDuplicates(acked uint32) {
	if acked > e.sackedOut {
		e.delivered += max(acked-e.sackedOut, 1)
	} else {
		e.delivered++
	}
	if acked-1 >= e.sackedOut {
		e.sackedOut = 0
	} else {
		e.sackedOut -= acked - 1
	}
	e.limitDuplicates()
}
