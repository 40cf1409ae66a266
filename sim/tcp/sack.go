package tcp

import (
	"weir/sim/event"
	"weir/sim/network"
)

// takeSACK puts the blocks of an ACK on the scoreboard (RFC 2018, 2883; Linux: tcp_sacktag_write_queue). SND.UNA
// already includes this ACK.
func (e *Endpoint) takeSACK(pk *network.Packet, now event.Time, w *ackWork) {
	blocks := pk.Blocks()
	prior := e.sackedOut
	if e.isDSACK(pk.Ack(), blocks) {
		e.takeDSACK(blocks[0], w)
		blocks = blocks[1:]
	}
	sorted := ascending(blocks)
	old := e.rec.seen
	e.rec.seen = [4]network.Block{}
	for i, b := range sorted[:len(blocks)] {
		if !e.validBlock(b) {
			continue
		}
		e.rec.seen[i] = b
		e.tagNew(b, &old, now, w)
	}
	if e.sackedOut != prior {
		w.flags |= ackSacked
	}
	if w.hasReorder && (e.recovery != Loss || e.rec.undoing) && before(w.reorder, e.highestSacked()) {
		e.rack.reordered = true
	}
}

// ascending returns blocks in the order of their sequence numbers, as Linux processes them: a range below another block
// of the same ACK did not arrive late.
func ascending(blocks []network.Block) (sorted [4]network.Block) {
	for i, b := range blocks {
		for ; i > 0 && before(b.From, sorted[i-1].From); i-- {
			sorted[i] = sorted[i-1]
		}
		sorted[i] = b
	}
	return sorted
}

// isDSACK reports whether the first block reports a duplicate: it is below the acknowledgement, or within the second
// block (RFC 2883 4).
func (e *Endpoint) isDSACK(ack uint32, blocks []network.Block) bool {
	if len(blocks) == 0 {
		return false
	}
	b := blocks[0]
	if !before(b.From, b.To) {
		return false
	}
	return before(b.From, ack) ||
		len(blocks) > 1 && !before(b.From, blocks[1].From) && !after(b.To, blocks[1].To)
}

// takeDSACK subtracts a duplicate from the retransmissions (Linux: tcp_check_dsack, tcp_dsack_seen).
func (e *Endpoint) takeDSACK(b network.Block, w *ackWork) {
	n := max(1, (b.To-b.From+e.mss-1)/e.mss)
	w.flags |= ackDSACK
	r := &e.rec
	if r.probing && r.probeCopy && n == 1 && b.To == r.probeEnd {
		w.flags |= ackDSACKProbe
	}
	r.dsacks += int64(n)
	if r.dsacks > e.counters.Retransmitted {
		return // the network duplicated it
	}
	if e.rack.reordered && w.flags&ackDSACKProbe == 0 {
		e.rack.dsack = true
	}
	if r.undoing && r.undoCopies > 0 && after(b.To, r.undoFrom) {
		r.undoCopies = max(0, r.undoCopies-int32(n))
	}
}

// validBlock reports whether a block is within the data in flight.
func (e *Endpoint) validBlock(b network.Block) bool {
	return before(b.From, b.To) && !after(b.To, e.nxt) && !before(b.From, e.una)
}

// tagNew tags the parts of b that the blocks of the previous ACK did not report.
func (e *Endpoint) tagNew(b network.Block, old *[4]network.Block, now event.Time, w *ackWork) {
	for i := range old {
		o := &old[i]
		if o.From == o.To || !before(b.From, o.To) || !before(o.From, b.To) {
			continue
		}
		if before(b.From, o.From) {
			e.tag(b.From, o.From, now, w)
		}
		if !after(b.To, o.To) {
			return
		}
		b.From = o.To
	}
	e.tag(b.From, b.To, now, w)
}

// tag marks the segments in a range as SACKed (Linux: tcp_sacktag_one).
func (e *Endpoint) tag(from, to uint32, now event.Time, w *ackWork) {
	for n := e.board.find(from); n != e.board.tail; n++ {
		s := e.board.at(n)
		if after(s.end(), to) {
			return
		}
		if s.flags&segSacked != 0 || before(s.seq, from) {
			continue
		}
		e.tagOne(s, n, now, w)
	}
}

func (e *Endpoint) tagOne(s *segment, n uint32, now event.Time, w *ackWork) {
	if e.useRACK {
		e.rackAdvance(s, now)
	}
	if s.flags&segEver == 0 {
		// It was sent once, and arrives after later ones: the network reorders.
		if before(s.seq, e.highestSacked()) && (!w.hasReorder || before(s.seq, w.reorder)) {
			w.reorder, w.hasReorder = s.seq, true
		}
		if !after(s.end(), e.rec.high) {
			w.flags |= ackOrigSacked
		}
		w.lastRTT = now - s.sent
		if w.sackRTT < 0 {
			w.sackRTT = w.lastRTT
		}
	}
	if s.flags&segRetrans != 0 {
		e.retransOut--
	} else if s.flags&segLost != 0 {
		e.lostPending--
	}
	if s.flags&segLost != 0 {
		e.lostOut--
	}
	s.flags = s.flags&^(segLost|segRetrans) | segSacked
	if e.sackedOut == 0 || after(s.seq, e.rec.highSacked) {
		e.rec.highSacked = s.seq
	}
	e.sackedOut++
	e.delivered++
	if before(n, e.rec.judged) {
		e.rec.sackedJudged++
	}
}

// highestSacked returns the sequence number of the highest SACKed segment, or SND.UNA if there is none.
func (e *Endpoint) highestSacked() uint32 {
	if e.sackedOut == 0 {
		return e.una
	}
	return e.rec.highSacked
}
