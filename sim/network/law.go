package network

import (
	"slices"

	"weir/sim/event"
)

// Verdict is what a law decides about a packet.
type Verdict uint8

// The verdicts.
const (
	Pass Verdict = iota // the packet continues
	Drop                // it is dropped, and counted in Counters.Law
	Take                // the law keeps it, until Network.Return or Network.Discard
)

// Law sees each packet before it is queued at a port, as an egress program does. It may change the packet, but not its
// Bytes. Several laws at a port form a chain: each sees the packets that the one before it passed.
//
// Packets that a law injects or returns while it looks at a packet continue directly behind that packet.
type Law interface {
	Packet(p *Port, pk *Packet, now event.Time) Verdict
}

// Rescuer is a law that is also asked before the port drops a packet because the buffer is full. Take keeps the packet;
// with any other verdict the port drops it.
type Rescuer interface {
	Law
	Full(p *Port, pk *Packet, now event.Time) Verdict
}

// Values of Packet.state.
const (
	borrowed uint8 = iota
	pooled         // in the pool
	passed         // has passed the first Packet.by laws of the port that sends it: sendBehind
	// Taken by the law at Packet.at with the number Packet.by in its chain.
	takenAtPort // a port's law
	takenOut    // a guard, on the way from its host
	takenIn     // a guard, on the way to its host
)

// chain is several laws at a port, from the number first on.
type chain struct {
	laws  []Law
	first int
}

// Packet asks the laws in order, until one does not pass the packet.
func (c *chain) Packet(p *Port, pk *Packet, now event.Time) Verdict {
	for i := c.first; i < len(c.laws); i++ {
		if v := c.laws[i].Packet(p, pk, now); v != Pass {
			pk.by = uint8(i)
			return v
		}
	}
	return Pass
}

// heldByLaws is the state that few ports need: the laws, and the packets that they and guards inject and keep.
type heldByLaws struct {
	laws       []Law
	behind     []Law // for each number: the law that asks the laws from there on
	own, taken Count
}

// byLaws returns that state, and creates it if needed.
func (p *Port) byLaws() *heldByLaws {
	if p.held == nil {
		p.held = &heldByLaws{}
	}
	return p.held
}

// mostLaws is the longest chain of laws.
const mostLaws = 64

// SetLaws puts laws before the port's buffer, and replaces earlier ones. Without arguments it removes them. It panics
// if there are more than 64 laws, or one twice.
func (p *Port) SetLaws(laws ...Law) {
	if len(laws) > mostLaws {
		panic("network: more than 64 laws at a port")
	}
	h := p.byLaws()
	h.laws, h.behind, p.law = slices.Clone(laws), make([]Law, len(laws)+1), nil
	for i, l := range h.laws {
		if slices.Index(h.laws, l) != i {
			panic("network: a port has the same law twice")
		}
		h.behind[i] = &chain{h.laws, i}
	}
	if n := len(laws); n > 0 {
		h.behind[n-1] = laws[n-1] // a single law needs no chain
		p.law = h.behind[0]
	}
	p.setScheduler()
}

// Laws returns the laws at the port, in the order in which they see a packet. The caller may append to the list.
func (p *Port) Laws() []Law {
	if p.held == nil {
		return nil
	}
	return slices.Clip(p.held.laws)
}

// rest returns the laws from the number i on, as one law; nil: none.
func (p *Port) rest(i int) Law {
	if p.held != nil && i < len(p.held.behind) {
		return p.held.behind[i]
	}
	return nil
}

// sendBehind is Send for a packet that has passed the first i laws of the port.
func (p *Port) sendBehind(pk *Packet, i int) {
	if p.law != nil && !p.down { // else no law is asked
		pk.state, pk.by = passed, uint8(i)
	}
	p.Send(pk)
}

// obey asks the laws of a port that has some. It returns false if the packet does not continue here.
func (p *Port) obey(pk *Packet, now event.Time) bool {
	l := p.law
	if pk.state == passed {
		pk.state = borrowed
		if l = p.rest(int(pk.by)); l == nil {
			return true
		}
	}
	n, before := p.net, pk.ecn
	n.asking++
	v := l.Packet(p, pk, now)
	n.asking--
	if v == Pass {
		if pk.ecn == CE && before != CE {
			pk.here = true
		}
		if !n.waits() {
			return true
		}
	}
	p.dealWith(pk, l, v, before, now)
	return false
}

// countMark adds by to the marks if a law of this port set the packet to CE: 1 for a packet that enters the buffer, -1 for
// one that is dropped from it. A packet that the full buffer drops was never a mark: no receiver sees it.
func (p *Port) countMark(pk *Packet, by int64) {
	if pk.ecn == CE && pk.here {
		p.marks += by
	}
}

