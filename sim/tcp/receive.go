package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// maxEarly bounds the number of out-of-order ranges. Data beyond it is dropped and not reported, so the sender
// retransmits it.
const maxEarly = 1024

// receive processes the data and the FIN of an acceptable segment. It returns how many bytes the program gets.
func (e *Endpoint) receive(pk *network.Packet, now event.Time) int64 {
	e.noteOrder(pk)
	seq, end := pk.Seq(), pk.Seq()+uint32(pk.Payload())
	if pk.Flags()&network.FIN != 0 {
		if !e.finSeen {
			e.finSeen, e.finAt = true, end
		}
		end++
	}
	if e.ecnOK && pk.Flags()&network.CWR != 0 {
		e.takeCWR()
	}
	switch {
	case !after(end, e.rcvNxt): // nothing new, or beyond the FIN
		e.counters.Duplicates++
		e.quicken(e.profile.QuickACKs)
		e.setDSACK(seq, end)
		e.ack.now = true
		return 0
	case e.finTaken || !before(seq, e.rcvEdge): // a window probe
		e.quicken(e.profile.QuickACKs)
		e.ack.now = true
		return 0
	case after(seq, e.rcvNxt):
		e.receiveEarly(pk, seq, end, now)
		return 0
	}
	if before(seq, e.rcvNxt) {
		e.setDSACK(seq, e.rcvNxt)
	}
	return e.receiveInOrder(pk, end, now)
}

// receiveInOrder moves RCV.NXT to end, and over early data that follows.
func (e *Endpoint) receiveInOrder(pk *network.Packet, end uint32, now event.Time) int64 {
	e.checkCE(pk)
	if e.timestamps && !after(pk.Seq(), e.rcvAcked) {
		e.recent = uint32(pk.Tag()) // RFC 7323 4.3 (2)
	}
	from := e.rcvNxt
	e.rcvNxt = end
	if len(e.early) > 0 {
		e.joinEarly()
	}
	n := int64(e.rcvNxt - from)
	if e.finSeen && after(e.rcvNxt, e.finAt) {
		n--
		e.finArrived()
	}
	e.counters.Received += n
	e.dataArrived(pk, now)
	if e.paused {
		e.unread += n
		return 0
	}
	return n
}

// joinEarly moves RCV.NXT over the ranges that it has reached.
func (e *Endpoint) joinEarly() {
	k := 0
	for k < len(e.early) && !after(e.early[k].From, e.rcvNxt) {
		if after(e.early[k].To, e.rcvNxt) {
			e.rcvNxt = e.early[k].To
		}
		k++
	}
	if k > 0 {
		e.early = e.early[:copy(e.early, e.early[k:])]
		n := uint8(0)
		for i := range e.nSacks {
			if after(e.sacks[i].To, e.rcvNxt) {
				e.sacks[n] = e.sacks[i]
				n++
			}
		}
		e.nSacks = n
	}
	if len(e.early) == 0 {
		e.ack.now = true // RFC 5681 4.2: the gap is filled
	}
}

// receiveEarly keeps a segment that arrived before its predecessors.
func (e *Endpoint) receiveEarly(pk *network.Packet, seq, end uint32, now event.Time) {
	e.checkCE(pk)
	e.counters.OutOfOrder++
	e.dataArrived(pk, now)
	e.ack.now = true // RFC 5681 4.2
	// The first range that ends at or after seq: nearly always the last one.
	i := len(e.early)
	for i > 0 && !before(e.early[i-1].To, seq) {
		i--
	}
	j := i
	joined := network.Block{From: seq, To: end}
	for j < len(e.early) && !after(e.early[j].From, end) {
		r := e.early[j]
		if !after(r.From, seq) && !before(r.To, end) {
			e.counters.Duplicates++
			e.setDSACK(seq, end)
		}
		joined.From = min32(joined.From, r.From)
		if after(r.To, joined.To) {
			joined.To = r.To
		}
		j++
	}
	switch {
	case j > i:
		e.early[i] = joined
		e.early = append(e.early[:i+1], e.early[j:]...)
	case len(e.early) >= maxEarly:
		return
	default:
		e.early = append(e.early, network.Block{})
		copy(e.early[i+1:], e.early[i:])
		e.early[i] = joined
	}
	e.reportFirst(joined)
}

// reportFirst puts a range first among those to report. The others keep the order of their last report (RFC 2018 4).
func (e *Endpoint) reportFirst(b network.Block) {
	if !e.sackOK {
		return
	}
	sacks := [4]network.Block{b}
	n := uint8(1)
	for i := range e.nSacks {
		old := e.sacks[i]
		if n < 4 && (before(old.To, b.From) || after(old.From, b.To)) {
			sacks[n] = old
			n++
		}
	}
	e.sacks, e.nSacks = sacks, n
}

// setDSACK reports a duplicate with the next ACK (RFC 2883 4).
func (e *Endpoint) setDSACK(from, to uint32) {
	if e.sackOK && e.profile.DSACK && !e.hasDSACK && from != to {
		e.dsack, e.hasDSACK = network.Block{From: from, To: to}, true
	}
}

// fillBlocks writes the SACK option of an ACK, and returns its size in the header, bytes. Options have 40 bytes, less
// timestamps.
func (e *Endpoint) fillBlocks(pk *network.Packet) int32 {
	most := uint8(4)
	if e.timestamps {
		most = 3
	}
	if e.hasDSACK {
		pk.AddBlock(e.dsack)
		e.hasDSACK = false
	}
	for i := uint8(0); i < e.nSacks && pk.NBlocks() < most; i++ {
		pk.AddBlock(e.sacks[i])
	}
	return 4 + 8*int32(pk.NBlocks())
}

// noteOrder keeps the number of the peer's latest transmission that arrived (classify).
func (e *Endpoint) noteOrder(pk *network.Packet) {
	if order := uint32(pk.Tag()); after(order, e.lastOrder) {
		e.lastOrder = order
	}
}
