package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// maxBlockBytes is a SACK option with four blocks, padded.
const maxBlockBytes = 36

// push sends new data and FIN as far as cwnd, the peer's window and Nagle allow (Linux: tcp_write_xmit). With probe it
// sends one segment without regard to cwnd (TLP). It returns how many segments were sent.
func (e *Endpoint) push(now event.Time, probe bool) uint32 {
	if e.unsent == 0 && (!e.finQueued || e.finSent) || !e.maySend() {
		return 0
	}
	sent := uint32(0)
	limited := false
	room := uint32(0) // how many more segments fit into the packet that is being built (Linux: TSO)
	for e.unsent > 0 || e.finQueued && !e.finSent {
		if e.flight() >= e.win.Cwnd && (!probe || sent > 0) {
			limited = true
			break
		}
		if e.throttled(now) && !probe {
			break
		}
		begun := room > 0
		if !begun {
			room = e.packetSegments()
		}
		n := e.nextBytes()
		if n < 0 && begun && !probe {
			n = e.restOfWindow()
		}
		if n < 0 || e.board.len() >= maxSegments {
			break
		}
		e.sendNew(uint32(n), now)
		sent++
		room--
		if probe {
			break
		}
	}
	if sent > 0 || limited {
		e.validate(limited || e.inFlight() >= e.win.Cwnd, now)
	}
	if sent > 0 {
		if e.reducing() {
			e.rec.prrOut += sent
		}
		if !probe {
			e.armProbe(now, false)
		}
	} else if e.board.len() == 0 && e.timer.kind == timerNone {
		e.setTimer(timerPersist, now+e.persistInterval())
	}
	return sent
}

// maySend reports whether data and FIN may be sent in this state (RFC 9293 3.10.2).
func (e *Endpoint) maySend() bool {
	const states = 1<<Established | 1<<CloseWait | 1<<FinWait1 | 1<<Closing | 1<<LastAck
	return states>>e.state&1 != 0
}

// inFlight is Linux's tcp_packets_in_flight, the pipe of RFC 6675.
func (e *Endpoint) inFlight() uint32 {
	return e.board.len() - e.sackedOut - e.lostOut + e.retransOut
}

// flight returns the segments that count against cwnd for new data. Without limited transmit the first duplicates do
// not reduce it (RFC 5681 3.2 (1)).
func (e *Endpoint) flight() uint32 {
	if e.recovery == Disorder && !e.profile.LimitedTransmit {
		return e.board.len() + e.retransOut
	}
	return e.inFlight()
}

// windowEnd returns the right edge of the peer's window.
func (e *Endpoint) windowEnd() uint32 { return e.una + e.sndWnd }

// segmentBytes returns the payload of a full segment. It is at most half of the largest window ever offered, so that
// small buffers get two segments (Linux: tcp_bound_to_half_wnd).
func (e *Endpoint) segmentBytes() uint32 {
	if e.maxWnd > 536 {
		return min(e.mss, max(e.maxWnd/2, 48))
	}
	if e.maxWnd > 0 {
		return min(e.mss, max(e.maxWnd, 48))
	}
	return e.mss
}

// nextBytes returns the payload of the next new segment (0: a bare FIN), or -1 if none may be sent now. The window must
// have room for all of it (RFC 1122 4.2.3.4: no silly windows). With Nagle a small one waits until the last small one
// is acknowledged (Minshall).
func (e *Endpoint) nextBytes() int64 {
	full := e.segmentBytes()
	n := uint32(min(e.unsent, int64(full)))
	end := e.nxt + n
	if e.finQueued && int64(n) == e.unsent {
		end++
	}
	if after(end, e.windowEnd()) {
		if n == 0 || after(e.nxt+n, e.windowEnd()) {
			return -1
		}
	}
	if e.profile.Nagle && n < full && !e.finQueued && e.board.len() > 0 && e.hasNagle && after(e.nagle, e.una) {
		return -1
	}
	return int64(n)
}

// packetSegments returns the largest number of segments for the next packet: as many as cwnd allows, but at most half
// of cwnd, so that two packets are in flight (Linux: tcp_cwnd_test). It is at least 1.
func (e *Endpoint) packetSegments() uint32 {
	flight := e.flight()
	if flight >= e.win.Cwnd {
		return 1
	}
	return min(max(e.win.Cwnd/2, 1), e.win.Cwnd-flight)
}

// restOfWindow returns the room in the window after the full segments of a packet, if it is less than the next segment.
// -1: no room, or it must not be used. Linux puts several segments into one packet (TSO) and fills the window with it,
// unless Nagle forbids the small segment (tcp_mss_split_point). Without it a window of one to two segments is one
// segment, and its receiver waits for a second one before it acknowledges. This happens with a cwnd below 4, because a
// packet is then one segment (packetSegments). So a flow that lost a segment under a window of one segment is slow
// until its cwnd has grown.
func (e *Endpoint) restOfWindow() int64 {
	left := int64(int32(e.windowEnd() - e.nxt))
	if !e.profile.FillWindow || left <= 0 || left >= e.unsent || left >= int64(e.segmentBytes()) {
		return -1
	}
	if e.profile.Nagle && e.hasNagle && after(e.nagle, e.una) {
		return -1
	}
	return left
}

