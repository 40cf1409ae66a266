// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode (docs/fairq.md): a switch of the core advertises a flow's window on some of its ACKs only, and the edge next
// to the flow's sender writes it into all of them. Here are the decisions of both: which ACKs advertise, and what.
//
// At a switch, for each ACK:
//   grant < own window     advertised once an interval, and at once when the grant has moved by more than change/256 of
//                          what was advertised: a shrinking share reaches its sender in time
//   grant >= own window    nothing to hold. The edge still remembers the last window: the own one is advertised while
//                          that is larger, until the edge's memory has run out (lease)
//   an ACK is flagged      a switch before this one advertised. It is lowered to this one's grant if need be, and noted:
//                          what this switch advertises is never above what the other did. An ACK crosses the switches
//                          in one order, so the last of them knows the least window
//
// At the edge, for each ACK towards the sender of data:
//   flagged                its window is remembered. A receiver that is full (field 0) says nothing of the network
//   not flagged            held to what is remembered, until `lease` after the last flagged one: then ACKs pass as they
//                          are, for whoever advertised windows is gone
// SYNs tell the edge how windows are scaled. Of a connection whose handshake it did not see, windows are compared as they
// stand in the header; a right edge cannot be kept then, so with shrink: avoid it is left alone.
//
// Numeric specification
//   windows         bytes as the ACK's sender scales them, u32, below WINDOW_EDGE_MAX = 2^30, which is no limit.
//   clock           u32 units of 2^EDGE_CLOCK_LOG2_NS = 1.05 ms, compared modulo 2^32.
//   interval        1 or more units; lease: above it; change: of 256.
#ifndef WEIR_CORE_EDGE_H
#define WEIR_CORE_EDGE_H

#include "../handshake.h"
#include "switch.h"
#include "../window.h"

#define EDGE_CLOCK_LOG2_NS 20

// ---- at a switch ----

struct edge_config {
	weir_u32 interval; // of the clock; 0: full mode, every ACK is rewritten
	weir_u32 lease;    // how long the edge remembers
	weir_u32 change;   // of 256
	weir_u32 zero;
};

// The field of an ACK that the switches before this one leave to it.
WEIR_INLINE weir_u16 edge_field(const struct edge_config *config, const struct end *e, weir_u16 field, weir_u32 now)
{
	return e->upstream && now - e->upstream_at < config->lease && e->upstream < field ? e->upstream : field;
}

// Bytes that a grant stands for; a grant of 0 is no limit.
WEIR_INLINE weir_u32 edge_bytes(weir_u64 grant_q8)
{
	weir_u64 bytes = grant_q8 >> 8;

	return bytes && bytes < WINDOW_EDGE_MAX ? (weir_u32)bytes : WINDOW_EDGE_MAX;
}

WEIR_INLINE int edge_moved(const struct edge_config *config, weir_u32 told, weir_u32 to)
{
	weir_u32 by = (weir_u32)((weir_u64)told * config->change >> 8);

	return to > told + by || to < told - by;
}

// An ACK at a switch.
struct edge_ack {
	weir_u64 grant_q8; // what it is held to; 0: nothing
	weir_u32 now;      // of the clock
	weir_u16 field;    // as it came
	weir_u8 shift;     // of its sender
	weir_u8 flagged;   // 1: a switch before this one advertised
};

// Whether an ACK of this end is to advertise.
WEIR_INLINE int edge_is_due(const struct edge_config *config, const struct end *e, const struct edge_ack *a)
{
	weir_u32 grant = edge_bytes(a->grant_q8), past = a->now - e->edge_told_at;
	weir_u32 own = (weir_u32)edge_field(config, e, a->field, a->now) << window_shift(a->shift, 0);

	if (a->flagged)
		return 1;
	if (!e->edge_told || past >= config->lease)
		return grant < own;
	if (grant < own)
		return past >= config->interval || edge_moved(config, e->edge_told, grant);
	return own > e->edge_told && (past >= config->interval || edge_moved(config, e->edge_told, own));
}

// Event: the ACK advertises. field: what the law makes of its window. Gives the field that is advertised.
WEIR_INLINE weir_u16 edge_tells(const struct edge_config *config, struct end *e, const struct edge_ack *a,
				weir_u16 field)
{
	weir_u32 grant = edge_bytes(a->grant_q8), told;

	if (a->flagged) {
		e->upstream = a->field;
		e->upstream_at = a->now;
	}
	field = edge_field(config, e, field, a->now);
	told = (weir_u32)field << window_shift(a->shift, 0);
	e->edge_told = told > grant ? grant : told; // the floor, or rounding, is above the grant: the next is compared with that
	e->edge_told_at = a->now;
	return field;
}

