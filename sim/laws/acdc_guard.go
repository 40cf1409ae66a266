//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const (
	// Reserved bits of a TCP header. madeECT: a virtual switch made the packet ECT, not the guest. heedsMark: the
	// sender's virtual switch knows the connection and reacts to its marks.
	madeECT     = 1
	heedsMark   = 2
	mostOptions = 40 // bytes of options that a TCP header has room for
)

// Out processes a segment that the virtual switch's host sends. It makes the segment ECT, and writes feedback about
// received data into it. With police, it drops data beyond every window that the guest was granted.
func (a *acdc) Out(host network.NodeID, pk *network.Packet, now event.Time) network.Verdict {
	if pk.Proto() != network.TCP {
		return network.Pass
	}
	e := a.find(placeOf(pk.Conn(), side(pk)))
	if pk.Flags()&(network.SYN|network.RST) == network.SYN {
		e = a.synOut(e, host, pk, now)
	}
	if e == nil {
		return network.Pass
	}
	e.seen = a.sweeps
	if a.police && e.beyond(pk) {
		a.counts.policed++
		return network.Drop
	}
	switch {
	case pk.Flags()&network.RST != 0:
		e.reset = true
	case pk.Payload() > 0 || pk.Flags()&network.FIN != 0:
		e.window.sent(behind(pk), now)
		e.finOut = e.finOut || pk.Flags()&network.FIN != 0
	}
	if pk.ECN() == network.NotECT {
		pk.SetECN(network.ECT0)
		pk.SetReserved(pk.Reserved() | madeECT)
	}
	pk.SetReserved(pk.Reserved() | heedsMark)
	if pk.Flags()&(network.ACK|network.SYN|network.RST) == network.ACK {
		a.report(e, host, pk)
	}
	return network.Pass
}

// synOut processes a SYN or SYN-ACK that the host sends, and returns its end. A SYN begins an end, unless it is a
// retransmission.
func (a *acdc) synOut(e *acdcEnd, host network.NodeID, pk *network.Packet, now event.Time) *acdcEnd {
	if pk.Flags()&network.ACK == 0 && (e == nil || e.own.first != pk.Seq()) {
		e = a.begin(host, placeOf(pk.Conn(), side(pk)), now)
	}
	if e == nil || e.own.seen && e.own.first == pk.Seq() {
		return e
	}
	e.own = synOf(pk)
	e.began, e.granted = false, false // the acceptor aborted, and accepts again
	e.window.una, e.window.nxt = pk.Seq(), pk.Seq()+1
	e.start(a, now)
	return e
}

// synIn processes a SYN or SYN-ACK that came for the host, and returns its end.
func (a *acdc) synIn(e *acdcEnd, host network.NodeID, pk *network.Packet, now event.Time) *acdcEnd {
	if pk.Flags()&network.ACK == 0 && (e == nil || e.peer.first != pk.Seq()) {
		e = a.begin(host, placeOf(pk.Conn(), 1-side(pk)), now)
	}
	if e == nil || e.peer.seen {
		return e
	}
	e.peer = synOf(pk)
	e.start(a, now)
	return e
}

func synOf(pk *network.Packet) acdcSYN {
	return acdcSYN{first: pk.Seq(), mss: pk.MSS(), scale: min(pk.Scale(), mostShift), seen: true}
}

// start begins the window once the SYNs of both ends were seen. The MSS is the smaller of the two.
func (e *acdcEnd) start(a *acdc, now event.Time) {
	if e.began || !e.own.seen || !e.peer.seen {
		return
	}
	e.began = true
	mss := uint32(mostMSS)
	for _, option := range []uint16{e.own.mss, e.peer.mss} {
		if option > 0 {
			mss = min(mss, uint32(option))
		}
	}
	floor := a.least
	if floor == 0 {
		floor = native.WindowFloor(mss, 0)
	}
	e.window.start(mss, floor, a.gain, a.patience, now)
}

// shift returns the scale of the windows that the peer offers. It is 0 unless both ends sent one (RFC 7323 1.3).
func (e *acdcEnd) shift() uint8 {
	if e.own.scale < 0 || e.peer.scale < 0 {
		return 0
	}
	return uint8(e.peer.scale)
}

// beyond reports whether a segment's data ends beyond every window that the guest was granted. The byte of a window
// probe is allowed.
func (e *acdcEnd) beyond(pk *network.Packet) bool {
	return pk.Payload() > 0 && e.granted && isAfter(pk.Seq()+uint32(pk.Payload()), e.right+1)
}

