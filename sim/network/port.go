package network

import (
	"math"

	"weir/law"
	"weir/sim/event"
)

// DropReason says why a port did not send a packet.
type DropReason uint8

// The reasons.
const (
	DropTail DropReason = iota // the buffer was full
	DropLaw                    // the port's law
	DropDown                   // the link was down
	DropLoss                   // lost on the line: Network.Loss
)

func (r DropReason) String() string { return [...]string{"tail", "law", "down", "loss"}[r] }

// Count is packets and their bytes from the Ethernet header on.
type Count struct{ Packets, Bytes int64 }

func (c *Count) add(pk *Packet) {
	c.Packets++
	c.Bytes += int64(pk.bytes)
}

func (c *Count) sub(pk *Packet) {
	c.Packets--
	c.Bytes -= int64(pk.bytes)
}

// Counters is what a port did since it was built. In = Sent + Tail + Law + Down + Held + Taken at any time.
type Counters struct {
	In              Count // handed to Send, or injected by laws
	Own             Count // of In: injected by laws of the port or guards of its host
	Sent            Count // their last bit has left
	Tail, Law, Down Count // dropped, by reason
	Held            Count // in the buffer now
	Taken           Count // with the laws of the port, or the guards of its host, now: Take
	Lost            Count // of Sent: did not arrive (Network.Loss)
	Marks           int64 // packets that the law made CE
}

// slot is a packet that a port holds, or that is on its line.
type slot struct {
	leaves event.Time // when its last bit has left the port
	pk     *Packet
}

// Port is one end of a link: a buffer and a line to the peer. There are three kinds.
//
//	FIFO    when a packet's last bit will have left is known as it is queued. The ring holds what is in
//	        the buffer and on the line; the buffer is brought up to date when somebody asks. One event
//	        is pending, however much is queued: the arrival of the first packet at the peer.
//	served  (serve.go) where that cannot be known: strict priorities, or a buffer that ports share.
//	wire    without a rate, between a guest and its hypervisor: passed on at once. Between guests of one
//	        hypervisor there is nothing else on the way: there it has localRate, or flows would go on and
//	        on without any time passing.
//
//	ring:   first ........ left ......... end
//	        on the line    in the buffer
type Port struct {
	// What every packet needs: four cache lines.
	net     *Network
	peer    *node
	ring    []slot     // a power of two
	first   uint32     // next to arrive
	left    uint32     // next to leave the buffer
	delay   event.Time // of the line
	end     uint32
	down    bool
	kind    portKind
	backlog int64 // bytes in the buffer, as of the last drain
	bytes   int64 // limit of backlog
	packets int64 // limit of end-left
	law     Law   // nil, a law, or a chain of several: SetLaws
	bucket  *bucket
	jitter  *jitter
	tap     func(pk *Packet, leaves event.Time)
	line    line
	in      Count
	sent    Count
	arrival event.Event

	// What few need.
	server                    *server
	tail, byLaw, byDown, lost Count
	marks                     int64
	held                      *heldByLaws // nil: there was never a law, nor a guard that took or injected something
	Name                      string      // "switch->receiver1"
	ID                        int32       // index into Network.Ports; that of the other direction is ID^1
	Node, Peer                NodeID
	Rate                      law.Rate // 0: a wire
	Buffer                    law.Limit
	Labels                    []string // of measure.ports, ascending
	_                         [24]byte // 448 bytes: whole cache lines, and no power of two, or all ports would meet in a few sets of the cache
}

type portKind uint8

const (
	fifo portKind = iota
	served
	wire
)

// firstSlots is the size of a ring once it is needed.
const firstSlots = 16

// localRate is about what a bridge in software carries between two guests.
const localRate = 10e9

// init makes the port of a link. A rate of 0 makes it a wire. bare: packets take just their bytes on the line.
func (p *Port) init(delay law.Duration, bare bool) {
	p.arrival.Init(p)
	p.delay, p.line = event.Time(delay), newLine(int64(p.Rate), bare)
	p.bytes, p.packets = p.Buffer.N, math.MaxInt64
	if p.Buffer.Packets {
		p.bytes, p.packets = math.MaxInt64, p.Buffer.N
	}
	if p.Rate == 0 {
		p.kind, p.line = wire, newLine(localRate, bare)
	}
}

