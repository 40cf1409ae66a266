package inband

import "encoding/binary"

// The header of IP forms, behind the Ethernet header with EtherType 0x0800: IPv4 without options. The tag covers all of it but the type
// of service and the checksum, which switches change.
//
//	14  1  0x45
//	15  1  type of service: 0
//	16  2  total length
//	18  2  identification: IP: 0; IPID: marks, 1 to 65535
//	20  2  fragment: 0
//	22  1  TTL: 255, the paper's. A router would lower it, so a frame with less is from another network (RFC 5082)
//	23  1  protocol: 143
//	24  2  checksum
//	26  4  source: the controller's port, or 0.0.0.0. The paper's is forged: the VM that the marked packets went to
//	30  4  destination: IP: 255.255.255.255, which no router passes on; IPID: the VM, as in the paper
//	34     the version, and so on (frame.go)
const (
	ipBytes = 20

	tosAt, totalAt, idAt, fragmentAt, ttlAt, protocolAt, checksumAt, sourceAt, destinationAt = 15, 16, 18, 20, 22, 23, 24, 26, 30

	etherTypeIP = 0x0800
	ipVersion   = 0x45
	ttl         = 255

	// Protocol is the IP protocol of the papers' messages.
	Protocol = 143
)

var everybody = [4]byte{255, 255, 255, 255}

// appendIP appends the EtherType and the header to b, which has the two addresses of the frame.
func (t *Tagger) appendIP(b []byte, f *Frame) []byte {
	b = binary.BigEndian.AppendUint16(b, etherTypeIP)
	begin := len(b)
	to := everybody
	if t.form == IPID {
		to = f.VM
	}
	b = append(b, ipVersion, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipBytes+commandAt+len(f.Command)+tagBytes))
	b = binary.BigEndian.AppendUint16(b, f.Marks)
	b = append(b, 0, 0, ttl, Protocol, 0, 0)
	b = append(append(b, f.Source[:]...), to[:]...)
	sum := uint32(0)
	for at := begin; at < len(b); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[begin+checksumAt-ethernetBytes:], ^uint16(sum))
	return b
}

// readIP reads the header of a frame that has one. want is how many bytes follow it.
func (t *Tagger) readIP(b []byte, f *Frame, want int) Reason {
	f.Type, f.Marks = 0, binary.BigEndian.Uint16(b[idAt:])
	copy(f.Source[:], b[sourceAt:])
	to := [4]byte(b[destinationAt:])
	switch {
	case binary.BigEndian.Uint16(b[ethernetBytes-2:]) != etherTypeIP, b[ethernetBytes] != ipVersion, b[protocolAt] != Protocol,
		b[fragmentAt]|b[fragmentAt+1] != 0, int(binary.BigEndian.Uint16(b[totalAt:])) != ipBytes+want,
		(t.form == IPID) != (f.Marks > 0), t.form == IP && to != everybody:
		return Malformed
	case b[ttlAt] != ttl:
		return Routed
	}
	if t.form == IPID {
		f.VM = to
	}
	return Taken
}
