//go:build cgo

package native

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#include <stdlib.h>
#include "../core/fairq/fairq.h"

struct native_fairq {
	struct fairq_config config;
	struct fairq_state state;
};

#cgo noescape fairq_reset
#cgo nocallback fairq_reset
#cgo noescape fairq_restart
#cgo nocallback fairq_restart
#cgo noescape fairq_saw_mss
#cgo nocallback fairq_saw_mss
#cgo noescape fairq_flows
#cgo nocallback fairq_flows
#cgo noescape fairq_flow_added
#cgo nocallback fairq_flow_added
#cgo noescape fairq_flow_removed
#cgo nocallback fairq_flow_removed
#cgo noescape fairq_sample
#cgo nocallback fairq_sample
#cgo noescape fairq_opening_q8
#cgo nocallback fairq_opening_q8
#cgo noescape fairq_packet_may_sample
#cgo nocallback fairq_packet_may_sample
#cgo noescape fairq_empty_may_rest
#cgo nocallback fairq_empty_may_rest
*/
import "C"

import "unsafe"

// FairQ is the law of one queue, with its configuration and state in C memory. Times are nanoseconds of any
// clock, the same in all calls. Not for concurrent use. Close frees it.
type FairQ struct {
	c *C.struct_native_fairq
}

// NewFairQ returns a queue without flows, which begins at nowNs.
func NewFairQ(config FairQConfig, nowNs uint64) *FairQ {
	// cgo's calloc does not return without memory.
	f := &FairQ{(*C.struct_native_fairq)(C.calloc(1, C.sizeof_struct_native_fairq))}
	f.setConfig(config)
	f.Reset(nowNs)
	return f
}

// Close frees the queue, which must not be used afterwards.
func (f *FairQ) Close() {
	C.free(unsafe.Pointer(f.c))
	f.c = nil
}

// Reset removes flows and windows: fairq_reset.
func (f *FairQ) Reset(nowNs uint64) {
	C.fairq_reset(&f.c.config, &f.c.state, C.weir_u64(nowNs))
}

// Restart calculates the windows afresh for the present flows: fairq_restart.
func (f *FairQ) Restart() {
	C.fairq_restart(&f.c.config, &f.c.state)
}

// SawMSS records the MSS of a flow: fairq_saw_mss.
func (f *FairQ) SawMSS(bytes uint32) {
	C.fairq_saw_mss(&f.c.config, &f.c.state, C.weir_u32(bytes))
}

// SetFlows sets the number of flows: fairq_flows.
func (f *FairQ) SetFlows(nowNs uint64, flows uint32) {
	C.fairq_flows(&f.c.config, &f.c.state, C.weir_u64(nowNs), C.weir_u32(flows))
}

// FlowAdded adds a flow: fairq_flow_added.
func (f *FairQ) FlowAdded(nowNs uint64) {
	C.fairq_flow_added(&f.c.config, &f.c.state, C.weir_u64(nowNs))
}

// FlowRemoved removes a flow: fairq_flow_removed.
func (f *FairQ) FlowRemoved() {
	C.fairq_flow_removed(&f.c.config, &f.c.state)
}

// Sample passes the queue's length to the law, which updates the window when an update is due: fairq_sample.
func (f *FairQ) Sample(nowNs uint64, backlogBytes uint32) {
	C.fairq_sample(&f.c.config, &f.c.state, C.weir_u64(nowNs), C.weir_u32(backlogBytes))
}

// PacketMaySample reports whether the timer is so late that a packet must take the sample:
// fairq_packet_may_sample.
func (f *FairQ) PacketMaySample(nowNs uint64) bool {
	return C.fairq_packet_may_sample(&f.c.config, &f.c.state, C.weir_u64(nowNs)) != 0
}

// EmptyMayRest reports whether a packet need not sample for the timer while the queue is empty: fairq_empty_may_rest.
func (f *FairQ) EmptyMayRest(nowNs uint64) bool {
	return C.fairq_empty_may_rest(&f.c.config, &f.c.state, C.weir_u64(nowNs)) != 0
}

