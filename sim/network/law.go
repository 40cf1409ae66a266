package network

import (
	"slices"

	"weir/sim/event"
)

// Verdict is what a law decides about a packet.
type Verdict uint8

// The verdicts.
const (
	Pass Verdict = iota // the packet goes on
	Drop                // it is dropped, and counted in Counters.Law
	Take                // the law keeps it, and ends that by Network.Return or Network.Discard
)

// Law looks at each packet before it is queued at a port, as an egress program does. It may change the packet, but not
// its Bytes. Several laws at a port form a chain: what one passes, the next one sees.
//
// While a law looks at a packet, what it injects or returns goes on directly behind that packet.
type Law interface {
	Packet(p *Port, pk *Packet, now event.Time) Verdict
}

// Rescuer is a law that is also asked before the port drops a packet because the buffer is full. Take keeps the packet;
// any other verdict lets the port drop it.
type Rescuer interface {
	Law
	Full(p *Port, pk *Packet, now event.Time) Verdict
}

// Packet.state.
const (
	lent   uint8 = iota
	pooled       // in the pool
	passed       // has passed the first Packet.by laws of the port that it is being sent by: sendBehind
	// Taken by a law at Packet.at, of the number Packet.by in its chain.
	takenAtPort // a port's law
	takenOut    // a guard, on the way from its host
	takenIn     // a guard, on the way to its host
)

// chain is several laws at a port, asked from the number first on.
type chain struct {
	laws  []Law
	first int
}

// Packet asks the laws until one does not pass the packet.
func (c *chain) Packet(p *Port, pk *Packet, now event.Time) Verdict {
	for i := c.first; i < len(c.laws); i++ {
		if v := c.laws[i].Packet(p, pk, now); v != Pass {
			pk.by = uint8(i)
			return v
		}
	}
	return Pass
}

// heldByLaws is what few ports need: the laws, and what they and guards put in and keep.
type heldByLaws struct {
	laws       []Law
	behind     []Law // what asks the laws from this number on
	own, taken Count
}

// byLaws gives it.
func (p *Port) byLaws() *heldByLaws {
	if p.held == nil {
		p.held = &heldByLaws{}
	}
	return p.held
}

// mostLaws is how many laws a chain may have.
const mostLaws = 64

// SetLaws puts laws before the port's buffer, in the place of those that are there; none: a port without laws. A law
// stands at a port once, and there are at most 64: more, or one twice, is a mistake of the caller and panics.
func (p *Port) SetLaws(laws ...Law) {
	if len(laws) > mostLaws {
		panic("network: more than 64 laws at a port")
	}
	h := p.byLaws()
	h.laws, h.behind, p.law = slices.Clone(laws), make([]Law, len(laws)+1), nil
	for i, l := range h.laws {
		if slices.Index(h.laws, l) != i {
			panic("network: a law stands at a port twice")
		}
		h.behind[i] = &chain{h.laws, i}
	}
	if n := len(laws); n > 0 {
		h.behind[n-1] = laws[n-1] // a single law needs no chain
		p.law = h.behind[0]
	}
	p.setScheduler()
}

// Laws are the laws at the port, in the order in which they see a packet. The caller may append to the list.
func (p *Port) Laws() []Law {
	if p.held == nil {
		return nil
	}
	return slices.Clip(p.held.laws)
}

// rest is the laws from the number i on; nil: none.
func (p *Port) rest(i int) Law {
	if p.held != nil && i < len(p.held.behind) {
		return p.held.behind[i]
	}
	return nil
}

// sendBehind is Send for a packet that has passed the first i laws of the port.
func (p *Port) sendBehind(pk *Packet, i int) {
	if p.law != nil && !p.down { // else nobody asks
		pk.state, pk.by = passed, uint8(i)
	}
	p.Send(pk)
}

// obey asks the laws of a port that has some. False: the packet has been dealt with.
func (p *Port) obey(pk *Packet, now event.Time) bool {
	l := p.law
	if pk.state == passed {
		pk.state = lent
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
			p.marks++
		}
		if !n.waits() {
			return true
		}
	}
	p.dealWith(pk, l, v, before, now)
	return false
}

// dealWith is what obey seldom has to do: a packet that does not pass, or one that others go behind.
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

// take notes that the law of the number pk.by has the packet now, which had the ECN field ecn.
func (p *Port) take(pk *Packet, ecn uint8) {
	pk.state, pk.was, pk.at = takenAtPort, ecn, p
	p.byLaws().taken.add(pk)
}

// rescue asks the laws before a packet is dropped because the buffer is full; false: it is to be dropped.
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

// Return lets a packet go on that a law or a guard has taken: to the law behind that one, or to the next guard, as if it
// had just come there. Returning what is not taken is a mistake of the caller and panics. Where a port is a wire a
// returned packet may arrive, and be answered, before Return ends: take it off the law's own list first.
func (n *Network) Return(pk *Packet) {
	if n.asking > 0 {
		n.put = append(n.put, putting{pk: pk})
		return
	}
	n.release(pk)
}

// Discard drops a packet that a law or a guard has taken. It is counted in Counters.Law of the port.
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

// untake ends what Take began.
func (n *Network) untake(pk *Packet) {
	switch pk.state {
	case takenAtPort, takenOut:
		pk.at.held.taken.sub(pk)
	case takenIn:
		n.arrivals[pk.at.Node].Taken.sub(pk)
	default:
		panic("network: a packet that no law has taken was returned or discarded")
	}
	pk.state = lent
}

// release is Return without delay.
func (n *Network) release(pk *Packet) {
	p, state := pk.at, pk.state
	n.untake(pk)
	switch state {
	case takenAtPort:
		if pk.ecn == CE && pk.was != CE {
			p.marks++
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

// Inject sends a packet of a law's own (Network.NewPacket) by this port. It passes the laws behind the law by; all laws of
// the port if by is nil or stands at another port.
func (p *Port) Inject(by Law, pk *Packet) {
	p.net.inject(putting{pk: pk, p: p, by: slices.Index(p.Laws(), by) + 1, kind: takenAtPort})
}

// putting is a packet that waits until the law that put it in has dealt with the one before it.
type putting struct {
	pk   *Packet
	p    *Port // injected there, or at its host; nil: returned
	by   int   // first law or guard that sees it
	kind uint8 // as Packet.state
}

func (n *Network) inject(w putting) {
	if n.asking > 0 {
		n.put = append(n.put, w)
		return
	}
	n.goOn(w)
}

// goOn sends a packet on that a law puts in.
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

// waits says whether packets wait in put.
func (n *Network) waits() bool { return len(n.put) > 0 }

// settle sends what waits in put on, unless a law is still looking at a packet.
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
