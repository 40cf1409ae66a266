package sim

import (
	"fmt"
	"slices"

	"weir/sim/network"
	"weir/sim/tcp"
)

// talk is a connection as an observer sees it who reads all packets that leave and reach its two hosts, and does not
// use package tcp. Positions count from the first byte of a direction, in 64 bits, so that they do not wrap.
type talk struct {
	index     int32
	way       [2]way // 0: from the dialler, 1: to it
	scale     [2]int8
	asked     bool // a SYN asked for ECN
	ecn       bool // and a SYN-ACK granted it
	reset     bool // a RST was sent
	resetLost bool
	ended     int              // ends that the stack has freed
	known     [2]*tcp.Endpoint // those that programs know or knew
}

// way is one direction of a connection.
type way struct {
	known    bool
	first    uint32 // sequence number of the first byte
	high     int64  // end of what was sent
	fin      int64  // where the FIN is; -1: not sent yet
	finCame  bool
	segments int64 // with payload or FIN, sent
	came     spans // what reached the host
	edge     int64 // right edge of the window that the sender has seen
	offered  int64 // as the receiver sent it
	acked    int64 // as the receiver sent it
	marked   bool  // a packet with CE reached the host
}

func newTalk(syn *network.Packet) *talk {
	k := &talk{index: syn.Conn()}
	k.way[0].fin, k.way[1].fin = -1, -1
	k.scale = [2]int8{-1, -1}
	return k
}

// ways returns the directions of a packet: its own, and that of the data which it acknowledges.
func (k *talk) ways(pk *network.Packet) (own, back *way) {
	if pk.ToAcceptor() {
		return &k.way[0], &k.way[1]
	}
	return &k.way[1], &k.way[0]
}

// position returns the position of a sequence number, next to a position that is near.
func (w *way) position(seq uint32, near int64) int64 {
	return near + int64(int32(seq-w.first-uint32(near)))
}

// windowOf returns the window that a packet offers, in bytes (RFC 7323 2.2).
func (k *talk) windowOf(pk *network.Packet) int64 {
	if pk.Flags()&network.SYN != 0 || k.scale[0] < 0 || k.scale[1] < 0 {
		return int64(pk.Window())
	}
	side := 1
	if pk.ToAcceptor() {
		side = 0
	}
	return int64(pk.Window()) << min(k.scale[side], 14)
}

// sent checks a packet that a host sends.
func (k *talk) sent(pk *network.Packet, tl *tally) {
	own, back := k.ways(pk)
	if pk.Flags()&network.RST != 0 {
		if !k.reset {
			tl.Resets++
		}
		k.reset = true
		return
	}
	if pk.Flags()&network.SYN != 0 {
		if own.known && own.first != pk.Seq()+1 || pk.Payload() != 0 {
			broken("another SYN than the first: %s", text(pk))
		}
		side := 1
		if pk.ToAcceptor() {
			side = 0
		}
		own.known, own.first, k.scale[side] = true, pk.Seq()+1, pk.Scale()
		if pk.Scale() < 0 && side == 1 {
			tl.Unscaled++
		}
		switch ecn := pk.Flags() & (network.ECE | network.CWR); {
		case side == 0:
			k.asked = k.asked || ecn == network.ECE|network.CWR
		case ecn == network.ECE && k.asked:
			k.ecn = true
		case ecn != 0:
			broken("ECN is granted to who did not ask: %s", text(pk))
		}
	} else if !k.ecn && (pk.ECN() != network.NotECT || pk.Flags()&(network.ECE|network.CWR) != 0) {
		broken("ECN was not agreed on: %s", text(pk))
	}
	if !own.known {
		broken("no SYN was before %s", text(pk))
	}
	own.carries(pk, tl)
	if pk.Flags()&network.ACK == 0 {
		if pk.Flags()&network.SYN == 0 {
			broken("neither SYN nor ACK: %s", text(pk))
		}
		return
	}
	back.promises(pk, k.windowOf(pk))
	tl.SACKed += int64(pk.NBlocks())
}

// carries checks a packet's data: nothing beyond the window, no gap, nothing after the FIN.
func (w *way) carries(pk *network.Packet, tl *tally) {
	at := w.position(pk.Seq(), w.high)
	if pk.Flags()&network.SYN != 0 {
		return
	}
	end := at + int64(pk.Payload())
	last := end
	if pk.Flags()&network.FIN != 0 {
		last++
		if w.fin >= 0 && w.fin != end {
			broken("the FIN is at %d, and was at %d: %s", end, w.fin, text(pk))
		}
		w.fin = end
	}
	switch {
	case last == at: // an ACK, or a window probe
		if at < -1 || at > w.high+1 {
			broken("an ACK at %d where %d bytes were sent: %s", at, w.high, text(pk))
		}
		return
	case at < 0 || at > w.high:
		broken("a segment at %d where %d bytes were sent: %s", at, w.high, text(pk))
	case w.fin >= 0 && end > w.fin:
		broken("data up to %d behind the FIN at %d: %s", end, w.fin, text(pk))
	case last > w.edge:
		broken("data up to %d where the window ends at %d: %s", last, w.edge, text(pk))
	}
	if w.high < end && (uint64(w.first)+uint64(w.high))>>32 != (uint64(w.first)+uint64(end))>>32 {
		tl.Wrapped++
	}
	w.high = max(w.high, end)
	w.segments++
}

