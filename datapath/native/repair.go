//go:build cgo

package native

/*
#include "../core/repair.h"

#cgo noescape repair_decide
#cgo nocallback repair_decide
#cgo noescape repair_waits
#cgo nocallback repair_waits
#cgo noescape repair_again
#cgo nocallback repair_again
*/
import "C"

import "unsafe"

// Repair returns the verdict on a packet that finds backlogBytes in the queue and parkedBytes in the parking: repair_decide.
func Repair(config *RepairConfig, backlogBytes, parkedBytes, bytes uint32, isTCP, waits bool) RepairVerdict {
	return RepairVerdict(C.repair_decide((*C.struct_repair_config)(unsafe.Pointer(config)), C.weir_u32(backlogBytes), C.weir_u32(parkedBytes), C.weir_u32(bytes), flag(isTCP), flag(waits)))
}

// RepairWaits reports whether packets of a flow wait: repair_waits.
func RepairWaits(flow *RepairFlow, backNs, nowNs uint64) bool {
	return C.repair_waits((*C.struct_repair_flow)(unsafe.Pointer(flow)), C.weir_u64(backNs), C.weir_u64(nowNs)) != 0
}

// RepairAgain reports whether a packet that comes back after waitedNs must wait once more; behind: packets before it do: repair_again.
func RepairAgain(config *RepairConfig, backlogBytes, bytes uint32, behind bool, waitedNs uint64) bool {
	return C.repair_again((*C.struct_repair_config)(unsafe.Pointer(config)), C.weir_u32(backlogBytes), C.weir_u32(bytes), flag(behind), C.weir_u64(waitedNs)) != 0
}

func flag(is bool) C.int {
	if is {
		return 1
	}
	return 0
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(RepairConfig{})-C.sizeof_struct_repair_config]
	_ = [1]struct{}{}[unsafe.Sizeof(RepairFlow{})-C.sizeof_struct_repair_flow]
)
