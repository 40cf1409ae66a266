//go:build cgo

package native

/*
#include "../core/mark.h"

#cgo noescape mark_decide
#cgo nocallback mark_decide
*/
import "C"

// Mark returns the verdict on a packet with this ECN field that finds backlogBytes in the queue: mark_decide.
func Mark(config MarkConfig, backlogBytes uint32, ecn uint8) MarkVerdict {
	c := C.struct_mark_config{
		threshold_bytes: C.weir_u32(config.ThresholdBytes),
		action:          C.weir_u8(config.Action), not_ect: C.weir_u8(config.NotECT),
	}
	return MarkVerdict(C.mark_decide(&c, C.weir_u32(backlogBytes), C.weir_u8(ecn)))
}
