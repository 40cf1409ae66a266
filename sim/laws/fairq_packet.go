//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const (
	mostShift = 14      // RFC 7323 2.3
	finReach  = 1 << 24 // no sender has more bytes on their way when it sends its FIN
)

// Packet is what the kernel's program does with a packet that leaves by the port (datapath/bpf/fairq/fairq.bpf.c):
//
//	data        seats its direction here, which is how the port is learnt and counted
//	ACK         is held to the window of the port that the data it acknowledges leaves by
//	SYN, FIN    begin and end a connection
//
// Nothing is dropped.
func (q *fairQPort) Packet(_ *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	q.seen++
	if q.resting {
		q.takeTimersPlace(now)
	}
	if pk.Proto() == network.TCP {
		q.segment(pk, now)
	}
	return network.Pass
}

func (q *fairQPort) segment(pk *network.Packet, now event.Time) {
	acknowledges := pk.Flags()&(network.ACK|network.RST) == network.ACK
	c := q.connection(pk, now)
	if c == nil {
		if acknowledges {
			q.unknown++
		}
		return
	}
	c.seen = q.sw.sweeps
	if pk.Payload() > 0 && c.owner != nil { // who is not in the table counts as no flow
		q.data(c, pk, now)
	}
	if pk.Flags()&(network.FIN|network.RST) != 0 {
		c.ending(pk, now)
	}
	if acknowledges {
		q.acknowledgement(c, pk, now)
	}
}

// side is who sent the packet: 0 who dialled, 1 who accepted.
func side(pk *network.Packet) int {
	if pk.ToAcceptor() {
		return 0
	}
	return 1
}

// connection gives a segment's connection, nil if it is to pass: what its SYNs tell is noted on the way.
func (q *fairQPort) connection(pk *network.Packet, now event.Time) *connection {
	c := q.sw.find(pk.Conn())
	switch {
	case pk.Flags()&network.SYN == 0:
		if c == nil || c.entered {
			return c
		}
		return q.halfOpen(c, pk, now)
	case pk.Flags()&network.ACK == 0:
		q.syn(c, pk, now)
		return nil
	}
	return q.synACK(c, pk, now)
}

// halfOpen takes a segment of a pending connection: perhaps it acknowledges the SYN-ACK.
func (q *fairQPort) halfOpen(c *connection, pk *network.Packet, now event.Time) *connection {
	from := side(pk)
	switch {
	case pk.Flags()&network.RST != 0:
		q.sw.remove(c, now)
	case pk.Flags()&network.ACK == 0 || c.ends[1-from].flags&endSYN == 0: // the other end was not heard here
		if q.assumesPort(c, pk) {
			return c
		}
	case q.sw.enter(c, q, now):
		return c
	case (c.ends[0].flags|c.ends[1].flags)&endUnified != 0:
		return c // there is no room: it passes, but what its ends were told has to be kept
	}
	return nil
}

// syn begins a connection. One that has its number already and another SYN is over: numbers are used again.
func (q *fairQPort) syn(c *connection, pk *network.Packet, now event.Time) {
	from := side(pk)
	if c != nil {
		if e := &c.ends[from]; e.flags&endSYN != 0 && e.first == pk.Seq() { // sent again
			e.announceAgain(pk)
			return
		}
		q.sw.remove(c, now)
	}
	e := &q.sw.begin(pk.Conn(), now).ends[from]
	q.takeSYN(e, pk)
	if pk.Scale() < 0 {
		e.flags |= endScale
	}
	q.sw.announce(e, pk)
}

// synACK takes the other end's SYN. A scale counts if both ends sent one (RFC 7323 1.3).
func (q *fairQPort) synACK(c *connection, pk *network.Packet, now event.Time) *connection {
	from := side(pk)
	if c != nil {
		e, opener := &c.ends[from], &c.ends[1-from]
		heard := e.flags&endSYN != 0
		if heard && e.first != pk.Seq() || opener.flags&endSYN != 0 && opener.first+1 != pk.Ack() {
			q.sw.remove(c, now)
			c = nil
		} else if heard { // sent again
			e.announceAgain(pk)
			q.sw.open(c, now)
			return c
		}
	}
	if c == nil { // the SYN went another way
		c = q.sw.begin(pk.Conn(), now)
	}
	e, opener := &c.ends[from], &c.ends[1-from]
	q.takeSYN(e, pk)
	e.flags |= endScale
	if pk.Scale() < 0 || opener.flags&(endSYN|endScale) == endSYN|endScale {
		e.shift, opener.shift = 0, 0
		opener.flags |= endScale
	}
	if opener.flags&endSYN != 0 {
		opener.flags |= endScale
	}
	if pk.Scale() < 0 {
		opener.flags &^= endUnified
	}
	if opener.flags&endUnified != 0 {
		q.sw.announce(e, pk)
	}
	if q.sw.handshake && !q.sw.enter(c, q, now) {
		return nil
	}
	q.sw.open(c, now)
	return c
}

// open counts both directions of a connection that the acceptor has answered, with count: opening.
func (s *fairQSwitch) open(c *connection, now event.Time) {
	if !s.opens || c.entered || c.ends[0].port == nil || c.ends[1].port == nil { // the SYN went another way: so will the data
		return
	}
	for i := range c.ends {
		c.ends[i].port.open(&c.ends[i], now)
	}
}

