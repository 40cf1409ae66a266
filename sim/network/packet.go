package network

import "slices"

// NodeID is the index of a node in experiment.Graph.Nodes.
type NodeID int32

// Flags of a packet: those of a TCP header in the order of their bits (RFC 9293, section 3.1), and AE
// (RFC 9768), the bit before CWR.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	AE
)

// ECN of a packet: the two low bits of the traffic class (RFC 3168, section 5).
const (
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
)

// Proto of a packet.
const (
	TCP = 6
	UDP = 17
)

// Feedback of a packet: where Total and Marked stand.
const (
	NoFeedback     = iota
	FeedbackOption // in an option of a guest's segment, of FeedbackBytes
	FeedbackAlone  // in an ACK of a virtual switch's own, which no guest sees
)

// FeedbackBytes is an experimental TCP option: kind, length, identifier (RFC 6994) and two numbers of 32 bits.
const FeedbackBytes = 12

// HeaderBytes is an Ethernet header (without preamble and CRC), an IPv4 header and a TCP header, each
// without options.
const HeaderBytes = 14 + 20 + 20

// Priorities is how many strict priorities a port can have: 0, the lowest, to 7 (IEEE 802.1Q).
const Priorities = 8

// Block is a SACK block (RFC 2018): the bytes From up to, not including, To.
type Block struct{ From, To uint32 }

// Packet is one frame. Everybody outside this package sees it through the methods in fields.go, so that its layout is
// this package's own affair. All but SACK blocks and feedback stands in its first cache line: no hop, and hardly an end,
// needs the second. Slabs of the pool begin on a page, so that no line holds parts of two packets.
type Packet struct {
	src, dst         NodeID
	bytes            int32
	hash             uint32
	conn             int32
	seq, ack         uint32
	payload          int32
	srcPort, dstPort uint16
	window           uint16
	flags            uint16
	ecn              uint8
	priority         uint8
	proto            uint8
	state            uint8 // lent, pooled, or taken by a law
	toAcceptor       bool
	nBlocks          uint8
	reserved         uint8
	scale            int8
	mss              uint16
	sackPermitted    bool
	feedback         uint8
	tag              uint64

	blocks [mostBlocks]Block // the first nBlocks
	total  uint32
	marked uint32
	next   *Packet // in a queue of a served port
	at     *Port   // of a taken packet: where, and
	by     uint8   // the number of the law, and
	was    uint8   // the ECN field that it had
	_      [6]byte // 128 bytes: two whole cache lines
}

// FlowHash is the hash of a five-tuple by direction. Every bit of it depends on every bit of them.
func FlowHash(src, dst NodeID, srcPort, dstPort uint16, proto uint8) uint32 {
	a := uint64(uint32(src))<<32 | uint64(uint32(dst))
	b := uint64(srcPort)<<24 | uint64(dstPort)<<8 | uint64(proto)
	return uint32(mix(mix(a)^b) >> 32)
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014): each bit of x moves every bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// slabPackets is how many packets the pool takes from the heap at once: 64 KiB, which begin on a page. (Go puts a
// header before what has pointers and less than 32 KiB.)
const slabPackets = 512

// pool lends packets, the last that came back first. It only grows: to the most that were lent at one time.
type pool struct {
	free []*Packet // has room for all that there are
	lent int64
}

// NewPacket lends a packet, zeroed but for Scale, which is -1, and Blocks, Total and Marked, of which none counts. Whoever has it last
// gives it back by Free: the sink what it is delivered, ports what they drop.
func (n *Network) NewPacket() *Packet {
	p := &n.pool
	if len(p.free) == 0 {
		p.grow()
	}
	last := len(p.free) - 1
	pk := p.free[last]
	p.free = p.free[:last]
	p.lent++
	// One by one: the second cache line is not touched.
	pk.src, pk.dst, pk.bytes, pk.hash = 0, 0, 0, 0
	pk.conn, pk.seq, pk.ack, pk.payload = 0, 0, 0, 0
	pk.srcPort, pk.dstPort, pk.window, pk.flags = 0, 0, 0, 0
	pk.ecn, pk.priority, pk.proto, pk.state = 0, 0, 0, lent
	pk.toAcceptor, pk.nBlocks, pk.reserved, pk.scale = false, 0, 0, -1
	pk.mss, pk.sackPermitted, pk.feedback, pk.tag = 0, false, NoFeedback, 0
	return pk
}

// grow fills an empty pool.
func (p *pool) grow() {
	p.free = slices.Grow(p.free, int(p.lent)+slabPackets)
	slab := make([]Packet, slabPackets)
	for i := range slab {
		slab[i].state = pooled
		p.free = append(p.free, &slab[i])
	}
}

// Free takes a packet back. Giving one back twice, or one that a law has taken, is a defect of the caller and panics.
func (n *Network) Free(pk *Packet) {
	if pk.state != lent {
		panic("network: a packet was freed twice, or while a law had taken it")
	}
	pk.state = pooled
	n.pool.free = append(n.pool.free, pk)
	n.pool.lent--
}

// Lent is how many packets are outside the pool: with senders, in ports, on lines, with the sink.
func (n *Network) Lent() int64 { return n.pool.lent }
