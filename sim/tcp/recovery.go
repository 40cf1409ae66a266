package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// Recovery is the state of loss recovery, with Linux's names (TCP_CA_*).
type Recovery uint8

// The states.
const (
	Open       Recovery = iota // normal operation
	Disorder                   // duplicate ACKs or SACKs, not yet enough
	CWR                        // reducing for ECE, or after a probe that repaired a loss
	Recovering                 // fast retransmit and fast recovery
	Loss                       // after a timeout
)

func (r Recovery) String() string {
	return [...]string{"open", "disorder", "cwr", "recovery", "loss"}[r]
}

// recoveryState is the state of loss recovery.
type recoveryState struct {
	high         uint32 // SND.NXT when the state began (high_seq, RFC 6582's and 6675's recovery point)
	highSacked   uint32 // of the highest SACKed segment; valid while sackedOut > 0
	next         uint32 // segments below this number need no retransmission (retransmit_skb_hint)
	rackNext     uint32 // RACK has checked the segments below it that were sent once
	judged       uint32 // identifySACK
	sackedJudged uint32
	seen         [4]network.Block // blocks of the previous ACK

	prrDelivered, prrOut uint32 // RFC 6937

	undoing    bool   // the reduction can be undone (undo_marker != 0)
	undoFrom   uint32 // SND.UNA when it began (undo_marker)
	undoCopies int32  // retransmissions that no DSACK has shown to be needless (undo_retrans); -1: none yet
	dsacks     int64
	firstOrder uint32 // first retransmission of the recovery (retrans_stamp); valid if hasRetrans
	hasRetrans bool
	echo       uint32 // timestamps: the transmission that the latest ACK answers
	retries    int32  // timeouts in a row (icsk_retransmits)
	frto       bool   // F-RTO is in progress
	rescued    bool   // NextSeg's rule 4 was used in this recovery
	partials   int32  // RFC 6582: partial ACKs in this recovery
	force      bool   // the next retransmission does not depend on cwnd (RFC 6675 5 (4.3), RFC 6582 3.2 steps 2 and 3)

	probing   bool   // a tail loss probe is in flight (tlp_high_seq != 0)
	probeCopy bool   // and it was a retransmission
	probeEnd  uint32 // SND.NXT when the probe was sent
}

// retransmitted counts a retransmission for a later undo; order is its number.
func (r *recoveryState) retransmitted(order uint32) {
	if !r.hasRetrans {
		r.hasRetrans, r.firstOrder = true, order
	}
	r.undoCopies = max(r.undoCopies, 0) + 1
}

// setRecovery changes the state.
func (e *Endpoint) setRecovery(s Recovery) {
	if e.recovery == Recovering && s != Recovering && e.rack.persist > 0 {
		e.rack.persist--
	}
	e.rec.force = e.rec.force && s == Recovering
	e.recovery = s
	e.observe(TraceRecovery)
}

// alert is Linux's tcp_fastretrans_alert: it changes the recovery state for an ACK that is not a plain one. dup is 1
// for a duplicate ACK. It returns what to send.
func (e *Endpoint) alert(now event.Time, dup uint32, w *ackWork) resend {
	ece := w.flags&ackECE != 0
	if e.profile.OneCut && e.recovery >= Recovering && e.una == e.rec.high {
		ece = false // belongs to the window with the loss: CWR has not arrived yet
	}
	if e.board.len() == 0 {
		e.sackedOut = 0
	}
	if ece {
		e.win.PriorSst = 0 // never undone: the network asked for it
	}
	if e.recovery == Open {
		e.rec.hasRetrans = false
	} else if !before(e.una, e.rec.high) && e.leave() {
		return resendNothing
	}
	switch e.recovery {
	case Recovering:
		if w.flags&ackAdvanced == 0 {
			if !e.sackOK {
				e.addDuplicate(dup)
			}
		} else if e.undoPartial() {
			return resendNothing
		}
		if e.undoDSACK() {
			e.tryOpen(ece, now)
		}
		e.identify(now, w)
		if e.recovery != Recovering {
			if !e.timeToRecover() {
				return resendNothing
			}
			e.enterRecovery(ece, now)
		}
	case Loss:
		what := e.processLoss(dup, w)
		e.identify(now, w)
		if e.recovery != Open && w.flags&ackLostRetrans == 0 {
			return what
		}
		if e.common(now, dup, ece, w) {
			return what
		}
	default:
		if e.common(now, dup, ece, w) {
			return resendNothing
		}
	}
	if e.sackOK && !e.useRACK {
		e.identifySACK(w)
	}
	return resendLost
}

// leave ends CWR and Recovery when all data in flight at their beginning is acknowledged. It reports whether the ACK
// needs no more processing.
func (e *Endpoint) leave() bool {
	switch e.recovery {
	case CWR:
		// Data beyond it must be acknowledged, so that CWR has reached the receiver.
		if e.una != e.rec.high {
			e.endReduction()
			e.setRecovery(Open)
		}
	case Recovering:
		if !e.sackOK {
			e.sackedOut = 0
		}
		if e.undoRecovery() {
			if !e.profile.PRR {
				e.endReduction() // the state stays, with the window of the time after it
			}
			return true
		}
		e.endReduction()
	}
	return false
}

