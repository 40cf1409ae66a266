// Package frames builds Ethernet frames with TCP, takes them apart and mutates them, for tests of the
// kernel programs. It is written from the RFCs and knows nothing of those programs.
//
//	0   destination and source address, 12 B
//	12  VLAN tags, 4 B each: TPID 2 B, TCI 2 B
//	12+ EtherType 2 B
//	14+ IPv4 (RFC 791): 20 B and options, or IPv6 (RFC 8200): 40 B and extension headers
//	    TCP (RFC 9293 3.1): 20 B and options, payload
//	    padding
package frames

import (
	"encoding/binary"
	"net/netip"
)

// EtherTypes and IP protocols.
const (
	TypeIPv4   = 0x0800
	TypeIPv6   = 0x86dd
	TypeVLAN   = 0x8100 // 802.1Q
	TypeQinQ   = 0x88a8 // 802.1ad
	HopByHop   = 0
	IPIP       = 4
	TCP        = 6
	UDP        = 17
	IPv6InIP   = 41
	Routing    = 43
	Fragment   = 44
	GRE        = 47
	ESP        = 50
	AH         = 51
	NoNext     = 59
	ToHost     = 60 // IPv6 destination options
	ethHeader  = 14
	tagBytes   = 4
	ipv4Header = 20
	ipv6Header = 40
	tcpHeader  = 20
)

// Flags of TCP.
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	PSH = 0x08
	ACK = 0x10
	URG = 0x20
	ECE = 0x40
	CWR = 0x80
)

// Tag is a VLAN tag in the data of a frame.
type Tag struct{ TPID, TCI uint16 }

// Extension is an IPv6 extension header: its kind, and what stands behind the two bytes of next header
// and length. The builder fills it up to a multiple of 8 bytes.
type Extension struct {
	Kind byte
	Body []byte
}

// Link is what comes before the IP header.
type Link struct {
	Dst, Src [6]byte
	Tags     []Tag // outer first
}

// IP is an IP header. Its version is that of the addresses.
type IP struct {
	From, To   netip.Addr
	TOS        byte
	ID         uint32      // IPv4: identification; IPv6: flow label, 20 bits
	Fragment   uint16      // IPv4: 3 flags, 13 bits of offset
	Options    []byte      // IPv4: a multiple of 4, 40 at most
	Extensions []Extension // IPv6
}

// Segment is a frame with a TCP segment.
type Segment struct {
	Link
	IP
	FromPort, ToPort uint16
	Seq, Ack         uint32
	Reserved         byte // 4 bits
	Flags            byte
	Window, Urgent   uint16
	Options          []byte // of TCP: a multiple of 4, 40 at most
	Payload          []byte
	Padding          int // bytes behind the IP packet
}

// Bytes builds the frame, every checksum made in full.
func (s *Segment) Bytes() []byte { return s.Append(nil) }

// Append is Bytes behind what stands in b.
func (s *Segment) Append(b []byte) []byte {
	start := len(b)
	b, l4 := s.IP.header(s.Link.header(b, &s.IP), TCP)
	b = binary.BigEndian.AppendUint16(b, s.FromPort)
	b = binary.BigEndian.AppendUint16(b, s.ToPort)
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = append(b, byte(tcpHeader+len(s.Options))/4<<4|s.Reserved, s.Flags)
	b = binary.BigEndian.AppendUint16(b, s.Window)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, s.Urgent)
	b = append(append(b, s.Options...), s.Payload...)
	s.finish(b[start+ethHeader+tagBytes*len(s.Tags):])
	sum := pseudo(s.From.AsSlice(), s.To.AsSlice(), TCP, len(b)-l4)
	binary.BigEndian.PutUint16(b[l4+16:], ^fold(sum+add(b[l4:])))
	return append(b, make([]byte, s.Padding)...)
}

// Packet builds a frame around any IP payload.
func Packet(l Link, ip IP, protocol byte, payload []byte) []byte {
	b, _ := ip.header(l.header(nil, &ip), protocol)
	b = append(b, payload...)
	ip.finish(b[ethHeader+tagBytes*len(l.Tags):])
	return b
}

func (l *Link) header(b []byte, ip *IP) []byte {
	b = append(append(b, l.Dst[:]...), l.Src[:]...)
	for _, t := range l.Tags {
		b = binary.BigEndian.AppendUint16(b, t.TPID)
		b = binary.BigEndian.AppendUint16(b, t.TCI)
	}
	if ip.From.Is4() {
		return binary.BigEndian.AppendUint16(b, TypeIPv4)
	}
	return binary.BigEndian.AppendUint16(b, TypeIPv6)
}

// header appends the IP header, without its length and checksum, and gives the offset behind it.
func (ip *IP) header(b []byte, protocol byte) ([]byte, int) {
	if ip.From.Is4() {
		from, to := ip.From.As4(), ip.To.As4()
		b = append(b, 0x40|byte(ipv4Header+len(ip.Options))/4, ip.TOS, 0, 0, byte(ip.ID>>8), byte(ip.ID))
		b = binary.BigEndian.AppendUint16(b, ip.Fragment)
		b = append(b, 64, protocol, 0, 0)
		b = append(append(append(b, from[:]...), to[:]...), ip.Options...)
		return b, len(b)
	}
	from, to := ip.From.As16(), ip.To.As16()
	next := protocol
	if len(ip.Extensions) > 0 {
		next = ip.Extensions[0].Kind
	}
	b = append(b, 0x60|ip.TOS>>4, ip.TOS<<4|byte(ip.ID>>16&15), byte(ip.ID>>8), byte(ip.ID), 0, 0, next, 64)
	b = append(append(b, from[:]...), to[:]...)
	for i, e := range ip.Extensions {
		next = protocol
		if i+1 < len(ip.Extensions) {
			next = ip.Extensions[i+1].Kind
		}
		words := (2 + len(e.Body) + 7) / 8
		length := byte(words - 1)
		if e.Kind == AH { // in units of 4 bytes, less 2 (RFC 4302 2.2)
			length = byte(2*words - 2)
		}
		b = append(append(b, next, length), e.Body...)
		b = append(b, make([]byte, 8*words-2-len(e.Body))...)
	}
	return b, len(b)
}

// finish writes the length and the checksum of the header of a whole packet.
func (ip *IP) finish(packet []byte) {
	if ip.From.Is4() {
		header := packet[:ipv4Header+len(ip.Options)]
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
		binary.BigEndian.PutUint16(packet[10:], ^fold(add(header)))
		return
	}
	binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-ipv6Header))
}

// add is the sum of b in 16-bit words (RFC 1071), not folded.
func add(b []byte) (sum uint64) {
	for ; len(b) >= 4; b = b[4:] {
		sum += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		sum += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

func fold(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// pseudo is the sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1).
func pseudo(from, to []byte, protocol byte, bytes int) uint64 {
	return add(from) + add(to) + uint64(protocol) + uint64(bytes)
}