// report writes feedback about received data into a segment that acknowledges it (PACK). If the segment has no room,
// new feedback goes in an ACK of its own behind it (FACK). The counts are totals, so that the next report makes up for
// a lost one.
func (a *acdc) report(e *acdcEnd, host network.NodeID, pk *network.Packet) {
	options := pk.Bytes() - pk.Payload() - network.HeaderBytes
	if options+network.FeedbackBytes <= mostOptions && pk.Bytes()+network.FeedbackBytes <= network.FullFrame {
		pk.SetFeedback(network.FeedbackOption)
		pk.SetTotal(e.total)
		pk.SetMarked(e.marked)
		pk.SetBytes(pk.Bytes() + network.FeedbackBytes)
		e.lastReported = e.total
		return
	}
	if e.lastReported == e.total {
		return
	}
	e.lastReported = e.total
	a.counts.alone++
	own := a.net.NewPacket()
	own.SameFlow(pk)
	own.SetSeq(pk.Seq())
	own.SetAck(pk.Ack())
	own.SetWindow(pk.Window())
	own.SetFlags(network.ACK)
	own.SetBytes(network.HeaderBytes + network.FeedbackBytes)
	own.SetECN(network.ECT0)
	own.SetReserved(madeECT | heedsMark)
	own.SetFeedback(network.FeedbackAlone)
	own.SetTotal(e.total)
	own.SetMarked(e.marked)
	a.net.InjectOut(a, host, own)
}

// In processes a segment that came for the virtual switch's host. It counts and removes marks and feedback, and limits
// the window of an ACK.
func (a *acdc) In(host network.NodeID, pk *network.Packet, now event.Time) network.Verdict {
	if pk.Proto() != network.TCP {
		return network.Pass
	}
	marked := pk.ECN() == network.CE
	heeds := pk.Reserved()&heedsMark != 0
	made := pk.Reserved()&madeECT != 0
	if made {
		pk.SetECN(network.NotECT)
	}
	pk.SetReserved(pk.Reserved() &^ (madeECT | heedsMark))
	e := a.find(placeOf(pk.Conn(), 1-side(pk)))
	if pk.Flags()&(network.SYN|network.RST) == network.SYN {
		e = a.synIn(e, host, pk, now)
	}
	news := false
	if pk.Feedback() != network.NoFeedback {
		news = e != nil && e.hears(pk)
		if pk.Feedback() == network.FeedbackAlone {
			if news {
				e.window.cut(e.window.alpha)
			}
			return network.Drop
		}
		pk.SetFeedback(network.NoFeedback)
		pk.SetBytes(pk.Bytes() - network.FeedbackBytes)
	}
	if e == nil {
		return network.Pass
	}
	e.seen = a.sweeps
	e.comes(pk, marked)
	if marked && !made && heeds {
		pk.SetECN(network.ECT0) // the guest speaks ECN: its sender would answer the mark a second time
	}
	if e.reported && pk.Flags()&network.SYN == 0 {
		pk.SetFlags(pk.Flags() &^ network.ECE)
	}
	if e.began && pk.Flags()&(network.ACK|network.RST) == network.ACK {
		a.acknowledgement(e, pk, news, now)
	}
	return network.Pass
}

// comes counts a segment that came for the host.
func (e *acdcEnd) comes(pk *network.Packet, marked bool) {
	e.reset = e.reset || pk.Flags()&network.RST != 0
	e.finIn = e.finIn || pk.Flags()&network.FIN != 0
	e.total += uint32(pk.Payload())
	if marked {
		e.marked += uint32(pk.Payload())
	}
}

// hears takes the feedback of a segment, and reports whether it counts new marks. Feedback older than the latest is
// ignored.
func (e *acdcEnd) hears(pk *network.Packet) bool {
	total, marked := pk.Total()-e.reportedTotal, pk.Marked()-e.reportedMarked
	if int32(total) < 0 || marked > total {
		return false
	}
	e.reported = true
	e.reportedTotal, e.reportedMarked = pk.Total(), pk.Marked()
	e.window.hears(total, marked)
	return marked > 0
}

// acknowledgement updates the window with an ACK, and limits the ACK to the window.
func (a *acdc) acknowledgement(e *acdcEnd, pk *network.Packet, news bool, now event.Time) {
	a.counts.acks++
	duplicate := pk.Payload() == 0 && pk.Flags()&(network.SYN|network.FIN) == 0 && (pk.Window() == e.field || pk.NBlocks() > 0)
	e.field = pk.Window()
	e.window.acknowledged(pk.Ack(), duplicate, news, now)
	ask := native.WindowAck{WindowQ8: uint64(e.window.bytes) << 8, FloorBytes: e.window.floor, Field: pk.Window(), Shift: e.shift()}
	if pk.Flags()&network.SYN != 0 {
		ask.SYN, ask.Shift = 1, 0
	}
	if ask != e.asked {
		e.asked, e.answer = ask, native.WindowRewrite(&ask, &native.WindowEdge{})
	}
	if e.answer != pk.Window() {
		pk.SetWindow(e.answer)
		a.counts.rewritten++
	}
	if right := pk.Ack() + uint32(pk.Window())<<ask.Shift; !e.granted || isAfter(right, e.right) {
		e.granted, e.right = true, right
	}
}
