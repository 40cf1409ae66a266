package openflow

import "net/netip"

// A constructor per field. A mask of zero (of an address: the zero Addr) or of all ones means no mask. Bits of the value outside
// the mask must be zero. An IPv4 address for an IPv6 field is written as IPv6; the reverse panics.

// InPort matches the port a packet came in by.
func InPort(port PortNo) Field { return numberField(FieldInPort, uint64(port), 0) }

// InPhyPort matches the physical port below a logical one.
func InPhyPort(port PortNo) Field { return numberField(FieldInPhyPort, uint64(port), 0) }

// Metadata matches what an earlier table wrote.
func Metadata(value, mask uint64) Field { return numberField(FieldMetadata, value, mask) }

// EthType matches the Ethernet type, after VLAN tags.
func EthType(typ uint16) Field { return numberField(FieldEthType, uint64(typ), 0) }

// VLANVID matches the VLAN: VLANPresent with the id; 0 for untagged.
func VLANVID(value, mask uint16) Field { return numberField(FieldVLANVID, uint64(value), uint64(mask)) }

// VLANPCP matches the VLAN's priority, 0 to 7.
func VLANPCP(priority uint8) Field { return numberField(FieldVLANPCP, uint64(priority), 0) }

// IPDSCP matches the differentiated services code point, 0 to 63.
func IPDSCP(dscp uint8) Field { return numberField(FieldIPDSCP, uint64(dscp), 0) }

// IPECN matches the ECN bits, 0 to 3.
func IPECN(ecn uint8) Field { return numberField(FieldIPECN, uint64(ecn), 0) }

// IPProto matches the IP protocol.
func IPProto(proto uint8) Field { return numberField(FieldIPProto, uint64(proto), 0) }

// TCPSrc matches TCP's source port.
func TCPSrc(port uint16) Field { return numberField(FieldTCPSrc, uint64(port), 0) }

// TCPDst matches TCP's destination port.
func TCPDst(port uint16) Field { return numberField(FieldTCPDst, uint64(port), 0) }

// UDPSrc matches UDP's source port.
func UDPSrc(port uint16) Field { return numberField(FieldUDPSrc, uint64(port), 0) }

// UDPDst matches UDP's destination port.
func UDPDst(port uint16) Field { return numberField(FieldUDPDst, uint64(port), 0) }

// SCTPSrc matches SCTP's source port.
func SCTPSrc(port uint16) Field { return numberField(FieldSCTPSrc, uint64(port), 0) }

// SCTPDst matches SCTP's destination port.
func SCTPDst(port uint16) Field { return numberField(FieldSCTPDst, uint64(port), 0) }

// ICMPv4Type matches ICMP's type.
func ICMPv4Type(typ uint8) Field { return numberField(FieldICMPv4Type, uint64(typ), 0) }

// ICMPv4Code matches ICMP's code.
func ICMPv4Code(code uint8) Field { return numberField(FieldICMPv4Code, uint64(code), 0) }

// ARPOp matches ARP's operation: 1 request, 2 reply.
func ARPOp(op uint16) Field { return numberField(FieldARPOp, uint64(op), 0) }

// IPv6FLabel matches the flow label, 20 bits.
func IPv6FLabel(value, mask uint32) Field {
	return numberField(FieldIPv6FLabel, uint64(value), uint64(mask))
}

// ICMPv6Type matches ICMPv6's type.
func ICMPv6Type(typ uint8) Field { return numberField(FieldICMPv6Type, uint64(typ), 0) }

// ICMPv6Code matches ICMPv6's code.
func ICMPv6Code(code uint8) Field { return numberField(FieldICMPv6Code, uint64(code), 0) }

// MPLSLabel matches the outermost label, 20 bits.
func MPLSLabel(label uint32) Field { return numberField(FieldMPLSLabel, uint64(label), 0) }

// MPLSTC matches the label's traffic class, 0 to 7.
func MPLSTC(class uint8) Field { return numberField(FieldMPLSTC, uint64(class), 0) }

// MPLSBoS matches the label's bottom-of-stack bit.
func MPLSBoS(bottom uint8) Field { return numberField(FieldMPLSBoS, uint64(bottom), 0) }

// PBBISID matches the backbone's service id, 24 bits.
func PBBISID(value, mask uint32) Field { return numberField(FieldPBBISID, uint64(value), uint64(mask)) }

// TunnelID matches a tunnel's key.
func TunnelID(value, mask uint64) Field { return numberField(FieldTunnelID, value, mask) }

// IPv6ExtHdr matches the extension headers that are there, 9 bits (ofp_ipv6exthdr_flags).
func IPv6ExtHdr(value, mask uint16) Field {
	return numberField(FieldIPv6ExtHdr, uint64(value), uint64(mask))
}

// TCPFlags matches TCP's flags, 12 bits, by the ONF's extension, which Open vSwitch supports.
func TCPFlags(value, mask uint16) Field {
	return numberField(FieldTCPFlags, uint64(value), uint64(mask))
}

// EthDst matches the destination's Ethernet address.
func EthDst(a, mask MAC) Field { return macField(FieldEthDst, a, mask) }

// EthSrc matches the source's Ethernet address.
func EthSrc(a, mask MAC) Field { return macField(FieldEthSrc, a, mask) }

// ARPSHA matches ARP's sender hardware address.
func ARPSHA(a, mask MAC) Field { return macField(FieldARPSHA, a, mask) }

// ARPTHA matches ARP's target hardware address.
func ARPTHA(a, mask MAC) Field { return macField(FieldARPTHA, a, mask) }

// IPv6NDSLL matches the source's link-layer address in neighbour discovery.
func IPv6NDSLL(a MAC) Field { return macField(FieldIPv6NDSLL, a, MAC{}) }

// IPv6NDTLL matches the target's link-layer address in neighbour discovery.
func IPv6NDTLL(a MAC) Field { return macField(FieldIPv6NDTLL, a, MAC{}) }

// IPv4Src matches the IPv4 source.
func IPv4Src(a, mask netip.Addr) Field { return addr4Field(FieldIPv4Src, a, mask) }

// IPv4Dst matches the IPv4 destination.
func IPv4Dst(a, mask netip.Addr) Field { return addr4Field(FieldIPv4Dst, a, mask) }

// ARPSPA matches ARP's sender protocol address.
func ARPSPA(a, mask netip.Addr) Field { return addr4Field(FieldARPSPA, a, mask) }

// ARPTPA matches ARP's target protocol address.
func ARPTPA(a, mask netip.Addr) Field { return addr4Field(FieldARPTPA, a, mask) }

// IPv6Src matches the IPv6 source.
func IPv6Src(a, mask netip.Addr) Field { return addr6Field(FieldIPv6Src, a, mask) }

// IPv6Dst matches the IPv6 destination.
func IPv6Dst(a, mask netip.Addr) Field { return addr6Field(FieldIPv6Dst, a, mask) }

// IPv6NDTarget matches the target of neighbour discovery.
func IPv6NDTarget(a netip.Addr) Field { return addr6Field(FieldIPv6NDTarget, a, netip.Addr{}) }
