//go:build cgo

package native

/*
#include "../core/arrivals.h"

#cgo noescape arrivals_see
#cgo nocallback arrivals_see
*/
import "C"

import "unsafe"

// SeeArrival handles a packet that leaves, whose connection has the state f: arrivals_see. It returns what the packet is, a sum
// of enum arrival.
func SeeArrival(idleNs uint64, f *ArrivalsFlow, p *ArrivalsPacket) uint32 {
	c := C.struct_arrivals_config{idle_ns: C.weir_u64(idleNs)}
	return uint32(C.arrivals_see(&c, (*C.struct_arrivals_flow)(unsafe.Pointer(f)), (*C.struct_arrivals_packet)(unsafe.Pointer(p))))
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(ArrivalsFlow{})-C.sizeof_struct_arrivals_flow]
	_ = [1]struct{}{}[unsafe.Sizeof(ArrivalsPacket{})-C.sizeof_struct_arrivals_packet]
)
