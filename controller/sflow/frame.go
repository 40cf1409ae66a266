package sflow

import (
	"encoding/binary"
	"net/netip"
)

const (
	etherTypeIPv4, etherTypeIPv6         = 0x0800, 0x86dd
	etherTypeVLAN, etherTypeProviderVLAN = 0x8100, 0x88a8

	ethernetBytes, tagBytes = 14, 4

	congested = 3 // the ECN field (RFC 3168)
)

// marked returns the source of an IP packet with CE. Only the outer header of a tunnel counts (RFC 6040).
func marked(frame []byte) (source netip.Addr, ok bool) {
	at := ethernetBytes
	for range 3 { // two tags at most
		if len(frame) < at {
			return source, false
		}
		ethertype := binary.BigEndian.Uint16(frame[at-2:])
		ip := frame[at:]
		switch {
		case ethertype == etherTypeVLAN || ethertype == etherTypeProviderVLAN:
			at += tagBytes
			continue
		case ethertype == etherTypeIPv4 && len(ip) >= 20 && ip[0]>>4 == 4:
			return netip.AddrFrom4([4]byte(ip[12:16])), ip[1]&congested == congested
		case ethertype == etherTypeIPv6 && len(ip) >= 40 && ip[0]>>4 == 6:
			return netip.AddrFrom16([16]byte(ip[8:24])), ip[1]>>4&congested == congested
		}
		return source, false
	}
	return source, false
}
