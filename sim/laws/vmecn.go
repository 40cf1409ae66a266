//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/law"
	"weir/sim/network"
)

// vmECN has the answers of core/vmecn.h for one mode, fetched in advance: a call into C for each packet would be expensive.
type vmECN struct {
	leaves  [2][2][4]uint8 // by whether ECN was negotiated, whether there is data, and the field
	arrives [2][4]uint8
}

func newVMECN(mode string) *vmECN {
	m := map[string]uint8{law.ClearAll: native.VMECNAll, law.ClearNotNegotiated: native.VMECNNotNegotiated}[mode]
	e := &vmECN{}
	for n := range 2 {
		for field := range uint8(4) {
			for data := range 2 {
				e.leaves[n][data][field] = native.VMECNOut(m, n == 1, data == 1, field)
			}
			e.arrives[n][field] = native.VMECNIn(m, n == 1, field)
		}
	}
	return e
}

// out sets the field of a packet that a VM sends, and reports whether it was another. c is its connection; nil: not known.
func (e *vmECN) out(c *hostConn, pk *network.Packet) bool {
	data := 0
	if pk.Payload() > 0 {
		data = 1
	}
	was := pk.ECN()
	pk.SetECN(e.leaves[c.negotiated(pk)][data][was])
	return pk.ECN() != was
}

// in sets the field of a packet that came for a VM.
func (e *vmECN) in(c *hostConn, pk *network.Packet) {
	pk.SetECN(e.arrives[c.negotiated(pk)][pk.ECN()])
}

// negotiated is 1 for a packet behind a handshake that agreed on ECN.
func (c *hostConn) negotiated(pk *network.Packet) int {
	if c == nil || pk.Proto() != network.TCP || pk.Flags()&network.SYN != 0 || c.ecn != native.VMECNAgreed {
		return 0
	}
	return 1
}
