package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// arrive processes a segment (RFC 9293 3.10.7). It calls the program last.
func (e *Endpoint) arrive(pk *network.Packet, now event.Time) {
	switch e.state {
	case Closed:
		if pk.Flags()&network.RST == 0 {
			e.stack.refuse(e.host, pk) // 3.10.7.1
		}
		return
	case SynSent:
		e.arriveSynSent(pk, now)
		return
	}
	if !e.acceptable(pk) {
		e.unacceptable(pk)
		return
	}
	const usual = network.ACK
	if pk.Flags()&(network.SYN|network.RST|network.ACK) != usual && !e.unusual(pk) {
		return
	}
	connected := false
	if e.state == SynReceived {
		if pk.Ack() != e.nxt {
			e.stack.refuse(e.host, pk)
			return
		}
		e.handshakeDone(pk, now)
		connected = true
	} else if !e.acknowledge(pk, now) {
		return
	}
	got := int64(0)
	if pk.Payload() > 0 || pk.Flags()&network.FIN != 0 {
		got = e.receive(pk, now)
	}
	if connected && e.app != nil {
		index := e.index
		if e.app.Connected(e); e.gone(index) {
			return
		}
	}
	e.push(now, false)
	e.checkACK(now)
	e.report(got)
}

// acceptable is the check of RFC 9293 3.10.7.4 (first), as in Linux (tcp_sequence). The segment must overlap the range
// from the last acknowledged byte to the window's right edge.
func (e *Endpoint) acceptable(pk *network.Packet) bool {
	end := pk.Seq() + uint32(pk.Payload()) + syntheticBytes(pk.Flags())
	return !before(end, e.rcvAcked) && !after(pk.Seq(), e.rcvEdge)
}

// unacceptable answers a segment outside the window with an ACK, unless it has RST.
func (e *Endpoint) unacceptable(pk *network.Packet) {
	if pk.Flags()&network.RST != 0 {
		return
	}
	if pk.Flags()&network.SYN != 0 && e.state == SynReceived {
		e.sendSYN()
		return
	}
	end := pk.Seq() + uint32(pk.Payload()) + syntheticBytes(pk.Flags())
	if end != pk.Seq() {
		e.counters.Duplicates++
		e.noteOrder(pk)
		if before(pk.Seq(), e.rcvNxt) {
			e.quicken(e.profile.QuickACKs)
			e.setDSACK(pk.Seq(), min32(end, e.rcvNxt))
		}
	}
	e.sendACK()
}

// unusual processes RST, SYN, and segments without ACK (RFC 9293 3.10.7.4, second to fifth; RFC 5961). It reports
// whether to process the rest of the segment.
func (e *Endpoint) unusual(pk *network.Packet) bool {
	switch {
	case pk.Flags()&network.RST != 0:
		if pk.Seq() != e.rcvNxt {
			e.sendACK() // a challenge ACK: RFC 5961 3.2
			return false
		}
		if e.state == TimeWait {
			if e.unread == 0 { // a paused program still has to read its data, and to learn of the end
				e.finish(nil)
			}
			return false
		}
		cause := ErrReset
		if e.state == SynReceived {
			cause = ErrRefused
		}
		e.finish(cause)
		return false
	case pk.Flags()&network.SYN != 0:
		if e.state != SynReceived {
			e.sendACK() // RFC 5961 4.2; also: our last ACK of the handshake was lost
			return false
		}
		if pk.Flags()&network.ACK == 0 {
			if pk.Seq() == e.irs {
				e.sendSYN() // the SYN-ACK was lost
			}
			return false
		}
		return true // the SYN-ACK of a simultaneous open
	}
	return pk.Flags()&network.ACK != 0
}

// report calls the program for what happened in this event, and frees the connection if it is over. The program may end
// the connection in these calls, and even begin another one that gets this Endpoint.
func (e *Endpoint) report(got int64) {
	if e.app != nil && (got > 0 || e.finTaken || e.WantAcknowledged) && !e.reportProgram(got) {
		return
	}
	switch {
	case e.unread > 0:
		return // a paused program has not read everything
	case e.state == LastAck && e.finAcked:
		e.state = Closed
	case e.state != TimeWait:
		return
	}
	e.stopTimers()
	e.observe(TraceState)
	e.stack.retire(e.index)
}

// reportProgram makes the calls, and reports whether the connection still exists.
func (e *Endpoint) reportProgram(got int64) bool {
	app, index := e.app, e.index
	if got > 0 {
		if app.Received(e, got); e.gone(index) {
			return false
		}
	}
	if e.WantAcknowledged && !e.wasAcknowledged && e.written > 0 && e.unsent == 0 && e.allAcknowledged() {
		e.wasAcknowledged = true
		if app.Acknowledged(e); e.gone(index) {
			return false
		}
	}
	if e.finTaken && !e.finReported && e.unread == 0 {
		e.finReported = true
		if app.Finished(e); e.gone(index) {
			return false
		}
	}
	return true
}

// gone reports whether the connection of that index no longer uses this Endpoint.
func (e *Endpoint) gone(index int32) bool { return e.index != index || e.state == Closed }

// allAcknowledged reports whether every byte sent was acknowledged; a FIN need not be.
func (e *Endpoint) allAcknowledged() bool {
	if e.una == e.nxt {
		return true
	}
	return e.finSent && e.una+1 == e.nxt
}

// finAcknowledged is RFC 9293 3.10.7.4, fifth: the state changes after the ACK of our FIN.
func (e *Endpoint) finAcknowledged() {
	e.finAcked = true
	switch e.state {
	case FinWait1:
		e.state = FinWait2
	case Closing:
		e.state = TimeWait
	}
	// LAST-ACK ends in report, after the program got the last bytes.
}

// finArrived is RFC 9293 3.10.7.4, eighth: the peer's FIN is next in sequence.
func (e *Endpoint) finArrived() {
	e.finTaken = true
	e.ack.now = true
	switch e.state {
	case Established:
		e.state = CloseWait
	case FinWait1:
		e.state = Closing
	case FinWait2:
		e.state = TimeWait
	}
}

func min32(a, b uint32) uint32 {
	if before(a, b) {
		return a
	}
	return b
}
