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
	TCP         = 6
	UDP         = 17
	MarkMessage = 143 // a hypervisor's: Marked is its number of marks (SPEC 5)
)

// Feedback of a packet: where Total and Marked stand.
const (
	NoFeedback     = iota
	FeedbackOption // in an option of a guest's segment, of FeedbackBytes
	FeedbackAlone  // in an ACK of a virtual switch's own, which guests do not see
)

// FeedbackBytes is an experimental TCP option: kind, length, identifier (RFC 6994) and two numbers of 32 bits.
const FeedbackBytes = 12

// HeaderBytes is an Ethernet header (without preamble and CRC), an IPv4 header and a TCP header, each
// without options.
const HeaderBytes = 14 + 20 + 20

// Priorities is the number of strict priorities of a port: 0, the lowest, to 7 (IEEE 802.1Q).
const Priorities = 8

// Block is a SACK block (RFC 2018): the bytes from From up to To, without To.
type Block struct{ From, To uint32 }

// Packet is one frame. Code outside this package uses the methods in fields.go, so that the layout is private. All
// fields except SACK blocks and feedback are in the first cache line. No hop, and few ends, need the second. Slabs of
// the pool begin on a page, so that no line has parts of two packets.
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
	state            uint8 // borrowed, pooled, or taken by a law
	toAcceptor       bool
	nBlocks          uint8
	reserved         uint8
	scale            int8
	mss              uint16
	sackPermitted    bool
	feedback         uint8
	ipFlag           bool
	tag              uint64

	blocks [mostBlocks]Block // the first nBlocks
	total  uint32
	marked uint32
	next   *Packet // in a queue of a served port
	at     *Port   // of a taken packet: its port,
	by     uint8   // the number of the law,
	was    uint8   // and its ECN field before
	here   bool    // a law of the port that has the packet set it to CE
	_      [5]byte // 128 bytes: two whole cache lines
}

// FlowHash returns the hash of a five-tuple by direction. Every bit of it depends on every bit of the five-tuple.
func FlowHash(src, dst NodeID, srcPort, dstPort uint16, proto uint8) uint32 {
	a := uint64(uint32(src))<<32 | uint64(uint32(dst))
	b := uint64(srcPort)<<24 | uint64(dstPort)<<8 | uint64(proto)
	return uint32(mix(mix(a)^b) >> 32)
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014): each bit of x changes every bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// slabPackets is the number of packets that the pool allocates at once: 64 KiB, which begin on a page. (Go puts a
// header before an object with pointers and less than 32 KiB.)
const slabPackets = 512

// pool provides packets, the last freed one first. It only grows, to the largest number in use at one time.
type pool struct {
	free     []*Packet // its capacity is the number of all packets
	borrowed int64
}

// NewPacket returns a packet from the pool, zeroed except for Scale, which is -1, and for unused Blocks, Total and
// Marked. Its last owner returns it by Free: the sink frees what it gets, ports free what they drop.
func (n *Network) NewPacket() *Packet {
	p := &n.pool
	if len(p.free) == 0 {
		p.grow()
	}
	last := len(p.free) - 1
	pk := p.free[last]
	p.free = p.free[:last]
	p.borrowed++
	// One by one: this does not touch the second cache line.
	pk.src, pk.dst, pk.bytes, pk.hash = 0, 0, 0, 0
	pk.conn, pk.seq, pk.ack, pk.payload = 0, 0, 0, 0
	pk.srcPort, pk.dstPort, pk.window, pk.flags = 0, 0, 0, 0
	pk.ecn, pk.priority, pk.proto, pk.state = 0, 0, 0, borrowed
	pk.toAcceptor, pk.nBlocks, pk.reserved, pk.scale = false, 0, 0, -1
	pk.mss, pk.sackPermitted, pk.feedback, pk.ipFlag, pk.tag = 0, false, NoFeedback, false, 0
	return pk
}

// grow fills an empty pool.
func (p *pool) grow() {
	p.free = slices.Grow(p.free, int(p.borrowed)+slabPackets)
	slab := make([]Packet, slabPackets)
	for i := range slab {
		slab[i].state = pooled
		p.free = append(p.free, &slab[i])
	}
}

// Free returns a packet to the pool. It panics if the packet is in the pool already, or if a law has taken it.
func (n *Network) Free(pk *Packet) {
	if pk.state != borrowed {
		panic("network: a packet was freed twice, or while a law had taken it")
	}
	pk.state = pooled
	n.pool.free = append(n.pool.free, pk)
	n.pool.borrowed--
}

// Borrowed returns the number of packets outside the pool: with senders, in ports, on lines, with the sink.
func (n *Network) Borrowed() int64 { return n.pool.borrowed }
