//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

const mostShift = 14 // RFC 7323 2.3

// Packet does with a packet that leaves by the port what the kernel's program does (datapath/bpf/fairq/fairq.bpf.c):
//
//	data        takes a slot for its direction here: this counts the flow, and shows by which port it leaves
//	ACK         is limited to the window of the port by which the acknowledged data leaves
//	SYN, FIN    begin and end a connection
//
// It drops nothing.
func (q *fairQPort) Packet(_ *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	q.seen++
	if q.resting {
		q.takeTimersPlace(now)
	}
	if pk.Proto() == network.TCP {
		return q.segment(pk, now)
	}
	q.uncredited(pk, now)
	return network.Pass
}

func (q *fairQPort) segment(pk *network.Packet, now event.Time) network.Verdict {
	acknowledges := pk.Flags()&(network.ACK|network.RST) == network.ACK
	half := q.sw.flows
	c := q.connection(pk, now)
	if c == nil || pk.Payload() == 0 {
		q.uncredited(pk, now)
	}
	if c == nil {
		if acknowledges {
			q.unknown++
		}
		return network.Pass
	}
	c.seen = q.sw.sweeps
	belongs := q.sw.credit == 0 || q.sw.belongs(c, pk)
	begins := false
	if pk.Payload() > 0 && c.owner != nil { // a connection outside the table counts as no flow
		begins = q.data(c, pk, belongs, now)
	}
	if pk.Flags()&(network.FIN|network.RST) != 0 {
		q.sw.ending(c, pk, now)
	}
	if !acknowledges {
		return network.Pass
	}
	if !belongs {
		q.limit(c, pk, false, now)
		return q.keeps(pk, now)
	}
	if q.sw.credit != 0 && pk.Flags()&network.FIN != 0 {
		q.uses(c, pk, now) // an end that closes uses nothing of its promise
	}
	if v := q.acknowledgement(c, pk, begins, q.sw.flows > half, now); v != network.Pass {
		return v
	}
	return q.keeps(pk, now)
}

// side returns who sent the packet: 0 for the dialler, 1 for the acceptor.
func side(pk *network.Packet) int {
	if pk.ToAcceptor() {
		return 0
	}
	return 1
}

// connection returns a segment's connection, or nil if the segment passes unchanged. It notes what SYNs announce.
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

// halfOpen processes a segment of a pending connection, which may acknowledge the SYN-ACK.
func (q *fairQPort) halfOpen(c *connection, pk *network.Packet, now event.Time) *connection {
	from := side(pk)
	switch {
	case pk.Flags()&network.RST != 0:
		q.sw.remove(c, now)
	case pk.Flags()&network.ACK == 0 || c.ends[1-from].Flags&native.EndSYN == 0: // the other end was not seen here
		if q.assumesPort(c, pk) {
			return c
		}
	case q.sw.enter(c, q, now):
		return c
	case (c.ends[0].Flags|c.ends[1].Flags)&native.EndUnified != 0:
		return c // the table is full: it passes, but the scale announced to its ends still applies
	}
	return nil
}

// syn begins a connection. A connection with the same number and another SYN is over, because numbers are reused.
func (q *fairQPort) syn(c *connection, pk *network.Packet, now event.Time) {
	from := side(pk)
	if c != nil {
		if e := &c.ends[from]; e.Flags&native.EndSYN != 0 && e.First == pk.Seq() { // a retransmission
			announceAgain(e, pk)
			return
		}
		q.sw.remove(c, now)
	}
	e := &q.sw.begin(pk.Conn(), now).ends[from]
	q.takeSYN(e, pk)
	if pk.Scale() < 0 {
		e.Flags |= native.EndScale
	}
	q.sw.announce(e, pk)
}

