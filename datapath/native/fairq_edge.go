//go:build cgo

package native

/*
#include "../core/fairq/edge.h"

// The record, at the port next to a host, of the ACKs that go there.
struct native_edge {
	struct edge_handshake handshake;
	struct edge_window window;
};

// A SYN or SYN-ACK passes. side: the host that the ACKs come from.
static int native_edge_syn(struct native_edge *n, const struct syn *s, weir_u16 field, int answers, weir_u8 side)
{
	if (!answers) {
		syn_asks(&n->handshake.seen, s);
		return 0;
	}
	if (!syn_answered(&n->handshake.seen, s))
		return 0;
	edge_begins(&n->handshake, s->side, s->ack, field);
	__builtin_memset(&n->window, 0, sizeof(n->window));
	edge_enters(&n->window, &n->handshake, side);
	return 1;
}

// An ACK passes towards the host.
static weir_u16 native_edge_ack(const struct edge_rules *rules, struct native_edge *n, weir_u32 ack, weir_u16 field,
				int flagged, weir_u32 now)
{
	if (flagged)
		return edge_hears(rules, &n->window, ack, field, now);
	if (edge_remembers(rules, &n->window, now))
		return edge_limits(rules, &n->window, ack, field);
	if (rules->shrink == WINDOW_SHRINK_AVOID && n->window.known)
		edge_passes(&n->window.edge, n->window.shift, ack, field);
	return field;
}

#cgo noescape native_edge_syn
#cgo nocallback native_edge_syn
#cgo noescape native_edge_ack
#cgo nocallback native_edge_ack
*/
import "C"

import "unsafe"

// EdgeTime is a time of edge mode, modulo 2^32, in units of 2^20 ns.
type EdgeTime uint32

// EdgeTimeOf converts a time or a span in ns, rounded down.
func EdgeTimeOf(ns int64) EdgeTime { return EdgeTime(ns >> C.EDGE_CLOCK_LOG2_NS) }

// EdgeNone is a window in bytes that limits nothing.
const EdgeNone = C.WINDOW_EDGE_MAX

// EdgeConfig is struct edge_config of core/fairq/edge.h: when a switch advertises a window. All 0: every ACK is rewritten.
type EdgeConfig struct {
	Interval EdgeTime // 1 or more
	Lease    EdgeTime // how long the edge remembers; above Interval
	Change   uint32   // in 1/256: a window that changed by more is advertised at once
}

// EdgeRules is struct edge_rules of core/fairq/edge.h: the limits at a port next to a host.
type EdgeRules struct {
	Lease      EdgeTime
	FloorBytes uint32 // of every flow's window; 0: its own MSS
	MSSMax     uint32 // bytes: the port's MTU - 40
	Shrink     uint32 // one of Shrink
}

// SYN is struct syn of core/handshake.h: a SYN or SYN-ACK.
type SYN struct {
	Seq, Ack uint32
	MSS      uint16 // its option, bytes; 0: none
	Shift    uint8  // its option, 0 .. 14
	Flags    uint8  // 4: it has the window scale option
	Side     uint8  // of its sender, 0 or 1
	_        [3]uint8
}

// SYNScale is SYN.Flags of a SYN with a window scale.
const SYNScale = C.HANDSHAKE_SCALE

// EdgeFlow is what the port next to a host records of one connection: its handshake, and the windows that
// switches advertised on the ACKs that go to the host.
type EdgeFlow struct {
	Asked      uint32 // acknowledgement number that answers the last SYN
	Opener     uint8  // the side that sent it
	AskedShift uint8
	AskedFlags uint8
	Flags      uint8 // bits: 1: a SYN was seen; 2: its answer too
	AskedMSS   uint16
	MSS        [2]uint16 // by the side that announced it
	Shift      [2]uint8
	Edges      [2]WindowEdge // shrink: avoid: granted by each side's ACKs while nothing was advertised

	Edge         WindowEdge // granted by the ACKs that left
	AdvertisedAt EdgeTime
	Field        uint16 // the last field advertised; 0: none yet
	scale        uint8
	Known        uint8 // 1: the handshake was seen
	mss          uint16
	_            uint16
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(EdgeFlow{})-C.sizeof_struct_native_edge]
	_ = [1]struct{}{}[unsafe.Offsetof(EdgeFlow{}.Edges)-unsafe.Offsetof(C.struct_edge_handshake{}.edge)]
	_ = [1]struct{}{}[unsafe.Offsetof(EdgeFlow{}.Edge)-unsafe.Offsetof(C.struct_native_edge{}.window)]
	_ = [1]struct{}{}[unsafe.Offsetof(EdgeFlow{}.Known)-unsafe.Offsetof(C.struct_native_edge{}.window)-unsafe.Offsetof(C.struct_edge_window{}.known)]
	_ = [1]struct{}{}[unsafe.Offsetof(EdgeFlow{}.Shift)-unsafe.Offsetof(C.struct_handshake{}.shift)]
	_ = [1]struct{}{}[unsafe.Sizeof(SYN{})-C.sizeof_struct_syn]
	_ = [1]struct{}{}[unsafe.Offsetof(SYN{}.Side)-unsafe.Offsetof(C.struct_syn{}.side)]
	_ = [1]struct{}{}[unsafe.Sizeof(EdgeRules{})-C.sizeof_struct_edge_rules]
	_ = [1]struct{}{}[unsafe.Sizeof(EdgeConfig{})+4-C.sizeof_struct_edge_config]
)

func (f *EdgeFlow) c() *C.struct_native_edge { return (*C.struct_native_edge)(unsafe.Pointer(f)) }

// Handshake takes a SYN, or an answer to one with this window. side is the one that the ACKs of this flow come
// from. It returns whether the SYN is answered: earlier advertisements then belong to another connection.
func (f *EdgeFlow) Handshake(s *SYN, window uint16, answers bool, side uint8) bool {
	answer := C.int(0)
	if answers {
		answer = 1
	}
	return C.native_edge_syn(f.c(), (*C.struct_syn)(unsafe.Pointer(s)), C.weir_u16(window), answer, C.weir_u8(side)) != 0
}

// Acknowledge returns the field that an ACK has behind the edge. flagged: the ACK advertises a window.
func (f *EdgeFlow) Acknowledge(rules *EdgeRules, ack uint32, field uint16, flagged bool, now EdgeTime) uint16 {
	flag := C.int(0)
	if flagged {
		flag = 1
	}
	return uint16(C.native_edge_ack((*C.struct_edge_rules)(unsafe.Pointer(rules)), f.c(), C.weir_u32(ack), C.weir_u16(field), flag, C.weir_u32(now)))
}
