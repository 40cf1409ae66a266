// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode in the switch: which ACKs tell the edge a window. The others pass untouched.
//
//   grant < own window     told once an interval, and at once when the grant has moved by more than
//                          edge_change/256 of what was told: a shrinking share reaches its sender in time
//   grant >= own window    nothing to hold. The edge still remembers the last told one: it is told the
//                          own window while that is larger, until its memory has run out (edge_lease)
//   an ACK is flagged      a switch before this one told it. It is lowered to this one's grant if need be,
//                          and noted: what this switch tells is never above what the other did. An ACK
//                          crosses the switches in one order, so the last of them knows the least window
//
// All windows are bytes, as the ACK's sender scales them; SYN-ACKs are rewritten always and never flagged.
#ifndef WEIR_BPF_EDGE_TELL_H
#define WEIR_BPF_EDGE_TELL_H

#include "edge.h"
#include "flows.h"

const volatile __u32 edge_interval = 0; // of edge_clock; 0: every ACK is rewritten (full mode)
const volatile __u32 edge_lease = 0;    // how long the edge remembers
const volatile __u16 edge_change = 0;   // of 256

// The field of an ACK that the switches before this one leave to it.
static __always_inline __u16 edge_field(const struct end *e, __u16 field, __u32 now)
{
	return e->upstream && now - e->upstream_at < edge_lease && e->upstream < field ? e->upstream : field;
}

// Bytes that a grant stands for; 0 is none: no limit.
static __always_inline __u32 edge_bytes(__u64 grant_q8)
{
	__u64 bytes = grant_q8 >> 8;

	return bytes && bytes < WINDOW_EDGE_MAX ? (__u32)bytes : WINDOW_EDGE_MAX;
}

static __always_inline int edge_moved(__u32 told, __u32 to)
{
	__u32 by = (__u64)told * edge_change >> 8;

	return to > told + by || to < told - by;
}

// Whether the ACK is to tell the edge.
__noinline int edge_due(const struct end *e, const struct segment *s, __u32 shift, __u64 grant_q8)
{
	__u32 now = edge_clock(), grant = edge_bytes(grant_q8), past, own;

	if (!e || !s)
		return 0;
	past = now - e->edge_told_at;
	own = (__u32)edge_field(e, s->window, now) << window_shift(shift, 0);
	if (s->reserved & EDGE_FLAG)
		return 1;
	if (!e->edge_told || past >= edge_lease)
		return grant < own;
	if (grant < own)
		return past >= edge_interval || edge_moved(e->edge_told, grant);
	return own > e->edge_told && (past >= edge_interval || edge_moved(e->edge_told, own));
}

// The ACK tells: `field` is what the law makes of its window. Gives the field that is told.
__noinline int edge_tell(struct end *e, const struct segment *s, __u32 field, __u32 shift, __u64 grant_q8)
{
	__u32 now = edge_clock(), grant = edge_bytes(grant_q8), told;

	if (!e || !s)
		return field;
	if (s->reserved & EDGE_FLAG) {
		e->upstream = s->window;
		e->upstream_at = now;
	}
	field = edge_field(e, field, now);
	told = (__u32)field << window_shift(shift, 0);
	e->edge_told = told > grant ? grant : told; // the floor, or rounding, is above the grant: the next is compared with that
	e->edge_told_at = now;
	return field;
}

#endif
