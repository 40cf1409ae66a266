package frames

import (
	"encoding/binary"
	"math/rand/v2"
)

// Mutate makes another frame of one, in place where it can. It leaves two frames in five unchanged. Some of the
// others are still correct, some have one error, some are noise.
func Mutate(r *rand.Rand, frame []byte) []byte {
	if r.IntN(100) < 40 {
		return frame
	}
	times := []int{1, 1, 1, 1, 2, 3}[r.IntN(6)]
	for range times {
		v := Parse(frame)
		frame = mutations[r.IntN(len(mutations))](r, frame, &v)
	}
	// If the TCP header can still be found, make half of the checksums correct. With a wrong checksum the
	// program would not show how it handles the rest.
	if v := Parse(frame); v.Kind == KindTCP && r.IntN(2) == 0 {
		v.SetChecksum()
	}
	return frame
}

// mutation changes a frame, whose view is v.
type mutation func(r *rand.Rand, frame []byte, v *View) []byte

// mutations lists some twice, to run them twice as often.
var mutations = []mutation{
	flipHead, flipHead, flipAny, overwrite, cut, cut, lengthen, ipLength, ipHeader, protocol, protocol, fragment,
	dataOffset, options, options, flags, flags, window, tag, etherType, checksum, ports, noise,
}

func flipHead(r *rand.Rand, b []byte, _ *View) []byte {
	for range 1 + r.IntN(4) {
		b[r.IntN(min(len(b), 100))] ^= 1 << r.IntN(8)
	}
	return b
}

func flipAny(r *rand.Rand, b []byte, _ *View) []byte {
	b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	return b
}

func overwrite(r *rand.Rand, b []byte, _ *View) []byte {
	at := r.IntN(len(b))
	for i := at; i < min(len(b), at+1+r.IntN(16)); i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}

func cut(r *rand.Rand, b []byte, _ *View) []byte {
	return b[:1+r.IntN(min(len(b), 140))]
}