// Send takes pk over. It passes the laws, and is then queued, sent and handed to the peer node, or dropped.
func (p *Port) Send(pk *Packet) {
	now := p.net.Queue.Now()
	p.in.add(pk)
	if p.down {
		p.drop(pk, DropDown, now)
		return
	}
	if p.kind != fifo {
		p.sendOther(pk, now)
		return
	}
	if p.law != nil && !p.obey(pk, now) {
		return
	}
	if !p.fits(pk) {
		if p.drain(now); !p.fits(pk) {
			p.overflow(pk, now)
			return
		}
	}
	p.backlog += int64(pk.bytes)
	from := now
	if p.bucket != nil {
		from = p.bucket.start(max(from, p.line.free), pk.bytes)
	}
	leaves := p.line.take(from, pk.bytes)
	if p.jitter != nil {
		leaves = p.jitter.leaves(leaves)
	}
	p.push(pk, leaves)
}

// fits says whether the buffer, as of the last drain, has room for pk: if it had then, it has now.
func (p *Port) fits(pk *Packet) bool {
	return p.backlog+int64(pk.bytes) <= p.bytes && int64(p.end-p.left) < p.packets
}

// push puts a packet into the ring that leaves then.
func (p *Port) push(pk *Packet, leaves event.Time) {
	if p.end-p.first == uint32(len(p.ring)) {
		p.grow()
	}
	p.ring[p.end&uint32(len(p.ring)-1)] = slot{leaves, pk}
	if p.end == p.first {
		p.net.Queue.Set(&p.arrival, leaves+p.delay)
	}
	p.end++
	if p.tap != nil {
		p.tap(pk, leaves)
	}
}

// grow doubles the ring. It never shrinks: its limit is the buffer and what fits on the line.
func (p *Port) grow() {
	ring := make([]slot, max(2*len(p.ring), firstSlots))
	for i := p.first; i != p.end; i++ {
		ring[i&uint32(len(ring)-1)] = p.ring[i&uint32(len(p.ring)-1)]
	}
	p.ring = ring
}

// drain takes what has left by now out of the buffer.
func (p *Port) drain(now event.Time) {
	for p.left != p.end {
		s := &p.ring[p.left&uint32(len(p.ring)-1)]
		if s.leaves > now {
			return
		}
		p.depart(s.pk)
	}
}

// depart takes a packet that has left out of the buffer.
func (p *Port) depart(pk *Packet) {
	p.left++
	p.backlog -= int64(pk.bytes)
	p.sent.add(pk)
}

// Happen lets the first packet of the ring arrive at the peer. If nobody asked for the buffer since it left, it is taken
// out of it now, when it is looked at anyway.
func (p *Port) Happen(_ *event.Event, now event.Time) {
	s := &p.ring[p.first&uint32(len(p.ring)-1)]
	pk := s.pk
	s.pk = nil
	if p.left == p.first {
		p.depart(pk)
	}
	p.first++
	if p.first != p.end {
		p.net.Queue.Set(&p.arrival, p.ring[p.first&uint32(len(p.ring)-1)].leaves+p.delay)
	}
	p.arrive(pk, now)
}

func (p *Port) arrive(pk *Packet, now event.Time) {
	if p.net.loss != nil && p.net.loss(p, pk) {
		p.lost.add(pk)
		p.net.dropped(p, pk, DropLoss, now)
		return
	}
	p.peer.receive(pk, now)
}

// overflow is a packet that the buffer has no room for.
func (p *Port) overflow(pk *Packet, now event.Time) {
	if !p.rescue(pk, now) {
		p.drop(pk, DropTail, now)
	}
	p.net.settle()
}

func (p *Port) drop(pk *Packet, reason DropReason, now event.Time) {
	switch reason {
	case DropTail:
		p.tail.add(pk)
	case DropLaw:
		p.byLaw.add(pk)
	default:
		p.byDown.add(pk)
	}
	p.net.dropped(p, pk, reason, now)
}

