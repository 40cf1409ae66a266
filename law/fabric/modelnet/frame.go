package modelnet

import (
	"encoding/binary"

	"weir/law/fabric"
)

// Ethernet makes a frame of an EtherType that the law does not parse.
func Ethernet(from, to fabric.MAC) []byte {
	b := append(append([]byte{}, to[:]...), from[:]...)
	return append(b, 0x88, 0xb5, 'x') // IEEE 802, local experimental
}

// ARP makes a request for an address; an answer if `to` is a host.
func ARP(from fabric.MAC, ip fabric.IPv4, to fabric.MAC, asked fabric.IPv4) []byte {
	operation, target := byte(2), to
	if to == fabric.Broadcast {
		operation, target = 1, fabric.MAC{}
	}
	b := append(append([]byte{}, to[:]...), from[:]...)
	b = append(b, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation)
	b = append(append(b, from[:]...), ip[:]...)
	return append(append(b, target[:]...), asked[:]...)
}

// Tagged adds a VLAN tag to a frame.
func Tagged(vlan uint16, frame []byte) []byte {
	b := append([]byte{}, frame[:12]...)
	b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), vlan)
	return append(b, frame[12:]...)
}

// TCP makes a segment with these flags (RFC 9293, 3.1). Checksums are left out.
func TCP(from, to fabric.MAC, t fabric.Tuple, flags byte) []byte {
	b := append(append([]byte{}, to[:]...), from[:]...)
	b = append(b, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, t.Proto, 0, 0)
	b = append(append(b, t.Src[:]...), t.Dst[:]...)
	b = binary.BigEndian.AppendUint16(b, t.SrcPort)
	b = binary.BigEndian.AppendUint16(b, t.DstPort)
	b = append(b, make([]byte, 8)...)
	return append(b, 5<<4, flags, 0, 0, 0, 0, 0, 0)
}