// The window that an ACK has behind the edge to which it is left, in bytes.
WEIR_INLINE weir_u32 edge_left(const struct end *e, weir_u16 field, weir_u8 shift)
{
	weir_u32 own = (weir_u32)field << window_shift(shift, 0);

	return e->edge_told < own ? e->edge_told : own;
}

// ---- at the edge ----

// What the handshake told.
struct edge_handshake {
	struct handshake told;
	struct window_edge edge[2]; // shrink: avoid: granted by each side's ACKs while nothing is told
};

// What was told of one direction.
struct edge_window {
	struct window_edge edge; // granted by the ACKs that left
	weir_u32 told_at;        // of the clock
	weir_u16 field;          // 0: nothing was told yet
	weir_u8 shift;
	weir_u8 known;           // 1: the handshake was seen: shift and mss are valid
	weir_u16 mss;            // of the side that sends the ACKs; 0: no such option
	weir_u16 zero;
};

struct edge_rules {
	weir_u32 lease;       // of the clock
	weir_u32 floor_bytes; // of every flow's window; 0: its own MSS
	weir_u32 mss_max;     // of the port: MTU - 40
	weir_u32 shrink;      // enum window_shrink
};

// Event: a SYN-ACK passes that answers the SYN. Its window is granted; what was told before was told of another
// connection.
WEIR_INLINE void edge_begins(struct edge_handshake *h, weir_u8 side, weir_u32 ack, weir_u16 field)
{
	h->edge[0].known = h->edge[1].known = 0;
	window_granted(&h->edge[side & 1], ack, field);
}

// Event: a flow is advertised for the first time, of which this side sends the ACKs. h: 0, or what its handshake told.
WEIR_INLINE void edge_enters(struct edge_window *w, const struct edge_handshake *h, weir_u8 side)
{
	if (!h || !(h->told.flags & HANDSHAKE_KNOWN))
		return;
	w->known = 1;
	w->shift = h->told.shift[side & 1];
	w->mss = h->told.mss[side & 1];
	w->edge = h->edge[side & 1];
}

// The least window of a flow: in bytes, or of one whose scale is not known, as a field.
WEIR_INLINE weir_u32 edge_floor(const struct edge_rules *rules, const struct edge_window *w)
{
	if (!w->known)
		return 1;
	if (rules->floor_bytes)
		return rules->floor_bytes;
	return window_floor(w->mss < rules->mss_max ? w->mss : rules->mss_max, 0);
}

// The field that an ACK leaves with: held to what is remembered.
WEIR_INLINE weir_u16 edge_holds(const struct edge_rules *rules, struct edge_window *w, weir_u32 ack, weir_u16 field,
				int flagged)
{
	struct window_ack a = {.ack = ack, .field = field, .shift = w->shift, .shrink = (weir_u8)rules->shrink};

	if (rules->shrink == WINDOW_SHRINK_AVOID && !w->known)
		return field;
	a.floor_bytes = edge_floor(rules, w);
	a.window_q8 = ((weir_u64)w->field << window_shift(w->shift, 0)) << 8;
	// What a flagged ACK's sender announced is lost. It announced more before, if more was granted.
	if (flagged && rules->shrink == WINDOW_SHRINK_AVOID && w->edge.known)
		a.field = WINDOW_FIELD_MAX;
	else if (flagged)
		a.window_q8 = (weir_u64)WINDOW_EDGE_MAX << 8;
	return window_rewrite(&a, &w->edge);
}

// Event: a flagged ACK passes. Gives the field that it leaves with.
WEIR_INLINE weir_u16 edge_hears(const struct edge_rules *rules, struct edge_window *w, weir_u32 ack, weir_u16 field,
				weir_u32 now)
{
	if (!field)
		return field;
	w->field = field;
	w->told_at = now;
	return edge_holds(rules, w, ack, field, 1);
}

// Whether a window is remembered.
WEIR_INLINE int edge_remembers(const struct edge_rules *rules, const struct edge_window *w, weir_u32 now)
{
	return w->field && now - w->told_at < rules->lease;
}

// Event: an ACK of which nothing is remembered passes as it came. It grants all the same (shrink: avoid).
WEIR_INLINE void edge_passes(struct window_edge *edge, weir_u8 shift, weir_u32 ack, weir_u16 field)
{
	window_granted(edge, ack, (weir_u32)field << window_shift(shift, 0));
}

#endif