// takeSYN notes what a SYN or SYN-ACK tells of its sender.
func (q *fairQPort) takeSYN(e *end, pk *network.Packet) {
	e.flags, e.first, e.port, e.mss = endSYN, pk.Seq(), q, pk.MSS()
	e.shift = uint8(max(0, min(pk.Scale(), mostShift)))
	e.floor = q.law.Config().FloorBytes
	if e.floor == 0 {
		mss := uint32(pk.MSS())
		if mss == 0 || mss > mostMSS {
			mss = mostMSS
		}
		e.floor = native.WindowFloor(mss, 0)
	}
}

// behind is where the segment ends in its sender's sequence space.
func behind(pk *network.Packet) uint32 {
	next := pk.Seq() + uint32(pk.Payload())
	if pk.Flags()&network.FIN != 0 {
		next++
	}
	return next
}

// data leaves by this port: here its direction is counted, and this port's window governs it.
func (q *fairQPort) data(c *connection, pk *network.Packet, now event.Time) {
	e := &c.ends[side(pk)]
	q.dataSeen = true
	e.port = q
	c.reset = false // the ends did not believe it
	if e.flags&endFIN != 0 && e.next-behind(pk) > finReach {
		e.flags &^= endFIN
	}
	q.seat(e, now)
	if e.registeredAt == q && e.registration != q.generation {
		q.register(e, now)
	}
}

// ending takes a FIN or RST.
func (c *connection) ending(pk *network.Packet, now event.Time) {
	if pk.Flags()&network.RST != 0 {
		c.ends[0].leave(now)
		c.ends[1].leave(now)
		c.reset = true
		return
	}
	if e := &c.ends[side(pk)]; e.flags&endFIN == 0 {
		e.flags |= endFIN
		e.next = behind(pk)
		e.leave(now)
	}
}

// acknowledgement holds an ACK to the window of its data's port, or to a part of that of the port's twin here.
func (q *fairQPort) acknowledgement(c *connection, pk *network.Packet, now event.Time) {
	sender := &c.ends[1-side(pk)]
	at, grantQ8 := sender.port, uint64(0)
	if at != nil {
		grantQ8 = at.grantQ8
		if q.sw.opens && pk.Flags()&network.SYN != 0 {
			grantQ8 = at.openingQ8(now)
		}
	} else if at = sender.assumed; at != nil {
		grantQ8 = at.grantQ8 / q.sw.divisor
	}
	if q.sw.edge && pk.Flags()&network.SYN == 0 {
		q.tellEdge(c, pk, at, grantQ8, now)
		return
	}
	q.hold(c, pk, at, grantQ8)
}

// hold holds an ACK to what the port at grants; 0 is nothing.
func (q *fairQPort) hold(c *connection, pk *network.Packet, at *fairQPort, grantQ8 uint64) {
	from := side(pk)
	e := &c.ends[from]
	a := native.WindowAck{WindowQ8: grantQ8, FloorBytes: e.floor, Field: pk.Window(), Shift: e.shift, Shrink: q.sw.shrink}
	if pk.Flags()&network.SYN != 0 {
		a.SYN = 1
	}
	if e.flags&endUnified != 0 {
		e.unify(&a)
		pk.SetWindow(a.Field)
	}
	if grantQ8 == 0 {
		q.ungoverned++
		return
	}
	field := at.rewrite(&a, pk.Ack(), &c.edges[from])
	if field == pk.Window() {
		q.smaller++
		return
	}
	pk.SetWindow(field)
	q.rewritten++
}

// rewrite asks window_rewrite. With shrink: allow its answer depends on nothing but a, and the flows of a port mostly
// ask the same until its window is another: then there is no call.
func (q *fairQPort) rewrite(a *native.WindowAck, ack uint32, edge *native.WindowEdge) uint16 {
	if a.Shrink != native.ShrinkAllow {
		a.Ack = ack
		return native.WindowRewrite(a, edge)
	}
	if *a != q.asked {
		q.asked, q.answer = *a, native.WindowRewrite(a, edge)
	}
	return q.answer
}

// ---- scale: unify (datapath/bpf/fairq/unify.h) ----

// announce makes a SYN, or a SYN-ACK that takes up its option, announce the switch's scale.
func (s *fairQSwitch) announce(e *end, pk *network.Packet) {
	if s.unify && pk.Scale() >= 0 {
		e.told = s.unifyShift
		e.flags |= endUnified
		pk.SetScale(int8(s.unifyShift))
	}
}

// announceAgain does so with the same SYN or SYN-ACK sent again.
func (e *end) announceAgain(pk *network.Packet) {
	if e.flags&endUnified != 0 && pk.Scale() >= 0 {
		pk.SetScale(int8(e.told))
	}
}

// unify converts an end's window to the scale that the other end takes it for, rounded down: no more is promised than
// it has room for. A SYN's is not scaled.
func (e *end) unify(a *native.WindowAck) {
	a.Shift = e.told
	if a.SYN == 0 {
		a.Field = uint16(min(uint32(a.Field)<<e.shift>>e.told, math.MaxUint16))
	}
}
