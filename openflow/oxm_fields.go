package openflow

import (
	"bytes"
	"net/netip"
)

// The fields of OpenFlow 1.3 (oxm_ofb_match_fields, specification 7.2.3.7).
const (
	FieldInPort FieldID = ClassBasic<<8 + iota
	FieldInPhyPort
	FieldMetadata
	FieldEthDst
	FieldEthSrc
	FieldEthType
	FieldVLANVID
	FieldVLANPCP
	FieldIPDSCP
	FieldIPECN
	FieldIPProto
	FieldIPv4Src
	FieldIPv4Dst
	FieldTCPSrc
	FieldTCPDst
	FieldUDPSrc
	FieldUDPDst
	FieldSCTPSrc
	FieldSCTPDst
	FieldICMPv4Type
	FieldICMPv4Code
	FieldARPOp
	FieldARPSPA
	FieldARPTPA
	FieldARPSHA
	FieldARPTHA
	FieldIPv6Src
	FieldIPv6Dst
	FieldIPv6FLabel
	FieldICMPv6Type
	FieldICMPv6Code
	FieldIPv6NDTarget
	FieldIPv6NDSLL
	FieldIPv6NDTLL
	FieldMPLSLabel
	FieldMPLSTC
	FieldMPLSBoS
	FieldPBBISID
	FieldTunnelID
	FieldIPv6ExtHdr
)

// OpenFlow 1.3 has no field for TCP's flags. Open vSwitch accepts three ids for them, and sends the first one.
const (
	FieldTCPFlags    FieldID = ExperimenterONF<<24 | ClassExperimenter<<8 | 42 // the ONF's extension (ONFOXM_ET_TCP_FLAGS)
	FieldTCPFlagsNXM FieldID = ClassNXM1<<8 | 34                               // Open vSwitch's own
	FieldTCPFlags15  FieldID = ClassBasic<<8 | 42                              // OpenFlow 1.5's
)

// VLANPresent is set in FieldVLANVID for a tagged packet (OFPVID_PRESENT); a value of 0 means untagged.
const VLANPresent = 0x1000

// TCP's flags, as in its header.
const (
	TCPFin uint16 = 1 << iota
	TCPSyn
	TCPRst
	TCPPsh
	TCPAck
	TCPUrg
	TCPEce
	TCPCwr
)

// shape is how a value prints.
type shape uint8

const (
	shapeNumber shape = iota
	shapeHex
	shapePort
	shapeMAC
	shapeAddr
)

// fieldInfo describes a known field. Values have as many bytes as their bits need.
type fieldInfo struct {
	name   string
	bits   uint8
	bytes  uint8
	masked bool // may have a mask in OpenFlow 1.3; Open vSwitch allows and sends more
	shape  shape
}

var basicFields = [...]fieldInfo{
	{"in_port", 32, 4, false, shapePort},
	{"in_phy_port", 32, 4, false, shapePort},
	{"metadata", 64, 8, true, shapeHex},
	{"eth_dst", 48, 6, true, shapeMAC},
	{"eth_src", 48, 6, true, shapeMAC},
	{"eth_type", 16, 2, false, shapeHex},
	{"vlan_vid", 13, 2, true, shapeHex},
	{"vlan_pcp", 3, 1, false, shapeNumber},
	{"ip_dscp", 6, 1, false, shapeNumber},
	{"ip_ecn", 2, 1, false, shapeNumber},
	{"ip_proto", 8, 1, false, shapeNumber},
	{"ipv4_src", 32, 4, true, shapeAddr},
	{"ipv4_dst", 32, 4, true, shapeAddr},
	{"tcp_src", 16, 2, false, shapeNumber},
	{"tcp_dst", 16, 2, false, shapeNumber},
	{"udp_src", 16, 2, false, shapeNumber},
	{"udp_dst", 16, 2, false, shapeNumber},
	{"sctp_src", 16, 2, false, shapeNumber},
	{"sctp_dst", 16, 2, false, shapeNumber},
	{"icmpv4_type", 8, 1, false, shapeNumber},
	{"icmpv4_code", 8, 1, false, shapeNumber},
	{"arp_op", 16, 2, false, shapeNumber},
	{"arp_spa", 32, 4, true, shapeAddr},
	{"arp_tpa", 32, 4, true, shapeAddr},
	{"arp_sha", 48, 6, true, shapeMAC},
	{"arp_tha", 48, 6, true, shapeMAC},
	{"ipv6_src", 128, 16, true, shapeAddr},
	{"ipv6_dst", 128, 16, true, shapeAddr},
	{"ipv6_flabel", 20, 4, true, shapeHex},
	{"icmpv6_type", 8, 1, false, shapeNumber},
	{"icmpv6_code", 8, 1, false, shapeNumber},
	{"ipv6_nd_target", 128, 16, false, shapeAddr},
	{"ipv6_nd_sll", 48, 6, false, shapeMAC},
	{"ipv6_nd_tll", 48, 6, false, shapeMAC},
	{"mpls_label", 20, 4, false, shapeNumber},
	{"mpls_tc", 3, 1, false, shapeNumber},
	{"mpls_bos", 1, 1, false, shapeNumber},
	{"pbb_isid", 24, 3, true, shapeHex},
	{"tunnel_id", 64, 8, true, shapeHex},
	{"ipv6_exthdr", 9, 2, true, shapeHex},
}