// synACK processes the other end's SYN. A scale counts if both ends sent one (RFC 7323 1.3).
func (q *fairQPort) synACK(c *connection, pk *network.Packet, now event.Time) *connection {
	from := side(pk)
	if c != nil {
		e, opener := &c.ends[from], &c.ends[1-from]
		heard := e.Flags&native.EndSYN != 0
		if heard && e.First != pk.Seq() || opener.Flags&native.EndSYN != 0 && opener.First+1 != pk.Ack() {
			q.sw.remove(c, now)
			c = nil
		} else if heard { // a retransmission
			announceAgain(e, pk)
			q.sw.open(c, now)
			return c
		}
	}
	if c == nil { // the SYN took another path
		c = q.sw.begin(pk.Conn(), now)
	}
	e, opener := &c.ends[from], &c.ends[1-from]
	q.takeSYN(e, pk)
	e.Flags |= native.EndScale
	c.assumes = false
	const asked = native.EndSYN | native.EndScale
	if pk.Scale() < 0 || opener.Flags&asked == asked {
		e.Shift, opener.Shift = 0, 0
		opener.Flags |= native.EndScale
	}
	if opener.Flags&native.EndSYN != 0 {
		opener.Flags |= native.EndScale
	}
	if pk.Scale() < 0 {
		opener.Flags &^= native.EndUnified
	}
	if opener.Flags&native.EndUnified != 0 {
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
	if !s.opens || c.entered || c.ends[0].Port == 0 || c.ends[1].Port == 0 { // the SYN took another path, and so will the data
		return
	}
	for i := range c.ends {
		s.state.Opens(&c.ends[i], uint64(now))
	}
}

// opened ends the count of the connection as an open handshake.
func (s *fairQSwitch) opened(c *connection) {
	for i := range c.ends {
		if s.opens && c.ends[i].Registration != 0 {
			s.state.Opened(&c.ends[i])
		}
	}
}

// takeSYN notes what a SYN or SYN-ACK announces of its sender.
func (q *fairQPort) takeSYN(e *native.End, pk *network.Packet) {
	e.Flags, e.First, e.Port, e.MSS = native.EndSeen|native.EndSYN, pk.Seq(), q.id, pk.MSS()
	e.Shift = uint8(max(0, min(pk.Scale(), mostShift)))
}

// behind returns the sequence number that follows the segment.
func behind(pk *network.Packet) uint32 {
	next := pk.Seq() + uint32(pk.Payload())
	if pk.Flags()&network.FIN != 0 {
		next++
	}
	return next
}

// data processes data that leaves by this port. Its direction counts here, and this port's window governs it.
// It reports whether it begins a turn (fairq_credit.go). belongs: of the segment.
func (q *fairQPort) data(c *connection, pk *network.Packet, belongs bool, now event.Time) bool {
	e := &c.ends[side(pk)]
	q.state.DataSeen = 1
	e.Port = q.id
	c.reset = false // the ends ignored the reset
	if !e.InSlot(q.state) && q.sw.state.Sends(e, int(q.id)-1, behind(pk), uint64(now)) {
		q.start(now)
	}
	if q.sw.credit == 0 || !belongs {
		return false
	}
	if q.sw.turns[c.slot].isAgain(side(pk), pk) {
		return false
	}
	q.uses(c, pk, now)
	return q.sw.turns[c.slot].took(side(pk), pk, e)
}

// ending processes a FIN or RST.
func (s *fairQSwitch) ending(c *connection, pk *network.Packet, now event.Time) {
	if pk.Flags()&network.RST != 0 {
		s.state.Leaves(&c.ends[0], uint64(now))
		s.state.Leaves(&c.ends[1], uint64(now))
		c.reset = true
		return
	}
	s.state.Finishes(&c.ends[side(pk)], behind(pk), uint64(now))
}

// acknowledgement limits an ACK to the window of its data's port. If that port is unknown, it uses a part of the window
// of the port's twin here. begins, enters: as in turns.asks.
func (q *fairQPort) acknowledgement(c *connection, pk *network.Packet, begins, enters bool, now event.Time) network.Verdict {
	if at := q.sw.at(c.ends[1-side(pk)].Port); at != nil && at.credits != nil {
		return q.credited(c, pk, at, begins, enters, now)
	}
	q.limit(c, pk, true, now)
	return network.Pass
}

// limit writes the window of an acknowledgement. Promises limit those that belong to their connection.
func (q *fairQPort) limit(c *connection, pk *network.Packet, belongs bool, now event.Time) {
	from := side(pk)
	e, sender := &c.ends[from], &c.ends[1-from]
	at, apart := q.sw.at(sender.Port), uint64(0)
	if at == nil {
		at, apart = q.sw.at(sender.Assumed), 1
	}
	if at == nil || q.sw.asksEach || pk.Flags()&network.SYN != 0 || belongs && at.promised(sender) {
		q.ask(c, pk, at, uint8(apart), belongs, now)
		return
	}
	// The answer depends on these two numbers only. Most flows of a port ask the same question until its window
	// changes.
	asked := uint64(pk.Window()) | uint64(e.MSS)<<16 | uint64(e.Shift)<<32 | uint64(e.Announced)<<40 | uint64(e.Flags&native.EndUnified)<<48 | apart<<56
	if k := &at.known; k.asked != asked || k.grantQ8 != at.state.GrantQ8 {
		k.asked, k.grantQ8 = asked, at.state.GrantQ8
		a := q.question(e, pk, at, uint8(apart))
		k.answer = q.sw.state.Window(int(at.id)-1, uint64(now), &a, &c.edges[from])
	}
	q.write(pk, at.known.answer)
}

// known is the answer to the last ACK that a port's window limited, and the question as two numbers.
type known struct {
	asked, grantQ8 uint64
	answer         native.Field
}

// question builds core's question about an ACK that the end e sends. at is the port that limits the ACK, or nil if it
// is unknown.
func (q *fairQPort) question(e *native.End, pk *network.Packet, at *fairQPort, apart uint8) native.Ack {
	a := native.Ack{Field: pk.Window(), MSS: e.MSS, Shift: e.Shift, Announced: e.Announced, Shrink: q.sw.shrink, Apart: apart}
	if e.Flags&native.EndUnified != 0 {
		a.Unified = 1
	}
	if at != nil {
		a.GrantQ8 = at.state.GrantQ8
	}
	if pk.Flags()&network.SYN != 0 {
		a.SYN = 1
	}
	return a
}

// ask asks core about an ACK, and does not keep the answer.
func (q *fairQPort) ask(c *connection, pk *network.Packet, at *fairQPort, apart uint8, belongs bool, now event.Time) {
	from := side(pk)
	a := q.question(&c.ends[from], pk, at, apart)
	if q.sw.credit != 0 && belongs {
		a.Promise, a.Credit = uint32(c.ends[1-from].Promise), 1
	}
	id := -1
	switch {
	case q.sw.edge && a.SYN == 0:
		q.advertise(c, pk, at, &a, now)
		return
	case at == nil && a.Unified == 0:
		q.ungoverned++
		return
	case at != nil:
		a.Ack, id = pk.Ack(), int(at.id)-1
	}
	q.write(pk, q.sw.state.Window(id, uint64(now), &a, &c.edges[from]))
}

// write writes core's decision into an ACK, and counts it.
func (q *fairQPort) write(pk *network.Packet, f native.Field) {
	if own := f.Own(); own != pk.Window() {
		pk.SetWindow(own)
	}
	switch {
	case !f.Governed():
		q.ungoverned++
	case f.Left() == f.Own():
		q.smaller++
	default:
		q.rewritten++
		pk.SetWindow(f.Left())
	}
}

// ---- scale: unify (datapath/bpf/fairq/unify.h) ----

// announce writes the switch's scale into a SYN, or into a SYN-ACK that accepts its option.
func (s *fairQSwitch) announce(e *native.End, pk *network.Packet) {
	if s.unify && pk.Scale() >= 0 {
		e.Announced = s.unifyShift
		e.Flags |= native.EndUnified
		pk.SetScale(int8(s.unifyShift))
	}
}

// announceAgain writes the same scale into a retransmitted SYN or SYN-ACK.
func announceAgain(e *native.End, pk *network.Packet) {
	if e.Flags&native.EndUnified != 0 && pk.Scale() >= 0 {
		pk.SetScale(int8(e.Announced))
	}
}
