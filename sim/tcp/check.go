package tcp

import "fmt"

// Check returns an error if a condition is violated that must be true of an endpoint between events. It is for tests:
// it walks over all segments in flight.
func (e *Endpoint) Check() error {
	if e.state == Closed {
		return nil
	}
	for _, check := range []func() error{e.checkBoard, e.checkCounts, e.checkWindows, e.checkTimers, e.checkReceiver} {
		if err := check(); err != nil {
			return fmt.Errorf("connection %d, side %d, %v, %v: %w", e.index, e.side, e.state, e.recovery, err)
		}
	}
	return nil
}

// checkBoard: the segments in flight cover SND.UNA to SND.NXT without a gap.
func (e *Endpoint) checkBoard() error {
	if e.state == SynSent || e.state == SynReceived {
		if e.board.len() != 0 || e.nxt != e.iss+1 {
			return fmt.Errorf("%d segments, SND.NXT %d during the handshake", e.board.len(), e.nxt)
		}
		return nil
	}
	at := e.una
	for n := e.board.head; n != e.board.tail; n++ {
		s := e.board.at(n)
		if s.seq != at || s.bytes == 0 {
			return fmt.Errorf("segment %d is %d+%d, expected to begin at %d", n, s.seq, s.bytes, at)
		}
		if after(s.order, e.order) {
			return fmt.Errorf("segment %d is transmission %d of %d", n, s.order, e.order)
		}
		at = s.end()
	}
	if at != e.nxt {
		return fmt.Errorf("the segments end at %d, SND.NXT is %d", at, e.nxt)
	}
	sent := uint32(e.written - e.unsent)
	if e.finSent {
		sent++
	}
	if e.unsent < 0 || e.unsent > e.written || e.iss+1+sent != e.nxt {
		return fmt.Errorf("%d bytes written, %d unsent, but SND.NXT - ISS is %d", e.written, e.unsent, e.nxt-e.iss)
	}
	return nil
}

// checkCounts: Linux's counts equal those of the flags.
func (e *Endpoint) checkCounts() error {
	var sacked, lost, retrans, pending uint32
	for n := e.board.head; n != e.board.tail; n++ {
		f := e.board.at(n).flags
		if f&segSacked != 0 {
			sacked++
			if f&(segLost|segRetrans) != 0 {
				return fmt.Errorf("segment %d is SACKed and lost or in flight again (%#x)", n, f)
			}
		}
		if f&segLost != 0 {
			lost++
			if f&segRetrans == 0 {
				pending++
			}
		}
		if f&segRetrans != 0 {
			retrans++
		}
	}
	out := e.board.len()
	switch {
	case e.sackOK && sacked != e.sackedOut, lost != e.lostOut, retrans != e.retransOut, pending != e.lostPending:
		return fmt.Errorf("sacked, lost, retransmitted, pending are %d %d %d %d, counted %d %d %d %d",
			sacked, lost, retrans, pending, e.sackedOut, e.lostOut, e.retransOut, e.lostPending)
	case e.sackedOut+e.lostOut > out:
		return fmt.Errorf("sacked %d and lost %d of %d in flight", e.sackedOut, e.lostOut, out)
	case !e.sackOK && sacked != 0:
		return fmt.Errorf("%d segments SACKed without SACK", sacked)
	}
	below := uint32(0)
	for n := e.board.head; before(n, e.rec.judged) && n != e.board.tail; n++ {
		below += uint32(e.board.at(n).flags & segSacked)
	}
	if e.sackOK && !e.profile.RACK && below != e.rec.sackedJudged {
		return fmt.Errorf("%d SACKed among the judged, counted %d", below, e.rec.sackedJudged)
	}
	return nil
}

// checkWindows: cwnd, ssthresh and RTO are in their ranges, and SND.UNA is not after SND.NXT.
func (e *Endpoint) checkWindows() error {
	switch {
	case e.win.Cwnd < 1 || e.win.Cwnd > maxCwnd:
		return fmt.Errorf("cwnd %d", e.win.Cwnd)
	case e.win.Ssthresh < 1:
		return fmt.Errorf("ssthresh %d", e.win.Ssthresh)
	case e.rtt.rto < 1 || e.rtt.rto > e.profile.RTOMax:
		return fmt.Errorf("RTO %d", e.rtt.rto)
	case e.state > SynReceived && after(e.una, e.nxt):
		return fmt.Errorf("SND.UNA %d after SND.NXT %d", e.una, e.nxt)
	}
	return nil
}

// checkTimers: data in flight, or waiting for the window, has a timer, and a timer has an event.
func (e *Endpoint) checkTimers() error {
	t := &e.timer
	if t.kind != timerNone && (!t.event.Pending() || t.event.At() > t.deadline) {
		return fmt.Errorf("timer %d for %d has no event before", t.kind, t.deadline)
	}
	waits := e.board.len() > 0 || e.state == SynSent || e.state == SynReceived ||
		e.maySend() && (e.unsent > 0 || e.finQueued && !e.finSent)
	if waits && t.kind == timerNone {
		return fmt.Errorf("%d segments in flight, %d bytes unsent, and no timer", e.board.len(), e.unsent)
	}
	if e.ack.deadline != 0 && (!e.ack.event.Pending() || e.ack.event.At() > e.ack.deadline) {
		return fmt.Errorf("a delayed ACK for %d has no event before", e.ack.deadline)
	}
	return nil
}

// checkReceiver: early ranges are in order, separate, and after RCV.NXT; reported blocks are part of them.
func (e *Endpoint) checkReceiver() error {
	if after(e.rcvAcked, e.rcvNxt) {
		return fmt.Errorf("acknowledged %d after RCV.NXT %d", e.rcvAcked, e.rcvNxt)
	}
	at := e.rcvNxt
	for i, r := range e.early {
		if !after(r.From, at) || !before(r.From, r.To) {
			return fmt.Errorf("range %d is %d-%d, after %d", i, r.From, r.To, at)
		}
		at = r.To
	}
	for _, b := range e.sacks[:e.nSacks] {
		found := false
		for _, r := range e.early {
			found = found || r == b
		}
		if !found {
			return fmt.Errorf("block %d-%d is reported but was not received", b.From, b.To)
		}
	}
	if len(e.early) > maxEarly || e.unread < 0 {
		return fmt.Errorf("%d ranges, %d unread bytes", len(e.early), e.unread)
	}
	return nil
}
