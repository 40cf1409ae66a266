package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// handshake is the state that is needed until a connection is established.
type handshake struct {
	first   event.Time // when the SYN or SYN-ACK was first sent
	sent    event.Time // and last sent
	copies  int32      // how often it was sent
	retries int32      // of these, after a timeout
	peerMSS uint32
	asked   bool   // this side's SYN asked for ECN
	order   uint32 // of the last transmission
	scaled  bool   // both ends offered a window scale
}

// dial sends the first SYN.
func (e *Endpoint) dial() {
	e.state = SynSent
	e.syn.asked = e.profile.ECN
	e.syn.first = e.stack.Queue.Now()
	e.sendSYN()
	e.setTimer(timerRTO, e.syn.first+e.rtt.rto)
}

// sendSYN sends the SYN of SYN-SENT or the SYN-ACK of SYN-RECEIVED, for the first time or again.
func (e *Endpoint) sendSYN() {
	p := e.profile
	e.order++
	e.syn.copies++
	pk := e.header(network.SYN, e.iss, 0)
	window := min(p.Buffer, 65535) // never scaled in a SYN (RFC 7323 2.2)
	pk.SetWindow(uint16(window))
	pk.SetMSS(uint16(p.MSS))
	options := int32(4)
	if p.scale >= 0 && (e.state == SynSent || e.syn.scaled) {
		pk.SetScale(p.scale)
		options += 3
	}
	if e.state == SynSent && p.SACK || e.state != SynSent && e.sackOK {
		pk.SetSACKPermitted(true)
		options += 2
	}
	if p.Timestamps {
		options += 10
	}
	pk.SetBytes(network.HeaderBytes + (options+3)&^3)
	if e.state == SynSent {
		pk.SetFlags(network.SYN)
		if e.syn.asked {
			pk.SetFlags(pk.Flags() | (network.ECE | network.CWR)) // RFC 3168 6.1.1
		}
	} else {
		pk.SetFlags(network.SYN | network.ACK)
		pk.SetAck(e.rcvNxt)
		e.rcvAcked = e.rcvNxt
		if e.ecnOK {
			pk.SetFlags(pk.Flags() | network.ECE)
		}
	}
	if p.ECTOnSYN && (e.ecnOK || e.state == SynSent && e.syn.asked) {
		pk.SetECN(network.ECT0)
	}
	e.nxt = e.iss + 1
	if e.rcvEdge-e.rcvNxt < uint32(window) {
		e.rcvEdge = e.rcvNxt + uint32(window)
	}
	e.syn.order, e.syn.sent = e.order, e.stack.Queue.Now()
	e.stack.send(e.host, pk)
}

// synArrives begins a connection at a listener, or a simultaneous open (RFC 9293 3.10.7.2, 3.10.7.3).
func (e *Endpoint) synArrives(pk *network.Packet, now event.Time) {
	e.state = SynReceived
	e.takeSYN(pk)
	e.ecnOK = e.profile.ECN && pk.Flags()&(network.ECE|network.CWR) == network.ECE|network.CWR
	e.syn.first, e.syn.copies, e.syn.retries = now, 0, 0
	e.order = 0
	e.sendSYN()
	e.setTimer(timerRTO, now+e.rtt.rto)
}

// takeSYN takes the peer's sequence number and options.
func (e *Endpoint) takeSYN(pk *network.Packet) {
	p := e.profile
	e.irs, e.rcvNxt = pk.Seq(), pk.Seq()+1
	e.rcvAcked, e.rcvEdge = e.rcvNxt, e.rcvNxt+uint32(min(p.Buffer, 65535))
	e.wl1 = pk.Seq() + 1 // the first duplicate ACK does not update the window
	e.sndWnd = uint32(pk.Window())
	e.maxWnd = e.sndWnd
	e.sackOK = p.SACK && pk.SACKPermitted()
	e.useRACK = e.sackOK && p.RACK
	if p.scale >= 0 && pk.Scale() >= 0 { // both or none (RFC 7323 2.2)
		e.sndShift, e.rcvShift = uint8(min(pk.Scale(), maxScale)), uint8(p.scale)
		e.syn.scaled = true
	}
	e.syn.peerMSS = uint32(pk.MSS())
	if pk.MSS() == 0 {
		e.syn.peerMSS = 536 // RFC 9293 3.7.1
	}
	// The packet has no field for the timestamp option, so the settings of both ends are compared.
	if o := e.other(); o != nil {
		e.timestamps = p.Timestamps && o.profile.Timestamps
	}
	e.mss = max(1, min(uint32(p.MSS), e.syn.peerMSS))
	if e.timestamps && e.mss > timestampBytes {
		e.mss -= timestampBytes
	}
	if e.timestamps {
		e.recent = uint32(pk.Tag())
	}
}