// common is the part for Open, Disorder and CWR. It reports whether the ACK needs no more processing.
func (e *Endpoint) common(now event.Time, dup uint32, ece bool, w *ackWork) bool {
	if !e.sackOK {
		if w.flags&ackAdvanced != 0 {
			e.sackedOut = 0
		}
		e.addDuplicate(dup)
	}
	if e.recovery <= Disorder {
		e.undoDSACK()
	}
	e.identify(now, w)
	if !e.timeToRecover() {
		e.tryOpen(ece, now)
		return true
	}
	e.enterRecovery(ece, now)
	return false
}

// timeToRecover reports whether a loss is evident (RFC 5681 3.2, 6675 5, 8985 6.2).
func (e *Endpoint) timeToRecover() bool {
	return e.lostOut > 0 || !e.useRACK && e.dupThreshReached()
}

// enterRecovery begins fast recovery (RFC 6675 5 (4), RFC 6582 3.2 (2), RFC 6937 3).
func (e *Endpoint) enterRecovery(ece bool, now event.Time) {
	e.counters.FastRetransmits++
	e.recover = e.nxt
	e.win.PriorSst = 0
	e.beginUndo()
	e.rec.rescued, e.rec.partials, e.rec.force = false, 0, !e.profile.PRR
	switch {
	case !e.reducing():
		e.beginReduction(CauseLoss, ece, now)
	case !e.profile.OneCut:
		e.cc.LossInCWR(&e.win)
	}
	e.setRecovery(Recovering)
}

// tryOpen ends Disorder, or begins CWR if the ACK carries ECE (RFC 3168 6.1.2: once per window).
func (e *Endpoint) tryOpen(ece bool, now event.Time) {
	e.forgetRetrans()
	if ece {
		e.enterCWR(now)
	}
	if e.recovery != CWR {
		e.keepOpen()
	}
}

// keepOpen chooses between Open and Disorder.
func (e *Endpoint) keepOpen() {
	s := Open
	if e.sackedOut+e.lostOut > 0 || e.anyRetransDone() {
		s = Disorder
	}
	if e.recovery != s {
		e.setRecovery(s)
		e.rec.high = e.nxt
	}
}

// enterCWR reduces for ECE, once until the data in flight is acknowledged (Linux: tcp_enter_cwr).
func (e *Endpoint) enterCWR(now event.Time) {
	e.win.PriorSst = 0
	if e.recovery >= CWR {
		return
	}
	e.rec.undoing = false
	e.counters.Reductions++
	e.beginReduction(CauseECE, true, now)
	e.setRecovery(CWR)
}

// anyRetransDone reports whether a segment in flight was sent more than once (Linux: tcp_any_retrans_done).
func (e *Endpoint) anyRetransDone() bool {
	return e.retransOut > 0 || e.board.len() > 0 && e.board.at(e.board.head).flags&segEver != 0
}

func (e *Endpoint) forgetRetrans() {
	if !e.anyRetransDone() {
		e.rec.hasRetrans = false
	}
}

// resendAfter sends what alert decided (Linux: tcp_xmit_recovery).
func (e *Endpoint) resendAfter(what resend, now event.Time) {
	if what == resendNothing {
		return
	}
	if what == resendNew {
		e.push(now, false)
		if after(e.nxt, e.rec.high) {
			return
		}
		e.rec.frto = false
	}
	e.sendLost(now)
}

// sendLost retransmits lost segments as far as cwnd allows (Linux: tcp_xmit_retransmit_queue; NextSeg of RFC 6675 4,
// rule 1). With Config.Rescue it also sends what NextSeg's rules 3 and 4 add.
func (e *Endpoint) sendLost(now event.Time) {
	rearm := false
	r := &e.rec
	for n := r.next; e.lostPending > 0 && n != e.board.tail; n++ {
		if e.inFlight() >= e.win.Cwnd && !r.force {
			break
		}
		if e.board.at(n).flags&(segLost|segRetrans|segSacked) == segLost {
			if !e.retransmit(n, now) {
				break
			}
			r.force = false
			if e.reducing() {
				r.prrOut++
			}
			if n == e.board.head && e.timer.kind != timerReorder {
				rearm = true
			}
		}
		r.next = n + 1
	}
	if rearm && !e.impatient() {
		e.setTimer(timerRTO, now+e.rtt.rto)
	}
	if e.profile.Rescue && e.recovery == Recovering && e.lostPending == 0 {
		e.rescue(now)
	}
}

// impatient reports whether the timer stays as it is: RFC 6582 4 resets it at the first partial ACK only, so that many
// losses end in slow start.
func (e *Endpoint) impatient() bool {
	return e.profile.Impatient && !e.sackOK && e.recovery == Recovering && e.rec.partials > 1
}

// rescue is NextSeg of RFC 6675 4 after new data (rule 2). It sends segments below the highest SACK that are not known
// to be lost (rule 3), and once per recovery the last segment (rule 4), so that ACKs continue to arrive.
func (e *Endpoint) rescue(now event.Time) {
	e.push(now, false)
	r := &e.rec
	for n := r.judged; n != e.board.tail && e.inFlight() < e.win.Cwnd && e.sackedOut > 0; n++ {
		s := e.board.at(n)
		if !before(s.seq, r.highSacked) {
			break
		}
		if s.flags&(segSacked|segLost|segEver) == 0 && !e.retransmit(n, now) {
			return
		}
	}
	if !r.rescued && e.inFlight() < e.win.Cwnd && e.board.len() > 0 {
		n := e.board.tail - 1
		if s := e.board.at(n); s.flags&(segSacked|segEver) == 0 && !after(s.end(), r.high) {
			r.rescued = e.retransmit(n, now)
		}
	}
}