// OpeningQ8 returns Rwnd as it would be with opening more flows, in 1/256 byte.
func (f *FairQ) OpeningQ8(opening uint32) uint64 {
	return uint64(C.fairq_opening_q8(&f.c.config, &f.c.state, C.weir_u32(opening)))
}

// WindowQ8 returns Rwnd, the window of each flow, in 1/256 byte. It does not call into C.
func (f *FairQ) WindowQ8() uint64 { return uint64(f.c.state.window_q8) }

// Flows returns the number of flows. It does not call into C.
func (f *FairQ) Flows() uint32 { return uint32(f.c.state.flows) }

// MSSBytes returns the largest MSS seen; 0: none. It does not call into C.
func (f *FairQ) MSSBytes() uint32 { return uint32(f.c.state.mss_bytes) }

// Config returns the present configuration.
func (f *FairQ) Config() FairQConfig {
	c := &f.c.config
	return FairQConfig{
		TargetBytes: uint32(c.target_bytes), BufferBytes: uint32(c.buffer_bytes),
		TickNs: uint32(c.tick_ns), PeriodNs: uint32(c.period_ns),
		FloorBytes: uint32(c.floor_bytes), CapBytes: uint32(c.cap_bytes), StartBytes: uint32(c.start_bytes), MSSMaxBytes: uint16(c.mss_max_bytes),
		Gain: Gain(c.gain), SlowStart: SlowStart(c.slow_start), Variant: Variant(c.variant),
	}
}

func (f *FairQ) setConfig(c FairQConfig) { f.c.config = c.c() }

func (c *FairQConfig) c() C.struct_fairq_config {
	return C.struct_fairq_config{
		target_bytes: C.weir_u32(c.TargetBytes), buffer_bytes: C.weir_u32(c.BufferBytes),
		tick_ns: C.weir_u32(c.TickNs), period_ns: C.weir_u32(c.PeriodNs),
		floor_bytes: C.weir_u32(c.FloorBytes), cap_bytes: C.weir_u32(c.CapBytes), start_bytes: C.weir_u32(c.StartBytes), mss_max_bytes: C.weir_u16(c.MSSMaxBytes),
		gain: C.weir_u8(c.Gain), slow_start: C.weir_u8(c.SlowStart), variant: C.weir_u8(c.Variant),
	}
}

// State returns a copy of the state.
func (f *FairQ) State() FairQState {
	s := &f.c.state
	out := FairQState{
		AggregateQ8: uint64(s.aggregate_q8), WindowQ8: uint64(s.window_q8),
		UnderByteNs: uint64(s.under_byte_ns), OverByteNs: uint64(s.over_byte_ns),
		LastSampleNs: uint64(s.last_sample_ns), BacklogSum: uint64(s.backlog_sum),
		Rest: uint32(s.rest), RestNs: uint32(s.rest_ns), ElapsedNs: uint32(s.elapsed_ns),
		Flows: uint32(s.flows), MSSBytes: uint16(s.mss_bytes), SlowStart: uint8(s.slow_start), Next: uint8(s.next),
	}
	for i, b := range s.backlogs {
		out.Backlogs[i] = uint32(b)
	}
	return out
}

// SetState sets the state, for a test vector.
func (f *FairQ) SetState(in FairQState) {
	s := C.struct_fairq_state{
		aggregate_q8: C.weir_u64(in.AggregateQ8), window_q8: C.weir_u64(in.WindowQ8),
		under_byte_ns: C.weir_u64(in.UnderByteNs), over_byte_ns: C.weir_u64(in.OverByteNs),
		last_sample_ns: C.weir_u64(in.LastSampleNs), backlog_sum: C.weir_u64(in.BacklogSum),
		rest: C.weir_u32(in.Rest), rest_ns: C.weir_u32(in.RestNs), elapsed_ns: C.weir_u32(in.ElapsedNs),
		flows: C.weir_u32(in.Flows), mss_bytes: C.weir_u16(in.MSSBytes), slow_start: C.weir_u8(in.SlowStart), next: C.weir_u8(in.Next),
	}
	for i, b := range in.Backlogs {
		s.backlogs[i] = C.weir_u32(b)
	}
	f.c.state = s
}