// arriveSynSent is RFC 9293 3.10.7.3.
func (e *Endpoint) arriveSynSent(pk *network.Packet, now event.Time) {
	if pk.Flags()&network.ACK != 0 && pk.Ack() != e.nxt {
		if pk.Flags()&network.RST == 0 {
			e.stack.refuse(e.host, pk)
		}
		return
	}
	switch {
	case pk.Flags()&network.RST != 0:
		if pk.Flags()&network.ACK != 0 {
			e.finish(ErrRefused)
		}
	case pk.Flags()&network.SYN == 0:
	case pk.Flags()&network.ACK == 0:
		e.synArrives(pk, now) // both ends dialled each other
	default:
		e.takeSYN(pk)
		e.ecnOK = e.syn.asked && pk.Flags()&(network.ECE|network.CWR) == network.ECE
		e.una = pk.Ack()
		e.state = Established
		if e.finQueued {
			e.state = FinWait1
		}
		e.measureSYN(pk, now)
		e.established(now)
		e.sendACK()
		e.reportConnected()
	}
}

// handshakeDone ends SYN-RECEIVED: pk acknowledges the SYN-ACK. The caller processes its data, if any.
func (e *Endpoint) handshakeDone(pk *network.Packet, now event.Time) {
	e.una = e.iss + 1
	e.state = Established
	if e.finQueued {
		e.state = FinWait1
	}
	e.sndWnd = uint32(pk.Window())
	if pk.Flags()&network.SYN == 0 {
		e.sndWnd <<= e.sndShift
	}
	if e.profile.SYNWindowUncounted && e.listener != nil {
		e.maxWnd = 0
	}
	e.maxWnd = max(e.maxWnd, e.sndWnd)
	e.wl1 = pk.Seq()
	e.measureSYN(pk, now)
	e.established(now)
	if e.listener != nil && e.app == nil {
		e.app = e.listener.accept(e)
	}
}

// measureSYN takes the first RTT (RFC 6298 2.2), or falls back if there is none (5.7). With timestamps the echo
// identifies the copy that was answered, as in Linux.
func (e *Endpoint) measureSYN(pk *network.Packet, now event.Time) {
	echo := uint32(pk.Tag() >> 32)
	switch {
	case e.syn.copies == 1, e.timestamps && echo == 1:
		e.rtt.sample(e.profile, now-e.syn.first, e.una, e.nxt)
	case e.timestamps && echo == e.syn.order:
		e.rtt.sample(e.profile, now-e.syn.sent, e.una, e.nxt)
	default:
		e.rtt.fallback(e.profile)
	}
}

// established sets the first window: RFC 6928, or one segment if SYNs were lost (RFC 5681 3.1).
func (e *Endpoint) established(now event.Time) {
	p := e.profile
	e.clearTimer()
	initial := p.InitialWindow
	if p.SYNLossWindow > 0 && int(e.syn.copies) > p.SYNLossWindow {
		initial = 1
	}
	e.win.Start(initial, p.ClampWindow)
	e.usage.end, e.usage.stamp = e.nxt, now
	e.rec.high = e.una
	e.lastSent = now
	s := e.fillSample(now)
	e.cc.Start(&e.win, s)
	e.observe(TraceState)
}

// reportConnected calls the program, and sends what it wrote meanwhile.
func (e *Endpoint) reportConnected() {
	if e.app != nil {
		index := e.index
		if e.app.Connected(e); e.gone(index) {
			return
		}
	}
	e.push(e.stack.Queue.Now(), false)
}

// synTimeout retransmits SYN or SYN-ACK, after twice the time (RFC 6298 5.5), or gives up.
func (e *Endpoint) synTimeout(now event.Time) {
	p := e.profile
	if int(e.syn.retries) >= p.SYNRetries {
		e.finish(ErrTimeout)
		return
	}
	e.syn.retries++
	e.counters.SYNTimeouts++
	if p.ECNFallback && e.state == SynSent {
		e.syn.asked = false
	}
	e.rtt.backOff(p)
	e.sendSYN()
	e.setTimer(timerRTO, now+e.rtt.rto)
	e.observe(TraceTimeout)
}
