//go:build cgo

package native

/*
#include "../core/vmecn.h"

#cgo noescape vmecn_out
#cgo nocallback vmecn_out
#cgo noescape vmecn_in
#cgo nocallback vmecn_in
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

func oneIf(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
