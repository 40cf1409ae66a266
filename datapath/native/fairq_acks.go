//go:build cgo

package native

/*
#include "fairq_acks.h"

#cgo noescape native_window
#cgo nocallback native_window
#cgo noescape native_advertise
#cgo nocallback native_advertise
*/
import "C"

import "unsafe"

// Ack is an acknowledgement, and what decides about its window. Two equal ones have the same answer, unless
// Shrink is ShrinkAvoid, or they are SYN-ACKs.
type Ack struct {
	GrantQ8   uint64 // Port.GrantQ8
	Ack       uint32 // used with ShrinkAvoid only
	Bucket    uint32 // the flow's bucket, of 65536: Port.Spared
	Field     uint16 // the window field as it arrived
	MSS       uint16 // End.MSS of its sender
	Shift     uint8  // this and the other fields of End
	Announced uint8
	Unified   uint8 // 1: EndUnified
	SYN       uint8 // 1: SYN-ACK
	Shrink    Shrink
	Apart     uint8  // 1: its data takes another of the port's equal paths
	GSO       uint16 // largest segment seen from the data's sender, bytes; 0: unknown
	Gone      uint8  // 1: user space has gone, and flows are released
	_         [3]uint8
	Promise   uint32 // End.Promise of the data's sender
	Credit    uint32 // 1: promises and credits limit it, too
}

// Field is the answer to an Ack.
type Field uint64

// Left returns the field that the ACK leaves with.
func (f Field) Left() uint16 { return uint16(f) }

// Own returns the field that the ACK would leave with if no port granted a window. It is the field that
// arrived, except with Unified.
func (f Field) Own() uint16 { return uint16(f >> 16) }

// Governed reports whether the port grants a window.
func (f Field) Governed() bool { return f>>32&1 != 0 }

// Law returns the field of the port's window, before it is advertised. For an unlimited flow, it is the field
// that the ACK would have if it were limited.
func (f Field) Law() uint16 { return uint16(f >> 48) }

// LeftToEdge reports whether the ACK stays unchanged, because the edge knows its window.
func (f Field) LeftToEdge() bool { return f>>33&1 != 0 }

// Advertises reports whether the ACK advertises its window to the edge.
func (f Field) Advertises() bool { return f>>34&1 != 0 }

// Window returns the field for an ACK, by the grant of the port that its data leaves by, or would leave by; id
// -1: unknown.
func (s *Switch) Window(id int, nowNs uint64, a *Ack, edge *WindowEdge) Field {
	return Field(C.native_window(s.c, C.weir_u32(id), C.weir_u64(nowNs), (*C.struct_native_ack)(unsafe.Pointer(a)), (*C.struct_window_edge)(unsafe.Pointer(edge))))
}

// GrantsQ8 returns the limit of an ACK before its floor, in 1/256 byte; 0: none.
func (s *Switch) GrantsQ8(id int, nowNs uint64, a *Ack) uint64 {
	return uint64(C.native_grants(s.c, C.weir_u32(id), C.weir_u64(nowNs), (*C.struct_native_ack)(unsafe.Pointer(a))))
}

// Advertise returns the field as Window does, in edge mode, for all ACKs but SYN-ACKs. e is the end that sends the ACK. flagged: a
// switch before this one has advertised its window. mayLeave: the ACK may still be left to the edge.
func (s *Switch) Advertise(id int, now EdgeTime, flagged, mayLeave bool, a *Ack, e *End, edge *WindowEdge) Field {
	flag, leave := C.int(0), C.int(0)
	if flagged {
		flag = 1
	}
	if mayLeave {
		leave = 1
	}
	return Field(C.native_advertise(s.c, C.weir_u32(id), C.weir_u32(now), flag, leave, (*C.struct_native_ack)(unsafe.Pointer(a)), e.c(),
		(*C.struct_window_edge)(unsafe.Pointer(edge))))
}

// Ack has the layout of struct native_ack.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Ack{})-C.sizeof_struct_native_ack]
	_ = [1]struct{}{}[unsafe.Offsetof(Ack{}.Promise)-unsafe.Offsetof(C.struct_native_ack{}.promise)]
	_ = [1]struct{}{}[unsafe.Offsetof(Ack{}.Apart)-unsafe.Offsetof(C.struct_native_ack{}.apart)]
)
