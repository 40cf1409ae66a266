package frames

import (
	"encoding/binary"
	"slices"

	"github.com/gopacket/gopacket"
)

// Kind is what a frame contains, as far as a switch can know.
type Kind int

// Kinds of frames.
const (
	KindTCP      Kind = iota
	KindOther         // not IP, or IP without TCP
	KindTunnel        // encapsulated, encrypted or signed: IPIP, GRE, ESP, AH; VXLAN and others over UDP
	KindFragment      // an IP fragment, the first too
	KindShort         // ended before its headers did, or they contradict themselves
)

func (k Kind) String() string {
	return [...]string{"TCP", "other", "tunnel", "fragment", "short"}[k]
}

// View is a frame taken apart. Offsets are from the frame's first byte; they hold for KindTCP.
type View struct {
	Frame []byte
	Kind  Kind
	L3    int
	L4    int // TCP header
	Data  int // payload
	End   int // behind the IP packet; padding follows
}

// MaxExtensions is the number of IPv6 extension headers that Parse follows.
const MaxExtensions = 6

// Parse takes a frame apart. It follows up to two tags. A length of 0 in the IP header means the rest of the
// frame (RFC 2675; Linux uses it for IPv4 too).
func Parse(frame []byte) View {
	v := View{Frame: frame, Kind: KindShort, L3: ethHeader}
	if len(frame) < ethHeader {
		return v
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	for tags := 0; tags < 2 && (kind == TypeVLAN || kind == TypeQinQ); tags++ {
		v.L3 += tagBytes
		if len(frame) < v.L3 {
			return v
		}
		kind = binary.BigEndian.Uint16(frame[v.L3-2:])
	}
	switch kind {
	case TypeIPv4:
		v.ipv4()
	case TypeIPv6:
		v.ipv6()
	default:
		v.Kind = KindOther
	}
	return v
}

func (v *View) ipv4() {
	ip := v.Frame[v.L3:]
	if len(ip) < ipv4Header || ip[0]>>4 != 4 || ip[0]&15 < 5 {
		return
	}
	switch moreOrOffset := binary.BigEndian.Uint16(ip[6:]) & 0x3fff; {
	case moreOrOffset != 0:
		v.Kind = KindFragment
	case ip[9] != TCP:
		v.Kind = v.notTCP(ip[9], v.L3+int(ip[0]&15)*4)
	default:
		v.tcp(v.L3+int(ip[0]&15)*4, v.L3+int(binary.BigEndian.Uint16(ip[2:])), v.L3)
	}
}

func (v *View) ipv6() {
	ip := v.Frame[v.L3:]
	if len(ip) < ipv6Header || ip[0]>>4 != 6 {
		return
	}
	behind := v.L3 + ipv6Header
	at, protocol := behind, ip[6]
	for followed := 0; protocol != TCP; followed++ {
		if followed == MaxExtensions {
			v.Kind = KindOther // perhaps TCP, behind more headers than anybody sends
			return
		}
		switch protocol {
		case HopByHop, Routing, ToHost:
		case Fragment:
			v.Kind = KindFragment
			return
		default:
			v.Kind = v.notTCP(protocol, at)
			return
		}
		if len(v.Frame) < at+2 {
			return
		}
		protocol, at = v.Frame[at], at+8+8*int(v.Frame[at+1])
	}
	v.tcp(at, behind+int(binary.BigEndian.Uint16(ip[4:])), behind)
}

// notTCP returns the kind of a packet of another protocol, whose payload is at l4.
func (v *View) notTCP(protocol byte, l4 int) Kind {
	switch protocol {
	case IPIP, IPv6InIP, GRE, ESP, AH:
		return KindTunnel
	case UDP:
		for at := l4; at < l4+4 && l4+4 <= len(v.Frame); at += 2 {
			if slices.Contains(TunnelPorts, binary.BigEndian.Uint16(v.Frame[at:])) {
				return KindTunnel
			}
		}
	}
	return KindOther
}

// TunnelPorts are the UDP ports of VXLAN (and the one that Linux used before), Geneve, ESP and WireGuard.
var TunnelPorts = []uint16{4789, 8472, 6081, 4500, 51820}

// tcp reads a TCP header at l4 of a packet that ends at end. If end is zero, the IP header has length 0.
func (v *View) tcp(l4, end, zero int) {
	if end == zero {
		end = len(v.Frame)
	}
	if len(v.Frame) < l4+tcpHeader {
		return
	}
	header := int(v.Frame[l4+12]>>4) * 4
	if header < tcpHeader || end > len(v.Frame) || l4+header > end {
		return
	}
	v.Kind, v.L4, v.Data, v.End = KindTCP, l4, l4+header, end
}

// Flags returns the flags of the TCP header.
func (v *View) Flags() byte { return v.Frame[v.L4+13] }

// Window returns the window field, not scaled.
func (v *View) Window() uint16 { return binary.BigEndian.Uint16(v.Frame[v.L4+14:]) }

// Options returns the options of the TCP header.
func (v *View) Options() []byte { return v.Frame[v.L4+tcpHeader : v.Data] }

// ChecksumError returns the error of the TCP checksum, computed from all of the segment: 0 if it is correct.
func (v *View) ChecksumError() uint16 { return v.sum() % 0xffff }

// sum is all ones if the checksum is correct.
func (v *View) sum() uint16 {
	return ^gopacket.FoldChecksum(gopacket.ComputeChecksum(v.Frame[v.L4:v.End], uint32(v.PartialChecksum())))
}

// SetChecksum sets the correct TCP checksum.
func (v *View) SetChecksum() {
	check := v.Frame[v.L4+16 : v.L4+18]
	check[0], check[1] = 0, 0
	binary.BigEndian.PutUint16(check, ^v.sum())
}

// PartialChecksum returns the checksum field of a segment whose checksum the device completes: the sum of the
// pseudo header.
func (v *View) PartialChecksum() uint16 {
	addresses := v.Frame[v.L3+12 : v.L3+20]
	if v.Frame[v.L3]>>4 == 6 {
		addresses = v.Frame[v.L3+8 : v.L3+40]
	}
	return ^gopacket.FoldChecksum(gopacket.ComputeChecksum(addresses, TCP+uint32(v.End-v.L4)))
}

// SetPartialChecksum sets a TCP checksum that the device completes.
func (v *View) SetPartialChecksum() {
	binary.BigEndian.PutUint16(v.Frame[v.L4+16:], v.PartialChecksum())
}

// Checksum returns the checksum field.
func (v *View) Checksum() uint16 { return binary.BigEndian.Uint16(v.Frame[v.L4+16:]) }

// Ports returns the source and the destination port.
func (v *View) Ports() [2]uint16 {
	return [2]uint16{binary.BigEndian.Uint16(v.Frame[v.L4:]), binary.BigEndian.Uint16(v.Frame[v.L4+2:])}
}
