package network

import (
	"math"

	"weir/law"
	"weir/sim/event"
)

// DropReason is why a port did not send a packet.
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

// Counters counts what a port did since it was built. In = Sent + Tail + Law + Down + Queued + Taken at any time.
type Counters struct {
	In              Count // passed to Send, or injected by laws
	Own             Count // of In: injected by laws of the port or guards of its host
	Sent            Count // whose last bit has left
	Tail, Law, Down Count // dropped, by reason
	Queued          Count // in the buffer now
	Taken           Count // now with the laws of the port, or the guards of its host: Take
	Lost            Count // of Sent: did not arrive (Network.Loss)
	Marks           int64 // packets in Sent or Queued that laws of the port set to CE
	MarksDropped    int64 // packets in Tail that they set to CE
}

// slot is a packet in a port's buffer, or on its line.
type slot struct {
	leaves event.Time // when its last bit has left the port
	pk     *Packet
}

// Port is one end of a link: a buffer, and a line to the peer. There are three kinds.
//
//	FIFO    It is known when a packet is queued when its last bit will have left. The ring has the packets in the
//	        buffer and on the line; the buffer is updated when it is read. One event is pending, for any length of
//	        the queue: the arrival of the first packet at the peer.
//	served  (serve.go) That time is not known in advance: strict priorities, or a buffer that ports share.
//	wire    A port without a rate, between a guest and its hypervisor: packets pass at once. Between guests of one
//	        hypervisor it has localRate. Otherwise flows would continue without any time passing, because there is
//	        no other port on the way.
//
//	ring:   first ........ left ......... end
//	        on the line    in the buffer
type Port struct {
	// Fields that every packet needs: four cache lines.
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

	// Fields that few ports need.
	server                    *server
	tail, byLaw, byDown, lost Count
	marks, marksDropped       int64
	padding                   int64       // of sent: what short packets lack to leastFrame, bytes
	held                      *heldByLaws // nil: there was never a law, nor a guard that took or injected a packet
	Name                      string      // "switch->receiver1"
	ID                        int32       // index into Network.Ports; the other direction has ID^1
	Node, Peer                NodeID
	Rate                      law.Rate // 0: a wire
	Buffer                    law.Limit
	Labels                    []string // of measure.ports, ascending
	_                         [8]byte  // 448 bytes: whole cache lines. A power of two would map all ports to a few sets of the cache
}

type portKind uint8

const (
	fifo portKind = iota
	served
	wire
)

// firstSlots is the first size of a ring, in slots.
const firstSlots = 16

// localRate is about the rate of a software bridge between two guests, bit/s.
const localRate = 10e9

// init initialises the port of a link. A rate of 0 makes it a wire. bare: packets take only their own bytes on the
// line.
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

// Enlarge gives the port so much buffer in addition, in packets of 1500 bytes if it counts packets. A port that shares a buffer
// keeps its own limit.
func (p *Port) Enlarge(more law.Bytes) {
	if p.Buffer.Packets {
		more /= packetOfLimit
		p.packets += int64(more)
	} else {
		p.bytes += int64(more)
	}
	p.Buffer.N += int64(more)
}

// packetOfLimit is a packet of a limit in packets, in bytes (law.Limit).
const packetOfLimit = 1500

// Send takes over pk. The packet passes the laws. Then it is queued, sent and passed to the peer node, or dropped.
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
	p.countMark(pk, 1)
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

// fits reports whether the buffer, as of the last drain, has room for pk. If it had room then, it has room now.
func (p *Port) fits(pk *Packet) bool {
	return p.backlog+int64(pk.bytes) <= p.bytes && int64(p.end-p.left) < p.packets
}

// push adds a packet to the ring whose last bit leaves at the time leaves.
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

// grow doubles the ring. It never shrinks, and is limited by the buffer and by what fits on the line.
func (p *Port) grow() {
	ring := make([]slot, max(2*len(p.ring), firstSlots))
	for i := p.first; i != p.end; i++ {
		ring[i&uint32(len(ring)-1)] = p.ring[i&uint32(len(p.ring)-1)]
	}
	p.ring = ring
}

// drain removes packets from the buffer that have left by now.
func (p *Port) drain(now event.Time) {
	for p.left != p.end {
		s := &p.ring[p.left&uint32(len(p.ring)-1)]
		if s.leaves > now {
			return
		}
		p.depart(s.pk)
	}
}

// depart removes a packet that has left from the buffer.
func (p *Port) depart(pk *Packet) {
	p.left++
	p.backlog -= int64(pk.bytes)
	p.leave(pk)
}

// Happen has the first packet of the ring arrive at the peer. If the buffer was not read since the packet left, the
// packet is removed from it now.
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
	if pk.ecn == CE {
		pk.here = false
	}
	if p.net.loss != nil && p.net.loss(p, pk) {
		p.lost.add(pk)
		p.net.dropped(p, pk, DropLoss, now)
		return
	}
	p.peer.receive(pk, now)
}

