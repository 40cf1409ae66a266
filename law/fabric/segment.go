package fabric

import "encoding/binary"

// Flags of TCP (RFC 9293, 3.1).
const (
	FlagFIN uint8 = 1
	FlagSYN uint8 = 2
	FlagRST uint8 = 4
	FlagACK uint8 = 16
)

// Lengths of headers, in bytes.
const (
	etherBytes = 14
	ipBytes    = 20 // without options
	tcpBytes   = 20
)

const (
	typeIPv4     = 0x0800
	typeVLAN     = 0x8100 // IEEE 802.1Q
	typeService  = 0x88a8 // the outer tag of two
	tagBytes     = 4
	protocolTCP  = 6
	notFirst     = 0x1fff // fragment offset of IPv4
	segmentBytes = etherBytes + ipBytes + tcpBytes
)

// Untagged returns the EtherType of a frame behind at most two VLAN tags, and the bytes after it. False: the frame is cut. A flow's
// match of the EtherType is of the one behind the tags, too (OFPXMT_OFB_ETH_TYPE).
func Untagged(frame []byte) (kind uint16, payload []byte, ok bool) {
	for range 3 {
		if len(frame) < etherBytes {
			return 0, nil, false
		}
		kind, payload = binary.BigEndian.Uint16(frame[12:]), frame[etherBytes:]
		if kind != typeVLAN && kind != typeService {
			break
		}
		frame = frame[tagBytes:]
	}
	return kind, payload, true
}

// ReadSegment returns the ends and the flags of a TCP segment in a frame, as switches copy it: Ethernet, at most two VLAN tags, then
// IPv4. The frame may be cut behind the flags. False: it is another frame, a later fragment, or malformed.
func ReadSegment(frame []byte) (t Tuple, flags uint8, ok bool) {
	kind, ip, ok := Untagged(frame)
	if !ok || kind != typeIPv4 || len(ip) < ipBytes {
		return t, 0, false
	}
	header := int(ip[0]&15) * 4
	if ip[0]>>4 != 4 || header < ipBytes || ip[9] != protocolTCP || binary.BigEndian.Uint16(ip[6:])&notFirst != 0 || len(ip) < header+14 {
		return t, 0, false
	}
	tcp := ip[header:]
	t = Tuple{
		Proto: protocolTCP, Src: IPv4(ip[12:16]), Dst: IPv4(ip[16:20]),
		SrcPort: binary.BigEndian.Uint16(tcp), DstPort: binary.BigEndian.Uint16(tcp[2:]),
	}
	return t, tcp[13], true
}

// AppendSegment appends a frame with a TCP segment of these ends and flags and no payload, for worlds without real frames. It has no
// checksums, because a copy of a frame does not go on.
func AppendSegment(b []byte, from, to MAC, t Tuple, flags uint8) []byte {
	at := len(b)
	b = append(b, make([]byte, segmentBytes)...)
	frame := b[at:]
	copy(frame, to[:])
	copy(frame[6:], from[:])
	binary.BigEndian.PutUint16(frame[12:], typeIPv4)
	ip := frame[etherBytes:]
	ip[0], ip[8], ip[9] = 0x45, 64, protocolTCP
	binary.BigEndian.PutUint16(ip[2:], ipBytes+tcpBytes)
	copy(ip[12:], t.Src[:])
	copy(ip[16:], t.Dst[:])
	tcp := ip[ipBytes:]
	binary.BigEndian.PutUint16(tcp, t.SrcPort)
	binary.BigEndian.PutUint16(tcp[2:], t.DstPort)
	tcp[12], tcp[13] = tcpBytes/4<<4, flags
	return b
}