// Backlog is the bytes in the buffer now. A packet is in it until its last bit has left.
func (p *Port) Backlog() int64 {
	if p.kind == fifo {
		p.drain(p.net.Queue.Now())
	}
	return p.backlog
}

// BacklogPackets is the packets in the buffer now.
func (p *Port) BacklogPackets() int64 {
	switch p.kind {
	case fifo:
		p.drain(p.net.Queue.Now())
		return int64(p.end - p.left)
	case served:
		return p.server.packets
	}
	return 0
}

// Gauge gives what is sampled of a port every few microseconds: the bytes in the buffer now, the bytes sent, and the
// packets that the laws made CE. Counters has all the rest.
func (p *Port) Gauge() (backlog, sentBytes, marks int64) { return p.Backlog(), p.sent.Bytes, p.marks }

// Served says that the port decides what it sends as it sends it: FreeAt means nothing there.
func (p *Port) Served() bool { return p.kind == served }

// ServedSince is when a port that is Served became one.
func (p *Port) ServedSince() event.Time { return p.server.since }

// FreeAt is when all that a FIFO holds will have left: Now or before when it is idle.
func (p *Port) FreeAt() event.Time {
	if p.jitter != nil {
		return max(p.line.free, p.jitter.last)
	}
	return p.line.free
}

// Counters gives the port's counters as of now.
func (p *Port) Counters() Counters {
	held := Count{p.BacklogPackets(), p.Backlog()}
	c := Counters{
		In: p.in, Sent: p.sent, Tail: p.tail, Law: p.byLaw, Down: p.byDown, Held: held, Lost: p.lost, Marks: p.marks,
	}
	if p.held != nil {
		c.Own, c.Taken = p.held.own, p.held.taken
	}
	return c
}

// Reverse is the port at the other end of the link.
func (p *Port) Reverse() *Port { return p.net.Ports[p.ID^1] }

// Shape puts a token bucket before the line: packets wait in the buffer until it has their bytes (frames
// as buffers count them). It holds what comes in in the time depth, or one packet if that is more. A wire
// becomes a FIFO, with a line that takes next to no time and a NIC's buffer. For a rate that changes there is SetRate.
func (p *Port) Shape(rate law.Rate, depth law.Duration) {
	if p.kind == wire {
		p.kind, p.line = fifo, newLine(maxRate, p.line.bare)
	}
	p.bucket = &bucket{full: newLine(int64(rate), true), depth: event.Time(depth)}
}

// Tap lets f see every packet that is going to be sent, with the time when its last bit leaves: of a
// FIFO as it is queued, so ahead of that time, and a flap may still lose it. Times of one port only grow.
func (p *Port) Tap(f func(pk *Packet, leaves event.Time)) { p.tap = f }

// SetDown takes this direction of the link down, or up again. What is in the buffer, and what is sent
// while it is down, is lost; what is on the line arrives.
func (p *Port) SetDown(down bool) {
	now := p.net.Queue.Now()
	if p.kind == fifo {
		p.drain(now)
	}
	p.down = down
	if !down {
		return
	}
	if p.server != nil {
		p.server.flush(now)
		return
	}
	end := p.end
	p.end = p.left
	for i := p.left; i != end; i++ {
		s := &p.ring[i&uint32(len(p.ring)-1)]
		p.backlog -= int64(s.pk.bytes)
		p.drop(s.pk, DropDown, now)
		s.pk = nil
	}
	if p.first == p.end {
		p.net.Queue.Stop(&p.arrival)
	}
	p.idle(now)
}

// idle takes the line and the bucket back from packets that were dropped before they left. The bucket is
// full then: who was down has sent nothing.
func (p *Port) idle(now event.Time) {
	p.line.free, p.line.rest = now, 0
	if p.jitter != nil {
		p.jitter.last = now
	}
	if p.bucket != nil && p.bucket.full.free > now {
		p.bucket.full.free, p.bucket.full.rest = now, 0
	}
}
