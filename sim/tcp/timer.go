package tcp

import "weir/sim/event"

// timerKind is the purpose of the sender's one timer (Linux: icsk_pending).
type timerKind uint8

const (
	timerNone    timerKind = iota
	timerRTO               // retransmission, also of a SYN
	timerProbe             // tail loss probe
	timerReorder           // RACK: segments that may still arrive
	timerPersist           // the peer's window is too small
)

// timer is lazy: an ACK only moves the deadline. An event that happens too early is set again.
type timer struct {
	event    event.Event
	deadline event.Time // valid unless kind is timerNone
	probes   int32      // window probes that were not answered
	backoff  uint8      // of the persist timer
	kind     timerKind
}

// retransmitTimer is the event of timer.
type retransmitTimer Endpoint

// Happen processes the timer, if the deadline has come.
func (t *retransmitTimer) Happen(ev *event.Event, now event.Time) {
	e := (*Endpoint)(t)
	kind := e.timer.kind
	switch {
	case kind == timerNone:
		return
	case now < e.timer.deadline:
		e.stack.Queue.Set(ev, e.timer.deadline)
		return
	}
	if kind != timerProbe && kind != timerReorder { // armRTO uses the time that these took
		e.timer.kind = timerNone
	}
	switch {
	case kind == timerProbe:
		e.sendProbe(now)
	case kind == timerReorder:
		e.rackTimeout(now)
	case kind == timerPersist:
		e.persistTimeout(now)
	case e.state == SynSent || e.state == SynReceived:
		e.synTimeout(now)
	default:
		e.retransmitTimeout(now)
	}
}

func (e *Endpoint) setTimer(kind timerKind, at event.Time) {
	t := &e.timer
	at = e.onTick(at)
	t.kind, t.deadline = kind, at
	if !t.event.Pending() || t.event.At() > at {
		e.stack.Queue.Set(&t.event, at)
	}
}

// onTick returns when a timer for at expires if timers have a granularity: the remaining time in whole ticks, rounded
// up, from the latest tick (Linux: jiffies + usecs_to_jiffies).
func (e *Endpoint) onTick(at event.Time) event.Time {
	tick := e.profile.Tick
	if tick == 0 {
		return at
	}
	now := e.stack.Queue.Now()
	return (now/tick + (at-now+tick-1)/tick) * tick
}

func (e *Endpoint) clearTimer() { e.timer.kind = timerNone }

// stopTimers ends all timers at once.
func (e *Endpoint) stopTimers() {
	e.clearTimer()
	e.ack.deadline = 0
	e.stack.Queue.Stop(&e.timer.event)
	e.stack.Queue.Stop(&e.ack.event)
	e.stack.Queue.Stop(&e.small.event)
}

// armRTO sets the retransmission timer (RFC 6298 5.1, 5.3). If a shorter timer ran, the time since the first segment
// was sent counts (Linux: tcp_rearm_rto).
func (e *Endpoint) armRTO(now event.Time) {
	if e.board.len() == 0 {
		e.clearTimer()
		return
	}
	at := now + e.rtt.rto
	if e.timer.kind == timerProbe || e.timer.kind == timerReorder {
		at = max(e.board.at(e.board.head).sent+e.rtt.rto, now+event.Microsecond)
	}
	e.setTimer(timerRTO, at)
}

// armProbe sets the probe's timer, PTO of RFC 8985 7.2, if a probe may be sent. advancing: an ACK has just moved
// SND.UNA, and the RTO would restart. Linux: tcp_schedule_loss_probe.
func (e *Endpoint) armProbe(now event.Time, advancing bool) bool {
	p := e.profile
	if !p.TLP || !e.sackOK || e.recovery != Open && e.recovery != CWR || e.board.len() == 0 {
		return false
	}
	wait := p.InitialRTO
	if e.rtt.srtt8 > 0 {
		wait = e.rtt.srtt8>>2 + p.ProbeSlack
		if e.board.len() == 1 {
			wait = e.rtt.srtt8>>2 + p.WorstDelayedACK
		}
	}
	rto := e.rtt.rto
	if !advancing {
		rto = e.board.at(e.board.head).sent + rto - now
	}
	if rto > 0 {
		wait = min(wait, rto)
	}
	e.setTimer(timerProbe, now+wait)
	return true
}

