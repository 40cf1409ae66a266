//go:build cgo

package native

/*
#include "../core/window.h"

#cgo noescape window_rewrite
#cgo nocallback window_rewrite
#cgo noescape window_fits
#cgo nocallback window_fits
#cgo noescape window_granted
#cgo nocallback window_granted
#cgo nocallback window_checksum
#cgo nocallback window_floor
*/
import "C"

// WindowRewrite returns the field to write into an ACK, or the ACK's own field if it stays unchanged. It
// updates the flow's edge if a.Shrink requires it: window_rewrite.
func WindowRewrite(a *WindowAck, edge *WindowEdge) uint16 {
	ack := C.struct_window_ack{
		window_q8: C.weir_u64(a.WindowQ8), floor_bytes: C.weir_u32(a.FloorBytes), cap_bytes: C.weir_u32(a.CapBytes),
		ack: C.weir_u32(a.Ack), field: C.weir_u16(a.Field), shift: C.weir_u8(a.Shift),
		syn: C.weir_u8(a.SYN), shrink: C.weir_u8(a.Shrink),
	}
	e := C.struct_window_edge{right: C.weir_u32(edge.Right), known: C.weir_u32(edge.Known)}
	field := C.window_rewrite(&ack, &e)
	*edge = WindowEdge{uint32(e.right), uint32(e.known)}
	return uint16(field)
}

// WindowFits reports whether an ACK's own window is within its grant, whatever its floor is: window_fits.
func WindowFits(a *WindowAck) bool {
	ack := C.struct_window_ack{
		window_q8: C.weir_u64(a.WindowQ8), field: C.weir_u16(a.Field), shift: C.weir_u8(a.Shift), syn: C.weir_u8(a.SYN),
	}
	return C.window_fits(&ack) != 0
}

// WindowGranted records that a window of bytes was granted at ack: window_granted.
func WindowGranted(edge *WindowEdge, ack, bytes uint32) {
	e := C.struct_window_edge{right: C.weir_u32(edge.Right), known: C.weir_u32(edge.Known)}
	C.window_granted(&e, C.weir_u32(ack), C.weir_u32(bytes))
	*edge = WindowEdge{uint32(e.right), uint32(e.known)}
}

// WindowFloor returns the least window of a flow, from what is known of its MSS (0: unknown): window_floor.
func WindowFloor(mssOptionBytes, gsoSizeBytes uint32) uint32 {
	return uint32(C.window_floor(C.weir_u32(mssOptionBytes), C.weir_u32(gsoSizeBytes)))
}

// WindowChecksum returns the checksum after one word changed: window_checksum.
func WindowChecksum(check, oldWord, newWord uint16) uint16 {
	return uint16(C.window_checksum(C.weir_u16(check), C.weir_u16(oldWord), C.weir_u16(newWord)))
}
