package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// Results of processing an acknowledgement (Linux: FLAG_*).
const (
	ackData        = 1 << iota // the segment carried data: not a duplicate ACK
	ackWindow                  // the peer's window changed
	ackAdvanced                // SND.UNA moved
	ackAcked                   // segments were acknowledged
	ackRetransData             // some of them had been retransmitted
	ackSacked                  // new SACKs
	ackDSACK                   // the receiver reported a duplicate
	ackDSACKProbe              // the duplicate was the tail loss probe's
	ackECE
	ackOrigSacked  // a segment sent once, before the recovery, arrived
	ackLostRetrans // a retransmission was found lost
	ackSetTimer    // the RTO or TLP timer must be set again

	ackNotDup = ackData | ackWindow | ackAcked
	ackAlert  = ackSacked | ackECE | ackDSACK
)

// ackWork is the state while one acknowledgement is processed.
type ackWork struct {
	flags      uint32
	priorUna   uint32
	priorHigh  uint32     // highest SACKed sequence number before this ACK
	reorder    uint32     // lowest sequence number that arrived late, if hasReorder
	seqRTT     event.Time // of the oldest acknowledged segment that was sent once; -1: none
	lastRTT    event.Time // of the latest such segment
	sackRTT    event.Time // of the latest SACKed segment that was sent once; -1: none
	echo       uint32     // timestamps: number of the transmission that this ACK answers
	echoSent   event.Time // when that was sent, if it was the last one of an acknowledged, retransmitted segment; -1
	flight     uint32     // in flight before this ACK
	delivered  uint32     // Endpoint.delivered before this ACK
	lost       uint32     // segments newly marked lost
	hasReorder bool
}

// resend is the kind of segments to send after an ACK (Linux: REXMIT_*).
type resend uint8

const (
	resendNothing resend = iota
	resendNew            // F-RTO sends new data first
	resendLost
)

// acknowledge processes the ACK of a segment (RFC 9293 3.10.7.4, fifth; Linux: tcp_ack). It reports whether to process
// the rest of the segment.
func (e *Endpoint) acknowledge(pk *network.Packet, now event.Time) bool {
	ack := pk.Ack()
	if ack == e.una && e.board.len() == 0 && pk.NBlocks() == 0 && !e.rec.probing { // usual for an endpoint that only receives
		e.takeWindow(pk.Window(), pk.Seq(), ack)
		e.timer.probes = 0
		e.persistACK(now)
		return true
	}
	w := ackWork{priorUna: e.una, seqRTT: -1, sackRTT: -1, lastRTT: -1, echoSent: -1, delivered: e.delivered, echo: uint32(pk.Tag() >> 32)}
	e.rec.echo = w.echo
	if before(ack, e.una) {
		e.acknowledgeOld(pk, now, &w)
		return true
	}
	if after(ack, e.nxt) {
		e.sendACK() // acknowledges data that was never sent
		return false
	}
	prior := e.board.len()
	w.flight = e.inFlight()
	if after(ack, e.una) {
		w.flags |= ackAdvanced
		e.rec.retries, e.duplicates = 0, 0
	}
	if pk.Payload() > 0 || pk.Flags()&network.FIN != 0 {
		w.flags |= ackData
	}
	if e.takeWindow(pk.Window(), pk.Seq(), ack) {
		w.flags |= ackWindow
	}
	if e.una = ack; after(ack, e.recover) {
		e.recover = ack - 1
	}
	w.priorHigh = e.rec.highSacked
	if e.sackedOut == 0 || !e.sackOK {
		w.priorHigh = w.priorUna
	}
	if pk.NBlocks() > 0 && e.sackOK {
		e.takeSACK(pk, now, &w)
	}
	if e.ecnOK && pk.Flags()&network.ECE != 0 {
		w.flags |= ackECE
	}
	e.timer.probes = 0
	if prior == 0 {
		if w.flags&ackDSACK != 0 {
			e.alert(now, 0, &w)
		}
		if e.rec.probing {
			e.probeACK(&w, now)
		}
		e.persistACK(now)
		return true
	}
	e.acknowledgeFlight(now, &w)
	return true
}

// acknowledgeFlight is the part of tcp_ack for segments in flight.
func (e *Endpoint) acknowledgeFlight(now event.Time, w *ackWork) {
	e.clean(now, w)
	e.observeACK(now, w)
	what := resendNothing
	if e.useRACK {
		e.rackWindow(w)
	}
	if e.rec.probing {
		e.probeACK(w, now)
	}
	if w.flags&ackNotDup == 0 || w.flags&ackAlert != 0 || e.recovery != Open {
		dup := uint32(0)
		if w.flags&(ackAdvanced|ackNotDup|ackDSACK) == 0 {
			dup = 1
			e.counters.DuplicateACKs++
		}
		what = e.alert(now, dup, w)
	}
	switch {
	case w.flags&ackSetTimer == 0:
	case e.board.len() == 0:
		e.clearTimer()
	case !e.impatient() && !e.armProbe(now, true):
		e.armRTO(now)
	}
	e.control(now, w)
	e.resendAfter(what, now)
	if e.finSent && !e.finAcked && e.una == e.nxt {
		e.finAcknowledged()
	}
	if e.board.len() == 0 {
		e.copies.head = e.copies.tail
	}
	if e.stack.trace != nil {
		e.observe(TraceAck)
	}
}