// sendProbe sends new data, or the last segment again (RFC 8985 7.3; Linux: tcp_send_loss_probe). Only one probe is in
// flight at a time.
func (e *Endpoint) sendProbe(now event.Time) {
	r := &e.rec
	if !r.probing && e.board.len() > 0 {
		r.probeCopy = false
		sent := e.push(now, true) > 0
		if n := e.board.tail - 1; !sent && e.board.at(n).flags&segSacked == 0 && e.mayRetransmit(n, now) {
			e.sendCopy(n, now)
			sent, r.probeCopy = true, true
		}
		if sent {
			e.counters.Probes++
			r.probing, r.probeEnd = true, e.nxt
			e.timer.kind = timerNone // the RTO counts from now
		}
	}
	e.armRTO(now)
	e.observe(TraceProbe)
}

// probeACK processes an ACK for the probe (RFC 8985 7.4.2; Linux: tcp_process_tlp_ack). If the probe was a
// retransmission and no DSACK or duplicate ACK answers it, it has repaired a loss.
func (e *Endpoint) probeACK(w *ackWork, now event.Time) {
	r := &e.rec
	if before(e.una, r.probeEnd) {
		return
	}
	switch {
	case !r.probeCopy, w.flags&ackDSACKProbe != 0:
		r.probing = false
	case after(e.una, r.probeEnd):
		e.beginReduction(CauseLoss, false, now)
		e.setRecovery(CWR)
		e.endReduction()
		e.keepOpen()
	case w.flags&(ackAdvanced|ackNotDup|ackSacked) == 0:
		r.probing = false
	}
}

// retransmitTimeout is RFC 6298 5.4 to 5.6 (Linux: tcp_retransmit_timer).
func (e *Endpoint) retransmitTimeout(now event.Time) {
	if e.board.len() == 0 {
		return
	}
	p := e.profile
	shrunk := e.sndWnd == 0 // the peer shrank its window: this is a window probe, and no sign of loss
	if !shrunk && int(e.rec.retries) >= p.Retries {
		e.finish(ErrTimeout) // R2
		return
	}
	if !shrunk {
		e.classify()
	}
	e.enterLoss(now)
	if !shrunk {
		e.rec.retries++
	}
	e.retransmit(e.board.head, now)
	e.rtt.backOff(p)
	e.setTimer(timerRTO, now+e.rtt.rto)
	e.observe(TraceTimeout)
}

// persistInterval returns the RTO, doubled for each probe (RFC 9293 3.8.6.1; Linux: tcp_probe0_when).
func (e *Endpoint) persistInterval() event.Time {
	base := max(e.rtt.rto, e.profile.RTOMin)
	for range e.timer.backoff {
		if base *= 2; base >= e.profile.RTOMax {
			return e.profile.RTOMax
		}
	}
	return base
}

// persistTimeout probes a window that is too small (RFC 9293 3.8.6.1; Linux: tcp_send_probe0). It sends data if some
// fits.
func (e *Endpoint) persistTimeout(now event.Time) {
	t := &e.timer
	if e.board.len() > 0 || e.unsent == 0 && (!e.finQueued || e.finSent) || !e.maySend() {
		t.backoff, t.probes = 0, 0
		return
	}
	if int(t.probes) >= e.profile.Retries {
		e.finish(ErrTimeout)
		return
	}
	if room := int64(int32(e.windowEnd() - e.nxt)); room > 0 && e.unsent > 0 {
		t.backoff = 0
		e.sendNew(uint32(min(room, e.unsent, int64(e.mss))), now)
		return
	}
	e.sendWindowProbe()
	t.probes++
	if int(t.backoff) < e.profile.Retries {
		t.backoff++
	}
	e.setTimer(timerPersist, now+e.persistInterval())
}

// persistACK processes an ACK while nothing is in flight: the window is open, or the probes continue (Linux:
// tcp_ack_probe).
func (e *Endpoint) persistACK(now event.Time) {
	if e.unsent == 0 && (!e.finQueued || e.finSent) || !e.maySend() {
		return
	}
	if e.nextBytes() >= 0 {
		e.timer.backoff = 0
		if e.timer.kind == timerPersist {
			e.clearTimer()
		}
		return
	}
	e.setTimer(timerPersist, now+e.persistInterval())
}
