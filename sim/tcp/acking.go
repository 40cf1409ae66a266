package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// acking is the receiver's side of acknowledgements.
type acking struct {
	event     event.Event // delayed ACK; lazy: it may happen before deadline
	deadline  event.Time  // 0: none
	last      event.Time  // when data last arrived (lrcvtime)
	quick     int32       // number of ACKs that still go at once
	scheduled bool        // data arrived that was not acknowledged
	now       bool        // acknowledge it at once
	pushed    bool        // the end of a write arrived (ICSK_ACK_PUSHED)
	pingpong  bool        // the program answers what it reads, and its answers carry ACKs
	begun     bool        // data has arrived
	ect       bool        // ECT data has arrived (TCP_ECN_SEEN)

	echo bool // RFC 3168: ECE until CWR (TCP_ECN_DEMAND_CWR)
	ce   bool // RFC 8257 3.2: DCTCP.CE
	cwr  bool // sender: CWR with the next new data (TCP_ECN_QUEUE_CWR)
}

// dataArrived schedules an ACK (Linux: tcp_event_data_recv).
func (e *Endpoint) dataArrived(pk *network.Packet, now event.Time) {
	a := &e.ack
	a.scheduled = true
	if n := uint32(pk.Payload()); n > e.rcvMSS {
		e.rcvMSS = n
	}
	if pk.Flags()&network.PSH != 0 {
		a.pushed = true
	}
	if !a.begun {
		a.begun = true
		e.quick(e.profile.QuickACKs)
	} else if now-a.last > e.rtt.rto {
		e.quick(e.profile.QuickACKs) // the sender restarts with a small window
	}
	a.last = now
}

// quick sends up to that many ACKs at once, unless the program answers. The number is half the window in segments, at
// least 2 (Linux: tcp_incr_quickack).
func (e *Endpoint) quick(most int) {
	if most <= 0 {
		return
	}
	n := max(2, (e.rcvEdge-e.rcvNxt)/(2*e.rcvMSS))
	e.ack.quick = max(e.ack.quick, int32(min(n, uint32(most))))
}

// quicken does the same in any case, and assumes that the program does not answer (Linux: tcp_enter_quickack_mode).
func (e *Endpoint) quicken(most int) {
	if most > 0 {
		e.quick(most)
		e.ack.pingpong = false
	}
}

// checkACK sends an ACK now, or schedules it (Linux: __tcp_ack_snd_check, tcp_cleanup_rbuf; RFC 5681 4.2).
func (e *Endpoint) checkACK(now event.Time) {
	a := &e.ack
	if !a.scheduled && !a.now {
		return
	}
	p := e.profile
	switch {
	case a.now, p.DelayedACK == 0, len(e.early) > 0,
		e.rcvNxt-e.rcvAcked > e.rcvMSS && e.wouldOpen(),
		a.quick > 0 && !a.pingpong,
		p.ACKPushed && a.pushed && !a.pingpong && !e.paused:
		e.sendACK()
	case a.deadline == 0:
		a.deadline = e.onTick(now + p.DelayedACK)
		if !a.event.Pending() || a.event.At() > a.deadline {
			e.stack.Queue.Set(&a.event, a.deadline)
		}
	}
}

// wouldOpen reports whether an ACK would move the window's right edge. If not, windowUpdate sends the ACK when the
// program reads.
func (e *Endpoint) wouldOpen() bool { return !e.paused || e.room() > 0 }

// room returns the free space of the receive buffer, in bytes.
func (e *Endpoint) room() int64 { return max(0, e.profile.Buffer-e.unread) }

// offer returns the window field for a segment that is sent now, and moves the right edge. The edge moves by at least a
// segment or half the buffer, to avoid small windows (RFC 1122 4.2.3.3). It never moves left (RFC 9293 3.8.6).
func (e *Endpoint) offer() uint16 {
	shift := e.rcvShift & 15 // at most 14, which the compiler does not know
	unit := int64(1) << shift
	room := min(e.room()&^(unit-1), 65535<<shift)
	open := int64(e.rcvEdge - e.rcvNxt)
	if before(e.rcvEdge, e.rcvNxt) {
		open = 0
	}
	if room < open || e.unread > 0 && room-open < min(int64(e.rcvMSS), e.profile.Buffer/2) {
		room = min((open+unit-1)&^(unit-1), 65535<<shift)
	}
	if edge := e.rcvNxt + uint32(room); after(edge, e.rcvEdge) {
		e.rcvEdge = edge
	}
	return uint16(room >> shift)
}

// windowUpdate sends an ACK after the program has read, if that opens the window enough.
func (e *Endpoint) windowUpdate() {
	switch e.state {
	case Established, FinWait1, FinWait2:
	default:
		return
	}
	open := max(0, int64(int32(e.rcvEdge-e.rcvNxt)))
	if e.room()-open >= min(int64(e.rcvMSS), max(1, e.profile.Buffer/2)) || e.ack.scheduled {
		e.sendACK()
	}
}

// sendACK sends a pure ACK.
func (e *Endpoint) sendACK() {
	pk := e.header(network.ACK, e.nxt, 0)
	e.counters.ACKs++
	e.acknowledged()
	e.stack.send(e.host, pk)
}

// acknowledged notes that a segment with ACK is sent (Linux: tcp_event_ack_sent).
func (e *Endpoint) acknowledged() {
	a := &e.ack
	e.rcvAcked = e.rcvNxt
	if a.quick > 0 && a.scheduled {
		a.quick--
	}
	a.scheduled, a.now, a.pushed = false, false, false
	a.deadline = 0
}

// takeCWR ends the echo of ECE (RFC 3168 6.1.3). The sender's window may be small, so the next ACKs are not delayed.
func (e *Endpoint) takeCWR() {
	if !e.exactECN {
		e.ack.echo = false
		e.ack.now = true
	}
}

// checkCE processes the mark of new data. RFC 3168 6.1.3: ECE until CWR. RFC 8257 3.2: ACKs report for each segment
// whether it was marked; data that arrived before a change is acknowledged with the old state.
func (e *Endpoint) checkCE(pk *network.Packet) {
	if !e.ecnOK {
		return
	}
	marked := pk.ECN() == network.CE
	if marked {
		e.counters.Marks++
	}
	a := &e.ack
	if e.exactECN {
		if marked != a.ce {
			if a.scheduled {
				e.sendACK()
			}
			a.ce = marked
			a.now = true
		}
		return
	}
	switch {
	case marked && !a.echo:
		a.echo = true
		e.quicken(min(2, e.profile.QuickACKs))
	case pk.ECN() == 0 && a.ect: // surely a retransmission: the sender's window may be small
		e.quicken(min(2, e.profile.QuickACKs))
	}
	a.ect = a.ect || pk.ECN() != 0
}

// echoes reports whether ECE must be set.
func (e *Endpoint) echoes() bool {
	if e.exactECN {
		return e.ack.ce
	}
	return e.ack.echo
}

// delayedTimer is the event of delayed ACKs.
type delayedTimer Endpoint

// Happen sends a delayed ACK.
func (t *delayedTimer) Happen(ev *event.Event, now event.Time) {
	e := (*Endpoint)(t)
	switch {
	case e.ack.deadline == 0:
	case now < e.ack.deadline:
		e.stack.Queue.Set(ev, e.ack.deadline)
	default:
		// The assumption was wrong: the program does not answer, and no more data arrives (Linux:
		// tcp_delack_timer_handler).
		e.ack.deadline = 0
		e.ack.pingpong = false
		e.sendACK()
	}
}