// acknowledgeOld processes an ACK from before SND.UNA. Its SACK blocks may still be new.
func (e *Endpoint) acknowledgeOld(pk *network.Packet, now event.Time, w *ackWork) {
	if pk.NBlocks() == 0 || !e.sackOK || e.board.len() == 0 {
		return
	}
	w.flight = e.inFlight()
	w.priorHigh = e.rec.highSacked
	if e.sackedOut == 0 {
		w.priorHigh = e.una
	}
	e.takeSACK(pk, now, w)
	e.observeACK(now, w)
	what := e.alert(now, 0, w)
	e.control(now, w)
	e.resendAfter(what, now)
}

// takeWindow takes the peer's window from a segment's field, unless the segment is older than the one that set it last
// (RFC 9293 3.10.7.4; Linux: tcp_ack_update_window). It reports whether it did.
func (e *Endpoint) takeWindow(field uint16, seq, ack uint32) bool {
	window := uint32(field) << (e.sndShift & 15)
	if !after(ack, e.una) && !after(seq, e.wl1) && (seq != e.wl1 || window <= e.sndWnd && window != 0) {
		return false // nothing new acknowledged, no new data, no wider window
	}
	e.wl1 = seq
	if window != e.sndWnd {
		e.sndWnd = window
		e.maxWnd = max(e.maxWnd, window)
	}
	return true
}

// clean removes acknowledged segments from the scoreboard and measures the RTT (Linux: tcp_clean_rtx_queue).
func (e *Endpoint) clean(now event.Time, w *ackWork) {
	var first, last event.Time = -1, -1
	acked, fresh := uint32(0), uint32(0)
	for e.board.head != e.board.tail {
		s := e.board.at(e.board.head)
		if after(s.end(), e.una) {
			if before(s.seq, e.una) { // in the middle of a segment: the rest stays
				s.bytes = s.end() - e.una
				s.seq = e.una
			}
			break
		}
		if s.flags == 0 || s.flags == segFIN { // nearly always
			if first < 0 {
				first = s.sent
			}
			last = s.sent
			e.arrivedFirst(s, w)
			fresh++
			if e.useRACK {
				e.rackAdvance(s, now)
			}
		} else if e.cleanMarked(s, now, w, &first, &last) {
			fresh++
		}
		acked++
		e.board.head++
	}
	if first >= 0 && w.flags&ackRetransData == 0 {
		w.seqRTT, w.lastRTT = now-first, now-last
	}
	updated := e.measure(now, w)
	if acked > 0 {
		w.flags |= ackAcked | ackSetTimer
		e.forgetMarks()
		if !e.sackOK {
			e.removeDuplicates(acked)
			if w.flags&ackRetransData != 0 {
				w.flags &^= ackOrigSacked // without SACK nothing shows that it was the original
			}
		} else {
			e.delivered += fresh
			if w.hasReorder && before(w.reorder, w.priorHigh) {
				e.rack.reordered = true
			}
		}
	} else if updated && w.sackRTT >= 0 && e.board.len() > 0 && w.sackRTT > now-e.board.at(e.board.head).sent {
		// The SACK measured a segment sent before the first retransmission: restart the timer for that one.
		w.flags |= ackSetTimer
	}
}

// arrivedFirst notes a segment, sent once, that an ACK covers.
func (e *Endpoint) arrivedFirst(s *segment, w *ackWork) {
	if !w.hasReorder || before(s.seq, w.reorder) {
		w.reorder, w.hasReorder = s.seq, true
	}
	if !after(s.end(), e.rec.high) {
		w.flags |= ackOrigSacked
	}
}

// cleanMarked removes a lost, SACKed or retransmitted segment from the scoreboard. It reports whether the segment is
// newly delivered, that is, not SACKed before.
func (e *Endpoint) cleanMarked(s *segment, now event.Time, w *ackWork, first, last *event.Time) bool {
	if s.flags&segEver != 0 {
		w.flags |= ackRetransData
		if s.order == w.echo {
			w.echoSent = s.sent
		}
		if s.flags&segRetrans != 0 {
			e.retransOut--
		}
	} else if s.flags&segSacked == 0 {
		if *first < 0 {
			*first = s.sent
		}
		*last = s.sent
		e.arrivedFirst(s, w)
	}
	fresh := s.flags&segSacked == 0
	if !fresh {
		e.sackedOut--
		if before(e.board.head, e.rec.judged) {
			e.rec.sackedJudged--
		}
	} else if e.useRACK {
		e.rackAdvance(s, now)
	}
	if s.flags&segLost != 0 {
		e.lostOut--
		if s.flags&segRetrans == 0 {
			e.lostPending--
		}
	}
	return fresh
}

// measure passes the RTT of this ACK to the estimator (Linux: tcp_ack_update_rtt): of segments sent once, and with
// timestamps also of the last copy of a retransmitted one. RFC 7323 4.1 and Linux measure by the echoed time, so
// earlier copies count too. Here they do not, because only a segment's last transmission is known.
func (e *Endpoint) measure(now event.Time, w *ackWork) bool {
	rtt := w.seqRTT
	if rtt < 0 {
		rtt = w.sackRTT
	}
	if rtt < 0 && e.timestamps && w.echoSent >= 0 {
		rtt = now - w.echoSent
		w.lastRTT = rtt
	}
	if rtt < 0 {
		return false
	}
	e.rtt.sample(e.profile, rtt, e.una, e.nxt)
	if w.lastRTT >= 0 { // without the delay of a delayed ACK
		e.rtt.least = min(e.rtt.least, max(w.lastRTT, 1))
	}
	return true
}
