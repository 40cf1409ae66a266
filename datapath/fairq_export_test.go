package datapath

import (
	"encoding/binary"
	"net/netip"
)

// For tests of package datapath_test, which build networks and so cannot be of this package.

// KnownEnd is what the flow table knows of one end of a connection.
type KnownEnd struct {
	Scale    uint8 // of its windows
	Inferred bool  // and not told by its SYN
	Port     int   // index of the port that its data leaves by; -1: unknown
}

// KnownFlows gives the flow table.
func (f *FairQ) KnownFlows() (map[netip.AddrPort]KnownEnd, error) {
	known := map[netip.AddrPort]KnownEnd{}
	var k fairqFlowKey
	var c fairqConnection
	entries := f.maps.Flows.Iterate()
	for entries.Next(&k, &c) {
		for i, e := range c.End {
			var b [16]byte
			for j, word := range k.Address[i] {
				binary.NativeEndian.PutUint32(b[4*j:], word)
			}
			port := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k.Port[i]))
			const scaleKnown = 4 // END_SCALE of flows.h
			known[netip.AddrPortFrom(netip.AddrFrom16(b).Unmap(), port)] = KnownEnd{e.Shift, e.Flags&scaleKnown == 0, int(e.Port) - 1}
		}
	}
	return known, entries.Err()
}
