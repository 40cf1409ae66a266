//go:build cgo

package native

/*
#include "../core/fairq/fairswitch_frame.h"
*/
import "C"

import "unsafe"

// FairSwitch is the law of one queue of the hardware. Its events wait for Job.
type FairSwitch struct {
	config C.struct_fairswitch_config
	state  C.struct_fairswitch_state
}

// NewFairSwitch returns a queue without flows.
func NewFairSwitch(c FairSwitchConfig) *FairSwitch {
	return &FairSwitch{config: C.struct_fairswitch_config{
		queue_words:         C.weir_u32(c.QueueWords),
		aggregate_max_bytes: C.weir_u32(c.AggregateMaxBytes),
		floor_bytes:         C.weir_u16(c.FloorBytes),
		mss_max_bytes:       C.weir_u16(c.MSSMaxBytes),
		idle_samples:        C.weir_u16(c.IdleSamples),
		threshold:           C.weir_u8(c.Threshold),
		updates:             C.weir_u8(c.Updates),
	}}
}

// Count is the event that a segment opens or ends a flow.
func (q *FairSwitch) Count(event FairSwitchEvent) {
	C.fairswitch_count(&q.state, uint32(event))
}

// Data is the event that a segment with this payload leaves.
func (q *FairSwitch) Data(payloadBytes uint32) {
	C.fairswitch_data(&q.config, &q.state, C.weir_u32(payloadBytes))
}

// Sample is the event that avg_queue_time has passed, with the queue's length.
func (q *FairSwitch) Sample(words uint32) {
	C.fairswitch_sample(&q.config, &q.state, C.weir_u32(words))
}

// Job does one job of the divider. It returns false if there was none.
func (q *FairSwitch) Job() bool { return C.fairswitch_job(&q.config, &q.state) != 0 }

// State returns the queue's registers.
func (q *FairSwitch) State() FairSwitchState {
	s := &q.state
	return FairSwitchState{
		AggregateBytes: uint32(s.aggregate_bytes), WindowBytes: uint32(s.window_bytes),
		AverageWords: uint32(C.fairswitch_average(s)), Flows: uint16(s.flows),
		SYNs: uint16(s.syns), FINs: uint16(s.fins), RSTs: uint16(s.rsts), MSSBytes: uint16(s.mss_bytes),
	}
}

// FairSwitchFrame rewrites an Ethernet frame in place, as the hardware does with this window (0: none is granted).
func FairSwitchFrame(frame []byte, windowBytes uint32, over bool, reserved FairSwitchClear) FairSwitchSeen {
	if len(frame) == 0 {
		return FairSwitchSeen{}
	}
	now := C.struct_fairswitch_now{window_bytes: C.weir_u32(windowBytes), clear: C.weir_u8(reserved)}
	if over {
		now.over = 1
	}
	s := C.fairswitch_frame((*C.weir_u8)(unsafe.Pointer(&frame[0])), C.weir_u32(len(frame)), &now)
	return FairSwitchSeen{
		PayloadBytes: uint32(s.payload_bytes), Event: FairSwitchEvent(s.event),
		TCP: s.tcp != 0, Marked: s.marked != 0, Rewritten: s.rewritten != 0,
	}
}
