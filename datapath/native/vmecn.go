//go:build cgo

package native

/*
#include "../core/vmecn.h"

#cgo noescape vmecn_out
#cgo nocallback vmecn_out
#cgo noescape vmecn_in
#cgo nocallback vmecn_in
#cgo noescape vmecn_handshake
#cgo nocallback vmecn_handshake
*/
import "C"

// VMECNOut returns the ECN field that a packet of a VM leaves with: vmecn_out.
func VMECNOut(mode uint8, negotiated, hasData bool, ecn uint8) uint8 {
	return uint8(C.vmecn_out(C.weir_u8(mode), oneIf(negotiated), oneIf(hasData), C.weir_u8(ecn)))
}

// VMECNIn returns the ECN field that a VM sees: vmecn_in.
func VMECNIn(mode uint8, negotiated bool, ecn uint8) uint8 {
	return uint8(C.vmecn_in(C.weir_u8(mode), oneIf(negotiated), C.weir_u8(ecn)))
}

// VMECNHandshake returns how far the ends of a connection agreed on ECN after a SYN, or a SYN-ACK (answers): vmecn_handshake.
func VMECNHandshake(before uint8, answers, ece, cwr, accECN bool) uint8 {
	return uint8(C.vmecn_handshake(C.weir_u8(before), oneIf(answers), oneIf(ece), oneIf(cwr), oneIf(accECN)))
}

func oneIf(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
