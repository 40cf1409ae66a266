//go:build cgo

package native

/*
#include "fairq_turns.h"
*/
import "C"

import "unsafe"

// Event is one change of a port, under its lock.
type Event uint32

// The events, in the order of bpf/fairq/trace.h.
const (
	Ticked    Event = iota + 1 // Value: backlog, bytes
	Recounted                  // of its flows
	Limited                    // NowNs: the gap. A part of its flows is limited, or was
	SawMSS                     // Value: bytes
	Stopped                    // by user space
	Reused                     // its id now belongs to another port
	Paces                      // Value: 1 if it starts to pace, 0 if it ends
)

// Turn is one event with its input.
type Turn struct {
	Event    Event
	NowNs    uint64
	Value    uint32
	Live     bool // user space runs
	Readable bool // the port's queue could be read
}

// Turn runs one event, and none that follows from it.
func (s *Switch) Turn(id int, t *Turn) {
	live, readable := C.int(0), C.int(0)
	if t.Live {
		live = 1
	}
	if t.Readable {
		readable = 1
	}
	switch at, now := C.weir_u32(id), C.weir_u64(t.NowNs); t.Event {
	case Ticked:
		C.native_ticked(s.c, at, now, C.weir_u32(t.Value), live, readable)
	case Recounted:
		C.native_recounted(s.c, at, now, live)
	case Limited:
		C.native_limited(s.c, at, now)
	case SawMSS:
		C.native_saw_mss(s.c, at, C.weir_u32(t.Value))
	case Stopped:
		C.native_stopped(s.c, at)
	case Reused:
		C.native_reused(s.c, at)
	case Paces:
		C.native_paces(s.c, at, C.int(t.Value))
	}
}

// SlotComes counts a direction that has entered this slot (core/fairq/slots.h).
func (s *Switch) SlotComes(id int, slot uint64) {
	C.native_slot_comes(s.c, C.weir_u32(id), C.weir_u64(slot))
}

// SlotGoes removes a direction from the slot. It reports whether the direction still counted.
func (s *Switch) SlotGoes(id int, slot uint64) bool {
	return C.native_slot_goes(s.c, C.weir_u32(id), C.weir_u64(slot)) != 0
}

// SlotIsNew reports whether a port has one flow more, after a direction moved from one slot to another.
// counted: the direction still counted in the old slot.
func (s *Switch) SlotIsNew(before, after uint64, counted bool) bool {
	was := C.int(0)
	if counted {
		was = 1
	}
	return C.native_slot_is_new(s.c, C.weir_u64(before), C.weir_u64(after), was) != 0
}

// OpeningComes counts an open handshake and returns its registration.
func (s *Switch) OpeningComes(id int, nowNs uint64) uint32 {
	return uint32(C.native_opening_comes(s.c, C.weir_u32(id), C.weir_u64(nowNs)))
}

// OpeningGoes removes an open handshake from the count. It reports whether the handshake still counted.
func (s *Switch) OpeningGoes(id int, registration uint32) bool {
	return C.native_opening_goes(s.c, C.weir_u32(id), C.weir_u32(registration)) != 0
}

// RegisterComes enters a direction in a port's register, and returns its registration.
func (s *Switch) RegisterComes(id int) uint32 {
	return uint32(C.native_register_comes(s.c, C.weir_u32(id)))
}

// RegisterGoes removes a direction from a port's register.
func (s *Switch) RegisterGoes(id int, registration uint32) {
	C.native_register_goes(s.c, C.weir_u32(id), C.weir_u32(registration))
}

// Floor returns the least window of a flow whose ACKs a port limits, in bytes: grant_floor.
func (s *Switch) Floor(id int, mss, gso uint16) uint32 {
	return uint32(C.native_floor(s.c, C.weir_u32(id), C.weir_u32(mss), C.weir_u32(gso)))
}

// Kept is the part of a port that a trace records: struct port from grant_q8 up to rtt_ns.
type Kept [(unsafe.Offsetof(C.struct_port{}.rtt_ns) - unsafe.Offsetof(C.struct_port{}.grant_q8)) / 8]uint64

// SetKept sets the part that a trace records.
func (p *Port) SetKept(kept *Kept) { *(*Kept)(unsafe.Pointer(&p.GrantQ8)) = *kept }

// Kept returns the part of the port that a trace records.
func (p *Port) Kept() Kept { return *(*Kept)(unsafe.Pointer(&p.GrantQ8)) }

// Same reports whether two ports are equal in all that core decides.
func (p *Port) Same(other *Port) bool {
	a, b := *p, *other
	a.here, b.here = 0, 0
	return a == b
}