// dealWith is the rare part of obey: a packet that does not pass, or one that others follow.
func (p *Port) dealWith(pk *Packet, l Law, v Verdict, before uint8, now event.Time) {
	if _, several := l.(*chain); !several && v == Take {
		pk.by = uint8(len(p.held.laws) - 1) // the last one
	}
	switch v {
	case Pass:
		p.in.sub(pk) // Send counts it again
		p.sendBehind(pk, len(p.held.laws))
	case Take:
		p.take(pk, before)
	default:
		p.drop(pk, DropLaw, now)
	}
	p.net.settle()
}

// take notes that the law number pk.by has the packet, whose ECN field was ecn.
func (p *Port) take(pk *Packet, ecn uint8) {
	pk.state, pk.was, pk.at = takenAtPort, ecn, p
	p.byLaws().taken.add(pk)
}

// rescue asks the laws before a packet is dropped because the buffer is full. It returns false if the port must drop
// the packet.
func (p *Port) rescue(pk *Packet, now event.Time) bool {
	for i, l := range p.Laws() {
		r, ok := l.(Rescuer)
		if !ok {
			continue
		}
		ecn := pk.ecn
		p.net.asking++
		v := r.Full(p, pk, now)
		p.net.asking--
		if v == Take {
			pk.by = uint8(i)
			p.take(pk, ecn)
			return true
		}
	}
	return false
}

// Return continues a packet that a law or a guard has taken: at the next law or guard, as if it had just come there. It
// panics if the packet is not taken. If the port is a wire, the packet may arrive and be answered before Return ends:
// remove it from the law's own list first.
func (n *Network) Return(pk *Packet) {
	if n.asking > 0 {
		n.put = append(n.put, putting{pk: pk})
		return
	}
	n.release(pk)
}

// Discard drops a packet that a law or a guard has taken. The port counts it in Counters.Law.
func (n *Network) Discard(pk *Packet) {
	p, state := pk.at, pk.state
	n.untake(pk)
	switch state {
	case takenAtPort, takenOut:
		p.drop(pk, DropLaw, n.Queue.Now())
	case takenIn:
		n.arrivals[p.Node].end(n, pk)
	}
}

// untake ends the state that Take began.
func (n *Network) untake(pk *Packet) {
	switch pk.state {
	case takenAtPort, takenOut:
		pk.at.held.taken.sub(pk)
	case takenIn:
		n.arrivals[pk.at.Node].Taken.sub(pk)
	default:
		panic("network: a packet that no law has taken was returned or discarded")
	}
	pk.state = borrowed
}

// release is Return without a wait for other laws.
func (n *Network) release(pk *Packet) {
	p, state := pk.at, pk.state
	n.untake(pk)
	switch state {
	case takenAtPort:
		if pk.ecn == CE && pk.was != CE {
			pk.here = true
		}
		p.in.sub(pk) // Send counts it again
		p.sendBehind(pk, int(pk.by)+1)
	case takenOut:
		p.in.sub(pk)
		n.out(p, pk, int(pk.by)+1)
	case takenIn:
		n.arrivals[p.Node].In.sub(pk)
		n.in(p, pk, int(pk.by)-1)
	}
}

// Inject sends a law's own packet (Network.NewPacket) by this port. The packet passes the laws after by, or all laws of
// the port if by is nil or is at another port.
func (p *Port) Inject(by Law, pk *Packet) {
	p.net.inject(putting{pk: pk, p: p, by: slices.Index(p.Laws(), by) + 1, kind: takenAtPort})
}

// putting is a packet that waits until the law that injected or returned it has finished with the packet before it.
type putting struct {
	pk   *Packet
	p    *Port // injected there, or at its host; nil: returned
	by   int   // the first law or guard that sees it
	kind uint8 // as in Packet.state
}

func (n *Network) inject(w putting) {
	if n.asking > 0 {
		n.put = append(n.put, w)
		return
	}
	n.goOn(w)
}

// goOn sends a packet that a law injected or returned.
func (n *Network) goOn(w putting) {
	switch p := w.p; {
	case p == nil:
		n.release(w.pk)
	case w.kind == takenAtPort:
		p.byLaws().own.add(w.pk)
		p.sendBehind(w.pk, w.by)
	case w.kind == takenOut:
		p.byLaws().own.add(w.pk)
		n.out(p, w.pk, w.by)
	default:
		n.arrivals[p.Node].Own.add(w.pk)
		n.in(p, w.pk, w.by)
	}
}

// waits reports whether packets wait in put.
func (n *Network) waits() bool { return len(n.put) > 0 }

// settle sends the packets that wait in put, unless a law is still looking at a packet.
func (n *Network) settle() {
	for n.asking == 0 && n.nextPut < len(n.put) {
		w := n.put[n.nextPut]
		n.nextPut++
		if n.nextPut == len(n.put) {
			n.put, n.nextPut = n.put[:0], 0
		}
		n.goOn(w)
	}
}