func lengthen(r *rand.Rand, b []byte, _ *View) []byte {
	for range r.IntN(100) {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

// ipLength sets another length of the packet: a little off, or any.
func ipLength(r *rand.Rand, b []byte, v *View) []byte {
	at := v.L3 + 2
	if len(b) > v.L3 && b[v.L3]>>4 == 6 {
		at = v.L3 + 4
	}
	if at+2 > len(b) {
		return b
	}
	length := binary.BigEndian.Uint16(b[at:]) + uint16(r.IntN(81)-40)
	switch r.IntN(4) {
	case 0:
		length = uint16(r.Uint32())
	case 1:
		length = 0
	}
	binary.BigEndian.PutUint16(b[at:], length)
	return b
}

// ipHeader sets another version or header length.
func ipHeader(r *rand.Rand, b []byte, v *View) []byte {
	if v.L3 < len(b) {
		b[v.L3] = []byte{0x45, 0x46, 0x4f, 0x44, 0x40, 0x60, 0x55, byte(r.Uint32())}[r.IntN(8)]
	}
	return b
}

// protocol sets another protocol than TCP.
func protocol(r *rand.Rand, b []byte, v *View) []byte {
	at := v.L3 + 9
	if len(b) > v.L3 && b[v.L3]>>4 == 6 {
		at = v.L3 + 6
	}
	if l4 := v.L4; v.Kind == KindTCP && r.IntN(4) == 0 {
		binary.BigEndian.PutUint16(b[l4+r.IntN(2)*2:], TunnelPorts[r.IntN(len(TunnelPorts))])
		b[at] = UDP
	} else if at < len(b) {
		b[at] = []byte{UDP, IPIP, IPv6InIP, GRE, ESP, AH, Fragment, HopByHop, Routing, ToHost, NoNext, byte(r.Uint32())}[r.IntN(12)]
	}
	return b
}

func fragment(r *rand.Rand, b []byte, v *View) []byte {
	if v.L3+8 <= len(b) && b[v.L3]>>4 == 4 {
		binary.BigEndian.PutUint16(b[v.L3+6:], uint16(r.Uint32())&(0xffff>>r.IntN(16)))
	}
	return b
}

// dataOffset sets another length of the TCP header: payload becomes options, or the reverse.
func dataOffset(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind == KindTCP {
		b[v.L4+12] = byte(r.Uint32())
	}
	return b
}

// options makes the TCP options a list of well and badly formed ones.
func options(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind != KindTCP {
		return b
	}
	if room := min(40, v.End-v.L4-20) / 4 * 4; r.IntN(2) == 0 { // overwriting payload too
		b[v.L4+12] = byte(20+room)/4<<4 | b[v.L4+12]&15
		v.Data = v.L4 + 20 + room
	}
	for list := v.Options(); len(list) > 0; {
		kind := []byte{OptionEnd, OptionNop, OptionNop, OptionMSS, OptionScale, OptionPermitted, OptionSACK, OptionTimestamps, OptionMD5, OptionAO, 30, byte(r.Uint32())}[r.IntN(12)]
		list[0] = kind
		n := map[byte]int{OptionMSS: 4, OptionScale: 3, OptionPermitted: 2, OptionSACK: 10, OptionTimestamps: 10, OptionMD5: 18, OptionAO: 16}[kind]
		if kind == OptionNop || len(list) == 1 {
			list = list[1:]
			continue
		}
		if n == 0 || r.IntN(6) == 0 {
			n = r.IntN(12)
		}
		list[1] = byte(n)
		list = list[min(len(list), max(1, n)):]
	}
	return b
}

func flags(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind == KindTCP {
		b[v.L4+13] = []byte{SYN, SYN | ACK, ACK, RST, RST | ACK, FIN | ACK, FIN, 0, byte(r.Uint32()), byte(r.Uint32())}[r.IntN(10)]
	}
	return b
}

func window(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind == KindTCP {
		binary.BigEndian.PutUint16(b[v.L4+14:], []uint16{0, 1, 0x7fff, 0xffff, uint16(r.Uint32())}[r.IntN(5)])
	}
	return b
}

// tag inserts a VLAN tag before the packet.
func tag(r *rand.Rand, b []byte, _ *View) []byte {
	if len(b) < ethHeader || len(b) > 3000 {
		return b
	}
	b = append(b, 0, 0, 0, 0)
	copy(b[16:], b[12:])
	binary.BigEndian.PutUint16(b[12:], []uint16{TypeVLAN, TypeQinQ, 0x9100}[r.IntN(3)])
	binary.BigEndian.PutUint16(b[14:], uint16(r.Uint32()))
	return b
}

func etherType(r *rand.Rand, b []byte, v *View) []byte {
	if v.L3 <= len(b) {
		kinds := []uint16{TypeIPv4, TypeIPv6, TypeVLAN, TypeQinQ, 0x0806, 0x8847, 60, uint16(r.Uint32())}
		binary.BigEndian.PutUint16(b[v.L3-2:], kinds[r.IntN(len(kinds))])
	}
	return b
}

// checksum sets a value that arithmetic often gets wrong, or any.
func checksum(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind == KindTCP {
		binary.BigEndian.PutUint16(b[v.L4+16:], []uint16{0, 0xffff, 1, 0xfffe, uint16(r.Uint32())}[r.IntN(5)])
	}
	return b
}

// ports makes the segment belong to another connection, mostly an unknown one.
func ports(r *rand.Rand, b []byte, v *View) []byte {
	if v.Kind == KindTCP {
		binary.BigEndian.PutUint32(b[v.L4:], r.Uint32())
	}
	return b
}

// noise returns random bytes, mostly behind bytes that look like a header.
func noise(r *rand.Rand, b []byte, v *View) []byte {
	from := []int{12, v.L3, v.L3 + 1, v.L3 + 20, v.L3 + 40}[r.IntN(5)]
	for i := from; i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	return b
}
