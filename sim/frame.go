package sim

import (
	"encoding/binary"

	"weir/sim/network"
)

const (
	ipHeader  = 20
	tcpHeader = 20
	udpHeader = 8
	// longestHeaders is the size of Ethernet, IPv4 and TCP headers with 40 bytes of options.
	longestHeaders = etherHeader + ipHeader + 60
)

// frame writes the headers of a packet into b, as they would be on the wire, and returns their length in bytes. The
// rest of the frame is payload of zeros. The checksum of TCP or UDP covers it, but zeros add nothing.
func frame(b *[longestHeaders]byte, pk *network.Packet) int {
	clear(b[:])
	mac(b[0:6], pk.Dst())
	mac(b[6:12], pk.Src())
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := b[etherHeader:]
	total := int(pk.Bytes()) - etherHeader
	ip[0], ip[1] = 0x45, pk.ECN()&3
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	binary.BigEndian.PutUint16(ip[6:], 0x4000) // do not fragment; identification 0 (RFC 6864)
	if pk.IPFlag() {
		ip[6] |= 0x80
	}
	ip[8], ip[9] = 64, pk.Proto()
	src, dst := addr(pk.Src()).As4(), addr(pk.Dst()).As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	if pk.Proto() == network.MarkMessage {
		markMessage(ip, pk)
		return etherHeader + ipHeader
	}
	binary.BigEndian.PutUint16(ip[10:], checksum(sum(ip[:ipHeader], 0)))
	transport := ip[ipHeader:]
	length, checkAt := 0, 0
	if pk.Proto() == network.UDP {
		length, checkAt = udpHeader, 6
		udpFrame(transport, pk)
	} else {
		// The bytes of the frame beyond its payload are options, whose room was counted when it was sent.
		length, checkAt = min(max(total-ipHeader-int(pk.Payload()), tcpHeader), 60), 16
		tcpFrame(transport[:length], pk)
	}
	pseudo := sum(ip[12:20], uint32(pk.Proto())+uint32(total-ipHeader))
	check := checksum(sum(transport[:length], pseudo))
	if pk.Proto() == network.UDP && check == 0 {
		check = 0xffff // RFC 768: 0 means no checksum
	}
	binary.BigEndian.PutUint16(transport[checkAt:], check)
	return etherHeader + ipHeader + length
}

// markMessage makes an IPv4 header a message with a number of marks (SPEC 5): the number is its identification.
func markMessage(ip []byte, pk *network.Packet) {
	binary.BigEndian.PutUint16(ip[2:], ipHeader)
	binary.BigEndian.PutUint16(ip[4:], uint16(min(pk.Marked(), 0xffff)))
	binary.BigEndian.PutUint16(ip[6:], 0)
	binary.BigEndian.PutUint16(ip[10:], checksum(sum(ip[:ipHeader], 0)))
}

// mac writes the address of a host's only port: locally administered.
func mac(b []byte, id network.NodeID) {
	b[0], b[1] = 0x02, 0x77
	binary.BigEndian.PutUint32(b[2:], uint32(id))
}

func udpFrame(b []byte, pk *network.Packet) {
	binary.BigEndian.PutUint16(b[0:], pk.SrcPort())
	binary.BigEndian.PutUint16(b[2:], pk.DstPort())
	binary.BigEndian.PutUint16(b[4:], uint16(udpHeader+pk.Payload()))
}

// tcpFrame writes a TCP header (RFC 9293 3.1) with its options; b has their length.
func tcpFrame(b []byte, pk *network.Packet) {
	binary.BigEndian.PutUint16(b[0:], pk.SrcPort())
	binary.BigEndian.PutUint16(b[2:], pk.DstPort())
	binary.BigEndian.PutUint32(b[4:], pk.Seq())
	binary.BigEndian.PutUint32(b[8:], pk.Ack())
	// Data offset, three reserved bits, AE, and the eight flags.
	binary.BigEndian.PutUint16(b[12:], uint16(len(b)/4)<<12|uint16(pk.Reserved()&7)<<9|pk.Flags()&0x1ff)
	binary.BigEndian.PutUint16(b[14:], pk.Window())
	o := options{b[tcpHeader:]}
	if pk.MSS() > 0 {
		o.put(2, 4, byte(pk.MSS()>>8), byte(pk.MSS()))
	}
	if pk.SACKPermitted() {
		o.put(4, 2)
	}
	if pk.Scale() >= 0 {
		o.put(3, 3, byte(pk.Scale()))
	}
	if blocks := pk.Blocks(); len(blocks) > 0 {
		o.put(1)
		o.put(1)
		o.put(5, byte(2+8*len(blocks)))
		for _, block := range blocks {
			var edges [8]byte
			binary.BigEndian.PutUint32(edges[:], block.From)
			binary.BigEndian.PutUint32(edges[4:], block.To)
			o.put(edges[:]...)
		}
	}
	if pk.Feedback() != network.NoFeedback { // experimental, with an identifier (RFC 6994)
		feedback := [network.FeedbackBytes]byte{253, network.FeedbackBytes, 'W', 'e'}
		binary.BigEndian.PutUint32(feedback[4:], pk.Total())
		binary.BigEndian.PutUint32(feedback[8:], pk.Marked())
		o.put(feedback[:]...)
	}
	// A timestamp option uses the room that is left for it. Its clock ticks with every segment sent
	// (tcp.Config.Timestamps).
	if len(o.room) >= 10 {
		var ts [8]byte
		binary.BigEndian.PutUint32(ts[:], uint32(pk.Tag()))
		binary.BigEndian.PutUint32(ts[4:], uint32(pk.Tag()>>32))
		o.put(8, 10)
		o.put(ts[:]...)
	}
	for len(o.room) > 0 {
		o.put(1) // NOP
	}
}

// options fills the room for options, and leaves out an option that does not fit.
type options struct{ room []byte }

func (o *options) put(b ...byte) { o.room = o.room[copy(o.room, b):] }

// sum adds 16-bit words (RFC 1071).
func sum(b []byte, start uint32) uint32 {
	for len(b) > 1 {
		start += uint32(b[0])<<8 | uint32(b[1])
		b = b[2:]
	}
	if len(b) > 0 {
		start += uint32(b[0]) << 8
	}
	return start
}

func checksum(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
