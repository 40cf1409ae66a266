// Package frames builds Ethernet frames with TCP, takes them apart and mutates them, for tests of the kernel
// programs. It knows nothing of these programs. gopacket builds well-formed frames, and a test overwrites parts
// of them. Parse follows the RFCs instead of gopacket, since most frames of a test are broken.
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
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
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

// Extension is an IPv6 extension header: its kind, and what follows the two bytes of next header and length.
// The builder pads it to a multiple of 8 bytes.
type Extension struct {
	Kind byte
	Body []byte
}

// Link is what precedes the IP header.
type Link struct {
	Dst, Src [6]byte
	Tags     []Tag // outer first
}

// IP is an IP header. The addresses decide its version.
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

// Bytes builds the frame, every checksum computed in full.
func (s *Segment) Bytes() []byte { return s.Append(nil) }

// Append appends the frame to b.
func (s *Segment) Append(b []byte) []byte {
	w := newWriter()
	defer writers.Put(w)
	w.tcp = layers.TCP{
		SrcPort: layers.TCPPort(s.FromPort), DstPort: layers.TCPPort(s.ToPort), Seq: s.Seq, Ack: s.Ack,
		DataOffset: uint8(tcpHeader+len(s.Options)) / 4, Window: s.Window, Urgent: s.Urgent,
		FIN: s.Flags&FIN != 0, SYN: s.Flags&SYN != 0, RST: s.Flags&RST != 0, PSH: s.Flags&PSH != 0,
		ACK: s.Flags&ACK != 0, URG: s.Flags&URG != 0, ECE: s.Flags&ECE != 0, CWR: s.Flags&CWR != 0,
	}
	w.put(s.Payload)
	w.put(s.Options) // unchecked: a test may want any
	network := w.network(&s.IP, layers.IPProtocolTCP)
	must(w.tcp.SetNetworkLayerForChecksum(network))
	w.layer(&w.tcp)
	l4 := w.finish(&s.Link, &s.IP)
	start := len(b)
	b = append(b, w.Bytes()...)
	if s.Reserved != 0 { // the library knows one of the four bits
		v := View{Frame: b[start:], L3: ethHeader + tagBytes*len(s.Tags), L4: l4, End: len(b) - start}
		v.Frame[l4+12] |= s.Reserved
		v.SetChecksum()
	}
	return append(b, make([]byte, s.Padding)...)
}

// Packet builds a frame around any IP payload.
func Packet(l Link, ip IP, protocol byte, payload []byte) []byte {
	w := newWriter()
	defer writers.Put(w)
	w.put(payload)
	w.network(&ip, layers.IPProtocol(protocol))
	w.finish(&l, &ip)
	return append([]byte(nil), w.Bytes()...)
}

// writer is a buffer, into which layers are put innermost first, and the layers. It is reused: one run builds
// ten million frames.
type writer struct {
	gopacket.SerializeBuffer
	tcp      layers.TCP
	ip4      layers.IPv4
	ip6      layers.IPv6
	from, to []byte
}

var writers = sync.Pool{New: func() any { return &writer{SerializeBuffer: gopacket.NewSerializeBuffer()} }}

func newWriter() *writer {
	w := writers.Get().(*writer)
	must(w.Clear())
	return w
}

// must panics if the library refuses to build a frame.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("frames: build a frame: %v", err))
	}
}

// layer puts a layer in front of the buffer's contents. Lengths are those given in the layer.
func (w *writer) layer(l gopacket.SerializableLayer) {
	must(l.SerializeTo(w, gopacket.SerializeOptions{ComputeChecksums: true}))
}

func (w *writer) put(b []byte) {
	at, err := w.PrependBytes(len(b))
	must(err)
	copy(at, b)
}

// network returns the IP header of a packet with this protocol, without its length.
func (w *writer) network(ip *IP, protocol layers.IPProtocol) gopacket.NetworkLayer {
	w.from, _ = ip.From.AppendBinary(w.from[:0])
	w.to, _ = ip.To.AppendBinary(w.to[:0])
	if ip.From.Is4() {
		w.ip4 = layers.IPv4{
			Version: 4, IHL: uint8(ipv4Header+len(ip.Options)) / 4, TOS: ip.TOS, Id: uint16(ip.ID), TTL: 64, Protocol: protocol,
			Flags: layers.IPv4Flag(ip.Fragment >> 13), FragOffset: ip.Fragment & 0x1fff, SrcIP: w.from, DstIP: w.to,
		}
		return &w.ip4
	}
	w.ip6 = layers.IPv6{
		Version: 6, TrafficClass: ip.TOS, FlowLabel: ip.ID & 0xfffff, NextHeader: protocol, HopLimit: 64, SrcIP: w.from, DstIP: w.to,
	}
	return &w.ip6
}

// finish puts the headers in front of the buffer's contents, and returns the offset of those contents.
func (w *writer) finish(l *Link, ip *IP) (l4 int) {
	inner := len(w.Bytes())
	kind := layers.EthernetTypeIPv6
	if ip.From.Is4() {
		kind = layers.EthernetTypeIPv4
		w.ip4.Length = uint16(ipv4Header + len(ip.Options) + inner)
		w.put(ip.Options) // unchecked, too
		w.layer(&w.ip4)
		header := w.Bytes()[:ipv4Header+len(ip.Options)]
		header[10], header[11] = 0, 0
		binary.BigEndian.PutUint16(header[10:], gopacket.FoldChecksum(gopacket.ComputeChecksum(header, 0)))
	} else {
		for _, e := range slices.Backward(ip.Extensions) {
			w.put(e.bytes(byte(w.ip6.NextHeader)))
			w.ip6.NextHeader = layers.IPProtocol(e.Kind)
		}
		w.ip6.Length = uint16(len(w.Bytes()))
		w.layer(&w.ip6)
	}
	for _, t := range slices.Backward(l.Tags) {
		w.layer(&layers.Dot1Q{Priority: uint8(t.TCI >> 13), DropEligible: t.TCI&0x1000 != 0, VLANIdentifier: t.TCI & 0xfff, Type: kind})
		kind = layers.EthernetType(t.TPID)
	}
	// The library's own layer makes every frame 60 bytes long.
	w.put([]byte{byte(kind >> 8), byte(kind)})
	w.put(l.Src[:])
	w.put(l.Dst[:])
	return len(w.Bytes()) - inner
}

// bytes returns the extension header in front of a header of kind next. The library accepts only well-formed
// bodies.
func (e *Extension) bytes(next byte) []byte {
	words := (2 + len(e.Body) + 7) / 8
	length := byte(words - 1)
	if e.Kind == AH { // in units of 4 bytes, less 2 (RFC 4302 2.2)
		length = byte(2*words - 2)
	}
	b := make([]byte, 8*words)
	b[0], b[1] = next, length
	copy(b[2:], e.Body)
	return b
}