// overflow rescues or drops a packet for which the buffer has no room.
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
		if pk.here {
			p.marksDropped++
		}
	case DropLaw:
		p.byLaw.add(pk)
	default:
		p.byDown.add(pk)
	}
	pk.here = false
	p.net.dropped(p, pk, reason, now)
}

// Backlog returns the bytes in the buffer now. A packet counts until its last bit has left.
func (p *Port) Backlog() int64 {
	if p.kind == fifo {
		p.drain(p.net.Queue.Now())
	}
	return p.backlog
}

// BacklogPackets returns the packets in the buffer now.
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

// Gauge returns the values that are sampled every few microseconds: the bytes in the buffer now, the bytes sent, and
// the packets that laws set to CE, without the dropped ones. Counters has the others.
func (p *Port) Gauge() (backlog, sentBytes, marks int64) { return p.Backlog(), p.sent.Bytes, p.marks }

// LineBytes returns the bytes that the sent packets took on the line. They differ from the packets' own by padding,
// preamble, CRC and gap, unless the line is bare.
func (p *Port) LineBytes() int64 {
	if p.kind == fifo {
		p.drain(p.net.Queue.Now())
	}
	if p.line.bare {
		return p.sent.Bytes
	}
	return p.sent.Bytes + p.padding + p.sent.Packets*(crcBytes+betweenBytes)
}

// leave counts a packet that has left.
func (p *Port) leave(pk *Packet) {
	p.sent.add(pk)
	if pk.bytes < leastFrame {
		p.padding += int64(leastFrame - pk.bytes)
	}
}

// Served reports whether the port decides only at the time of sending what it sends. FreeAt has no meaning then.
func (p *Port) Served() bool { return p.kind == served }

// ServedSince returns when a Served port became one.
func (p *Port) ServedSince() event.Time { return p.server.since }

// FreeAt returns when all packets in a FIFO will have left: Now or earlier if it is idle.
func (p *Port) FreeAt() event.Time {
	if p.jitter != nil {
		return max(p.line.free, p.jitter.last)
	}
	return p.line.free
}

// Counters returns the port's counters as of now.
func (p *Port) Counters() Counters {
	held := Count{p.BacklogPackets(), p.Backlog()}
	c := Counters{
		In: p.in, Sent: p.sent, Tail: p.tail, Law: p.byLaw, Down: p.byDown, Queued: held, Lost: p.lost,
		Marks: p.marks, MarksDropped: p.marksDropped,
	}
	if p.held != nil {
		c.Own, c.Taken = p.held.own, p.held.taken
	}
	return c
}

// Reverse returns the port at the other end of the link.
func (p *Port) Reverse() *Port { return p.net.Ports[p.ID^1] }

// Shape puts a token bucket before the line: packets wait in the buffer until the bucket has their bytes (frames as
// buffers count them). The bucket's size is what arrives during depth, or one packet if that is more. A wire becomes a
// FIFO with a NIC's buffer, and a line that takes almost no time. For a rate that changes, use SetRate.
func (p *Port) Shape(rate law.Rate, depth law.Duration) {
	if p.kind == wire {
		p.kind, p.line = fifo, newLine(maxRate, p.line.bare)
	}
	p.bucket = &bucket{full: newLine(int64(rate), true), depth: event.Time(depth)}
}

// Tap calls f for every packet that will be sent, with the time when its last bit leaves. A FIFO calls f when it queues
// the packet, ahead of that time, and a flap may still lose the packet. The times of one port never decrease.
func (p *Port) Tap(f func(pk *Packet, leaves event.Time)) { p.tap = f }

// SetDown sets this direction of the link down, or up again. Packets in the buffer, and packets sent while it is down,
// are lost. Packets on the line arrive.
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
		p.countMark(s.pk, -1)
		p.backlog -= int64(s.pk.bytes)
		p.drop(s.pk, DropDown, now)
		s.pk = nil
	}
	if p.first == p.end {
		p.net.Queue.Stop(&p.arrival)
	}
	p.idle(now)
}

// idle frees the line and the bucket from packets that were dropped before they left. The bucket is full then, because
// a port that is down sends nothing. In a wire no packet waits, so its line keeps its time.
func (p *Port) idle(now event.Time) {
	if p.kind == wire {
		return
	}
	p.line.free, p.line.rest = now, 0
	p.resetJitter()
	if p.bucket != nil && p.bucket.full.free > now {
		p.bucket.full.free, p.bucket.full.rest = now, 0
	}
}

// resetJitter forgets the late packets that were dropped or are queued again. Packets on the line arrive, and the next
// one must not overtake them.
func (p *Port) resetJitter() {
	if p.jitter == nil {
		return
	}
	p.jitter.last = 0
	if p.first != p.end {
		p.jitter.last = p.ring[(p.end-1)&uint32(len(p.ring)-1)].leaves
	}
}
