package network

import "slices"

// NodeID is the index of a node in experiment.Graph.Nodes.
type NodeID int32

// Packet.Flags: the flags of a TCP header in the order of their bits (RFC 9293, section 3.1), and AE
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

// Packet.ECN: the two low bits of the traffic class (RFC 3168, section 5).
const (
	NotECT = 0
	ECT1   = 1
	ECT0   = 2
	CE     = 3
)

// Packet.Proto.
const (
	TCP = 6
	UDP = 17
)

// Packet.Feedback: where Total and Marked stand.
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

// Packet is one frame. All but SACK blocks and feedback stands in its first cache line: no hop, and hardly an end, needs
// the second. Slabs of the pool begin on a page, so that no line holds parts of two packets.
type Packet struct {
	Src, Dst         NodeID
	Bytes            int32  // frame from the Ethernet header on: what buffers count. The line takes more: Port
	Hash             uint32 // of the five-tuple, for ECMP: FlowHash. It differs by direction
	Conn             int32  // which connection: for the stack
	Seq, Ack         uint32
	Payload          int32 // bytes
	SrcPort, DstPort uint16
	Window           uint16 // as it stands in the header
	Flags            uint16 // FIN .. AE
	ECN              uint8  // NotECT, ECT1, ECT0, CE
	Priority         uint8  // 0 .. 7, of no effect where ports have one queue
	Proto            uint8  // TCP, UDP
	pooled           bool
	ToAcceptor       bool // which end of the connection it goes to
	NBlocks          uint8
	Reserved         uint8  // the header's reserved bits
	Scale            int8   // window scale of a SYN's option, -1: none
	MSS              uint16 // of a SYN's option; 0: none
	SACKPermitted    bool
	Feedback         uint8  // NoFeedback, FeedbackOption, FeedbackAlone
	Tag              uint64 // free for the sender's own measuring; no node looks at it

	Blocks [4]Block // the first NBlocks
	Total  uint32   // bytes of data that came to a virtual switch, modulo 2^32, and those of them
	Marked uint32   // that were marked; Feedback says whether they are there
	next   *Packet  // in a queue of a served port
	_      [16]byte // 128 bytes: two whole cache lines
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
	pk.Src, pk.Dst, pk.Bytes, pk.Hash = 0, 0, 0, 0
	pk.Conn, pk.Seq, pk.Ack, pk.Payload = 0, 0, 0, 0
	pk.SrcPort, pk.DstPort, pk.Window, pk.Flags = 0, 0, 0, 0
	pk.ECN, pk.Priority, pk.Proto, pk.pooled = 0, 0, 0, false
	pk.ToAcceptor, pk.NBlocks, pk.Reserved, pk.Scale = false, 0, 0, -1
	pk.MSS, pk.SACKPermitted, pk.Feedback, pk.Tag = 0, false, NoFeedback, 0
	return pk
}

// grow fills an empty pool.
func (p *pool) grow() {
	p.free = slices.Grow(p.free, int(p.lent)+slabPackets)
	slab := make([]Packet, slabPackets)
	for i := range slab {
		slab[i].pooled = true
		p.free = append(p.free, &slab[i])
	}
}

// Free takes a packet back. Giving one back twice is a defect of the caller and panics.
func (n *Network) Free(pk *Packet) {
	if pk.pooled {
		panic("network: a packet was freed twice")
	}
	pk.pooled = true
	n.pool.free = append(n.pool.free, pk)
	n.pool.lent--
}

// Lent is how many packets are outside the pool: with senders, in ports, on lines, with the sink.
func (n *Network) Lent() int64 { return n.pool.lent }