// promises checks a packet's acknowledgement of the other direction, which is w. Only arrived data is acknowledged, and
// neither the acknowledgement nor the window's right edge goes back.
func (w *way) promises(pk *network.Packet, window int64) {
	if !w.known {
		broken("an ACK before the peer's SYN was sent: %s", text(pk))
	}
	ack := w.position(pk.Ack(), w.acked)
	came := w.came.prefix()
	if w.finCame && came == w.fin {
		came++
	}
	if ack < w.acked || ack > came {
		broken("%d bytes are acknowledged after %d, and %d came: %s", ack, w.acked, came, text(pk))
	}
	w.acked = ack
	if pk.Flags()&(network.ECE|network.SYN) == network.ECE && !w.marked {
		broken("a mark is echoed that never came: %s", text(pk))
	}
	if pk.Flags()&network.SYN == 0 { // a SYN's window may be below what its scale says later
		if ack+window < w.offered {
			broken("the window's right edge went from %d to %d: %s", w.offered, ack+window, text(pk))
		}
		w.offered = ack + window
	}
	for i, b := range pk.Blocks() {
		from, to := w.position(b.From, ack), w.position(b.To, ack)
		from = max(from, 0) // a SYN that came again is reported, too
		if w.finCame && to == w.fin+1 {
			to--
		}
		if from > to || !w.came.hold(from, to) {
			broken("SACK block %d to %d, and %v came: %s", from, to, w.came, text(pk))
		}
		if i > 0 && from <= ack {
			broken("SACK block %d to %d is acknowledged: %s", from, to, text(pk))
		}
	}
}

// keeps reports whether a later acknowledgement has overtaken this one, and its sender has granted that right edge. With
// shrink: avoid the edge writes such a window into a flagged ACK, whose own window is not known.
func (k *talk) keeps(pk *network.Packet) bool {
	_, back := k.ways(pk)
	ack := back.position(pk.Ack(), back.acked)
	return ack < back.acked && ack+k.windowOf(pk) <= back.offered
}

// delivered notes a packet that reaches a host.
func (k *talk) delivered(pk *network.Packet) {
	if pk.Flags()&network.RST != 0 {
		return
	}
	own, back := k.ways(pk)
	own.marked = own.marked || pk.ECN() == network.CE
	ack := int64(0)
	if pk.Flags()&network.ACK != 0 {
		ack = back.position(pk.Ack(), back.acked)
	}
	back.edge = max(back.edge, ack+k.windowOf(pk))
	if pk.Flags()&network.SYN != 0 {
		return
	}
	at := own.position(pk.Seq(), own.high)
	if pk.Payload() > 0 {
		own.came.add(at, at+int64(pk.Payload()))
	}
	if pk.Flags()&network.FIN != 0 {
		own.finCame = true
	}
}

// check compares an endpoint with what was seen of it.
func (k *talk) check(e *tcp.Endpoint) {
	if err := e.Check(); err != nil {
		broken("%v\n%s", err, describe(e))
	}
	out, in := &k.way[0], &k.way[1]
	if !e.Dialled() {
		out, in = in, out
	}
	c := e.Counters()
	if c.Bytes != out.high || c.Segments+c.Retransmitted != out.segments {
		broken("%d bytes and %d segments were sent: %s", out.high, out.segments, describe(e))
	}
	least := in.acked
	if in.fin >= 0 && least > in.fin {
		least = in.fin
	}
	if c.Received < least || c.Received > in.came.prefix() {
		broken("%d bytes came in order, %d were acknowledged: %s", in.came.prefix(), in.acked, describe(e))
	}
	if e.Unsent() < 0 {
		broken("%d bytes are unsent: %s", e.Unsent(), describe(e))
	}
}

// over checks an end that is finished: unless the connection was reset, both directions had a FIN, and everything
// arrived.
func (k *talk) over(e *tcp.Endpoint) {
	if k.reset || k.way[0].fin < 0 || k.way[1].fin < 0 {
		return
	}
	k.check(e)
	for i := range k.way {
		if w := &k.way[i]; w.came.prefix() != w.fin || !w.finCame || w.acked != w.fin+1 {
			broken("connection %d is over: %d bytes of %d came, %d are acknowledged: %s", k.index, w.came.prefix(), w.fin, w.acked, describe(e))
		}
	}
}

// spans are ranges of positions, ascending and apart from each other.
type spans []span

type span struct{ from, to int64 }

// add joins a range to the others.
func (s *spans) add(from, to int64) {
	list := *s
	i, _ := slices.BinarySearchFunc(list, from, func(r span, at int64) int { return int(min(max(r.to-at, -1), 1)) })
	j := i
	for j < len(list) && list[j].from <= to {
		from, to = min(from, list[j].from), max(to, list[j].to)
		j++
	}
	*s = slices.Replace(list, i, j, span{from, to})
}

// prefix returns how much there is from 0 on without a gap.
func (s spans) prefix() int64 {
	if len(s) == 0 || s[0].from > 0 {
		return 0
	}
	return s[0].to
}

// hold reports whether all of a range is there.
func (s spans) hold(from, to int64) bool {
	if from == to {
		return true
	}
	for _, r := range s {
		if from >= r.from && to <= r.to {
			return true
		}
	}
	return false
}

// text writes a packet as text.
func text(pk *network.Packet) string {
	return fmt.Sprintf("[conn %d to acceptor %v, flags %#x seq %d ack %d payload %d window %d ecn %d blocks %v]",
		pk.Conn(), pk.ToAcceptor(), pk.Flags(), pk.Seq(), pk.Ack(), pk.Payload(), pk.Window(), pk.ECN(), pk.Blocks())
}