var (
	tcpFlagsInfo    = fieldInfo{"tcp_flags", 12, 2, true, shapeHex}
	tcpFlagsNXMInfo = fieldInfo{"nxm_tcp_flags", 12, 2, true, shapeHex}
	tcpFlags15Info  = fieldInfo{"oxm15_tcp_flags", 12, 2, true, shapeHex}
)

// fieldInfoOf returns the description of a known field; nil for others.
func fieldInfoOf(id FieldID) *fieldInfo {
	if id-FieldInPort < FieldID(len(basicFields)) {
		return &basicFields[id-FieldInPort]
	}
	switch id {
	case FieldTCPFlags:
		return &tcpFlagsInfo
	case FieldTCPFlagsNXM:
		return &tcpFlagsNXMInfo
	case FieldTCPFlags15:
		return &tcpFlags15Info
	}
	return nil
}

// numberField makes a field of a known id with a value of at most 8 bytes. A mask of 0 or of all ones means none.
func numberField(id FieldID, value, mask uint64) Field {
	info := fieldInfoOf(id)
	f := Field{ID: id, size: info.bytes}
	shift := 64 - 8*uint(info.bytes)
	var v [8]byte
	be.PutUint64(v[:], value<<shift)
	copy(f.value[:], v[:info.bytes])
	if all := uint64(1)<<(info.bits-1)<<1 - 1; mask&all != 0 && mask&all != all {
		f.HasMask = true
		be.PutUint64(v[:], mask<<shift)
		copy(f.mask[:], v[:info.bytes])
	}
	return f
}

func macField(id FieldID, a, mask MAC) Field {
	f := Field{ID: id, size: 6}
	copy(f.value[:], a[:])
	if mask != (MAC{}) && mask != (MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) {
		f.HasMask = true
		copy(f.mask[:], mask[:])
	}
	return f
}

func addr4Field(id FieldID, a, mask netip.Addr) Field {
	v, m := a.As4(), [4]byte{}
	if mask.IsValid() {
		m = mask.As4()
	}
	return numberField(id, uint64(be.Uint32(v[:])), uint64(be.Uint32(m[:])))
}

var addr6Ones = netip.AddrFrom16([16]byte(bytes.Repeat([]byte{0xff}, 16)))

func addr6Field(id FieldID, a, mask netip.Addr) Field {
	f := Field{ID: id, size: 16, value: a.As16()}
	if mask.IsValid() && !mask.IsUnspecified() && mask != addr6Ones {
		f.HasMask, f.mask = true, mask.As16()
	}
	return f
}

// Fields returns all known fields, in the order of their numbers; those of Open vSwitch and the ONF last.
func Fields() []FieldID {
	ids := make([]FieldID, len(basicFields), len(basicFields)+3)
	for i := range ids {
		ids[i] = FieldInPort + FieldID(i)
	}
	return append(ids, FieldTCPFlags, FieldTCPFlagsNXM, FieldTCPFlags15)
}

// Bits returns the number of bits of the field's value; 0 for an unknown field.
func (id FieldID) Bits() int {
	if info := fieldInfoOf(id); info != nil {
		return int(info.bits)
	}
	return 0
}

// Bytes returns the number of bytes of the field's value; 0 for an unknown field.
func (id FieldID) Bytes() int {
	if info := fieldInfoOf(id); info != nil {
		return int(info.bytes)
	}
	return 0
}

// CanMask reports whether OpenFlow 1.3 allows a mask for the field. Open vSwitch accepts and sends more masks, so all are decoded.
func (id FieldID) CanMask() bool {
	info := fieldInfoOf(id)
	return info != nil && info.masked
}