// sendNew sends n bytes of new data, and FIN with the last of them if it is due and the window has room.
func (e *Endpoint) sendNew(n uint32, now event.Time) {
	e.unsent -= int64(n)
	flags := uint16(network.ACK)
	own := uint8(0)
	bytes := n
	if e.unsent == 0 {
		if n > 0 {
			flags |= network.PSH
		}
		if e.finQueued && !after(e.nxt+n+1, e.windowEnd()) {
			flags |= network.FIN
			own = segFIN
			bytes++
			e.finSent = true
		}
	}
	e.order++
	empty := e.board.len() == 0
	*e.board.push() = segment{sent: now, seq: e.nxt, bytes: bytes, order: e.order, flags: own}
	pk := e.header(flags, e.nxt, int32(n))
	e.entering(n)
	if e.ecnOK && n > 0 {
		pk.SetECN(network.ECT0) // RFC 3168 6.1.5: new data only
		if e.ack.cwr {
			pk.SetFlags(pk.Flags() | network.CWR)
			e.ack.cwr = false
		}
	}
	if n < e.mss {
		e.nagle, e.hasNagle = e.nxt+n, true
	}
	e.nxt += bytes
	e.counters.Segments++
	e.counters.Bytes += int64(n)
	e.answered(now)
	e.lastSent = now
	if empty || e.timer.kind == timerProbe {
		e.armRTO(now)
	}
	e.carriedACK(pk)
	e.stack.send(e.host, pk)
	e.leaving(e.board.at(e.board.tail - 1))
}

// carriedACK notes that data carried an ACK. If the segment had no room for SACK blocks, a pure ACK follows.
func (e *Endpoint) carriedACK(pk *network.Packet) {
	if e.nSacks == 0 && !e.hasDSACK || pk.NBlocks() > 0 {
		e.acknowledged()
	}
}

// answered notes a program that writes soon after it read (Linux: tcp_event_data_sent).
func (e *Endpoint) answered(now event.Time) {
	if e.ack.begun && now-e.ack.last < max(e.profile.DelayedACK, 1) {
		e.ack.pingpong = true
	}
}

// mayRetransmit reports whether segment n can be retransmitted now. A segment beyond the peer's shrunken window waits;
// the first one is sent as a probe. A segment that has not left the NIC yet waits too (Linux: skb_still_in_host_queue).
func (e *Endpoint) mayRetransmit(n uint32, now event.Time) bool {
	s := e.board.at(n)
	return (n == e.board.head || before(s.seq, e.windowEnd())) && s.leaves <= now
}

// retransmit retransmits segment n in recovery (Linux: tcp_retransmit_skb). It reports whether it could.
func (e *Endpoint) retransmit(n uint32, now event.Time) bool {
	if !e.mayRetransmit(n, now) {
		return false
	}
	s := e.board.at(n)
	if s.flags&segRetrans == 0 {
		e.retransOut++
		if s.flags&segLost != 0 {
			e.lostPending--
		}
	}
	s.flags |= segRetrans
	e.rec.retransmitted(e.order + 1)
	e.sendCopy(n, now)
	return true
}

// sendCopy sends segment n again. The copy of a probe is not counted, because the segment itself counts as in flight
// (Linux: __tcp_retransmit_skb).
func (e *Endpoint) sendCopy(n uint32, now event.Time) {
	s := e.board.at(n)
	e.order++
	s.flags |= segEver
	s.sent, s.order = now, e.order
	if e.useRACK {
		e.copies.push(n, e.order)
	}
	flags := uint16(network.ACK)
	payload := s.bytes
	if s.flags&segFIN != 0 {
		payload--
		flags |= network.FIN
	}
	if payload > 0 && s.end() == e.nxt {
		flags |= network.PSH
	}
	pk := e.header(flags, s.seq, int32(payload))
	e.entering(payload)
	e.counters.Retransmitted++
	if payload > 0 {
		e.answered(now)
		e.lastSent = now
	}
	e.carriedACK(pk)
	e.stack.send(e.host, pk)
	e.leaving(s)
}

// header builds a segment with all fields that do not depend on why it is sent.
func (e *Endpoint) header(flags uint16, seq uint32, payload int32) *network.Packet {
	pk := e.stack.Net.NewPacket()
	pk.SetEnds(e.host, e.peer, e.port, e.peerPort)
	pk.SetProto(network.TCP)
	pk.SetConn(e.index)
	pk.SetToAcceptor(e.side == 0)
	pk.SetHash(e.hash)
	pk.SetSeq(seq)
	pk.SetPayload(payload)
	pk.SetTag(uint64(e.recent)<<32 | uint64(e.order))
	pk.SetBytes(network.HeaderBytes + payload)
	if flags&network.SYN != 0 {
		return pk // its caller sets the rest
	}
	pk.SetAck(e.rcvNxt)
	pk.SetWindow(e.offer())
	if e.echoes() {
		flags |= network.ECE
	}
	pk.SetFlags(flags)
	if e.profile.ECTAlways && e.ecnOK {
		pk.SetECN(network.ECT0)
	}
	if e.timestamps {
		pk.SetBytes(pk.Bytes() + timestampBytes)
	}
	if (e.nSacks > 0 || e.hasDSACK) && payload+maxBlockBytes <= int32(e.mss) {
		pk.SetBytes(pk.Bytes() + e.fillBlocks(pk))
	}
	return pk
}

// sendReset sends the RST of Abort (RFC 9293 3.10.5).
func (e *Endpoint) sendReset() {
	pk := e.header(network.RST|network.ACK, e.nxt, 0)
	pk.SetFlags(pk.Flags() &^ network.ECE)
	e.stack.send(e.host, pk)
}

// sendWindowProbe asks the peer for its window: a segment of no bytes before SND.UNA, which the peer must answer
// (Linux: tcp_xmit_probe_skb).
func (e *Endpoint) sendWindowProbe() {
	pk := e.header(network.ACK, e.una-1, 0)
	e.counters.Persists++
	e.stack.send(e.host, pk)
}
