package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// arrive takes a segment (RFC 9293 3.10.7). The program is told last, when all else is done.
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
	e.tell(got)
}

// acceptable is the check of RFC 9293 3.10.7.4 (first), as Linux has it (tcp_sequence): the segment
// touches what lies between what was acknowledged last and the window's right edge.
func (e *Endpoint) acceptable(pk *network.Packet) bool {
	end := pk.Seq() + uint32(pk.Payload()) + syntheticBytes(pk.Flags())
	return !before(end, e.rcvAcked) && !after(pk.Seq(), e.rcvEdge)
}

// unacceptable answers a segment outside the window with an ACK, unless it resets.
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

// unusual takes RST, SYN, and segments without ACK (RFC 9293 3.10.7.4, second to fifth; RFC 5961). It says
// whether to go on with the segment.
func (e *Endpoint) unusual(pk *network.Packet) bool {
	switch {
	case pk.Flags()&network.RST != 0:
		if pk.Seq() != e.rcvNxt {
			e.sendACK() // a challenge: RFC 5961 3.2
			return false
		}
		if e.state == TimeWait {
			if e.held == 0 { // what a paused program has not read is its own, and it is still to be told of the end
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

// tell reports what happened in this event to the program, and frees the connection if it is over. The
// program may end the connection from within, and even begin another that gets this Endpoint.
func (e *Endpoint) tell(got int64) {
	if e.app != nil && (got > 0 || e.finTaken || e.WantAcknowledged) && !e.tellProgram(got) {
		return
	}
	switch {
	case e.held > 0:
		return // a paused program has not read all
	case e.state == LastAck && e.finAcked:
		e.state = Closed
	case e.state != TimeWait:
		return
	}
	e.stopTimers()
	e.observe(TraceState)
	e.stack.retire(e.index)
}

// tellProgram says whether the connection is still there.
func (e *Endpoint) tellProgram(got int64) bool {
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
	if e.finTaken && !e.finTold && e.held == 0 {
		e.finTold = true
		if app.Finished(e); e.gone(index) {
			return false
		}
	}
	return true
}

// gone says whether the connection of that index has no use for this Endpoint any more.
func (e *Endpoint) gone(index int32) bool { return e.index != index || e.state == Closed }

// allAcknowledged says whether every byte sent was acknowledged; a FIN need not be.
func (e *Endpoint) allAcknowledged() bool {
	if e.una == e.nxt {
		return true
	}
	return e.finSent && e.una+1 == e.nxt
}

// finAcknowledged is RFC 9293 3.10.7.4, fifth: what the ACK of our FIN means.
func (e *Endpoint) finAcknowledged() {
	e.finAcked = true
	switch e.state {
	case FinWait1:
		e.state = FinWait2
	case Closing:
		e.state = TimeWait
	}
	// LAST-ACK ends in tell, after the program was told of the last bytes.
}

// finArrived is RFC 9293 3.10.7.4, eighth: the peer's FIN has its turn.
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
