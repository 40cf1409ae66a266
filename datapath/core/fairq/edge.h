// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode (docs/fairq.md): a switch of the core advertises a flow's window on some ACKs only, and the edge next to the
// flow's sender writes it into all of them. This file has the decisions of both: which ACKs advertise, and which window.
//
// At a switch, for each ACK:
//   grant < own window     it advertises once an interval, and at once if the grant has changed by more than change/256
//                          of the advertised window: so a smaller share reaches the sender in time
//   grant >= own window    no limit is needed. The edge still applies the last window. So the own window is advertised
//                          while it is larger than that, until the lease at the edge has expired
//   an ACK is flagged      a switch before this one advertised. This switch lowers the window to its own grant if that
//                          is smaller. It records the other window, and never advertises more. An ACK passes the
//                          switches in one order, so the last of them advertises the smallest window
//
// At the edge, for each ACK towards the sender of data:
//   flagged                its window is recorded, unless it is 0: that is a full receiver, and no limit of the network
//   not flagged            limited to the recorded window, until `lease` after the last flagged ACK. Then ACKs pass
//                          unchanged: the switch that advertised is gone
// The edge reads window scales from SYNs. If it did not see the handshake, it compares windows as the header has them. A
// right edge cannot be kept then: with shrink: avoid such ACKs pass unchanged.
//
// Numeric specification
//   windows         bytes, scaled by the ACK's sender, u32, below WINDOW_EDGE_MAX = 2^30, which means no limit.
//   clock           u32, units of 2^EDGE_CLOCK_LOG2_NS ns = 1.05 ms, compared modulo 2^32.
//   interval, lease units of the clock; interval at least 1, lease above it. change: in 256ths.
#ifndef WEIR_CORE_EDGE_H
#define WEIR_CORE_EDGE_H

#include "../handshake.h"
#include "switch.h"
#include "../window.h"

#define EDGE_CLOCK_LOG2_NS 20

// ---- at a switch ----

struct edge_config {
	weir_u32 interval; // units of the clock; 0: full mode, every ACK is rewritten
	weir_u32 lease;    // units of the clock: how long an advertised window is valid at the edge
	weir_u32 change;   // in 256ths
	weir_u32 zero;
};

// Returns the field of an ACK within the window that a switch before this one advertised.
WEIR_INLINE weir_u16 edge_field(const struct edge_config *config, const struct end *e, weir_u16 field, weir_u32 now)
{
	return e->upstream && now - e->upstream_at < config->lease && e->upstream < field ? e->upstream : field;
}

// Returns a grant in bytes; a grant of 0 is no limit.
WEIR_INLINE weir_u32 edge_bytes(weir_u64 grant_q8)
{
	weir_u64 bytes = grant_q8 >> 8;

	return bytes && bytes < WINDOW_EDGE_MAX ? (weir_u32)bytes : WINDOW_EDGE_MAX;
}

WEIR_INLINE int edge_moved(const struct edge_config *config, weir_u32 advertised, weir_u32 to)
{
	weir_u32 by = (weir_u32)((weir_u64)advertised * config->change >> 8);

	return to > advertised + by || to < advertised - by;
}

// An ACK at a switch.
struct edge_ack {
	weir_u64 grant_q8; // the window that limits it; 0: none
	weir_u32 now;      // units of the clock
	weir_u16 field;    // as it came
	weir_u8 shift;     // of its sender
	weir_u8 flagged;   // 1: a switch before this one advertised
};

// Reports whether an ACK of this end must advertise.
WEIR_INLINE int edge_is_due(const struct edge_config *config, const struct end *e, const struct edge_ack *a)
{
	weir_u32 grant = edge_bytes(a->grant_q8), past = a->now - e->edge_advertised_at;
	weir_u32 own = (weir_u32)edge_field(config, e, a->field, a->now) << window_shift(a->shift, 0);

	if (a->flagged)
		return 1;
	if (!e->edge_advertised || past >= config->lease)
		return grant < own;
	if (grant < own)
		return past >= config->interval || edge_moved(config, e->edge_advertised, grant);
	return own > e->edge_advertised && (past >= config->interval || edge_moved(config, e->edge_advertised, own));
}

// Event: the ACK advertises. field: its window under the law's limit. Returns the field that is advertised.
WEIR_INLINE weir_u16 edge_advertises(const struct edge_config *config, struct end *e, const struct edge_ack *a,
				weir_u16 field)
{
	weir_u32 grant = edge_bytes(a->grant_q8), advertised;

	if (a->flagged) {
		e->upstream = a->field;
		e->upstream_at = a->now;
	}
	field = edge_field(config, e, field, a->now);
	advertised = (weir_u32)field << window_shift(a->shift, 0);
	// Floor or rounding may exceed the grant. The next grant is compared with this one, and not with the field.
	e->edge_advertised = advertised > grant ? grant : advertised;
	e->edge_advertised_at = a->now;
	return field;
}

// Returns the window of an ACK that is left to the edge, as the edge will write it, in bytes.
WEIR_INLINE weir_u32 edge_left(const struct end *e, weir_u16 field, weir_u8 shift)
{
	weir_u32 own = (weir_u32)field << window_shift(shift, 0);

	return e->edge_advertised < own ? e->edge_advertised : own;
}

// ---- at the edge ----

// The handshake of a connection, as the edge saw it.
struct edge_handshake {
	struct handshake seen;
	struct window_edge edge[2]; // shrink: avoid: granted by each side's ACKs while nothing is advertised
};

// The advertised window of one direction.
struct edge_window {
	struct window_edge edge; // granted by the ACKs that left
	weir_u32 advertised_at;  // when it was advertised, units of the clock
	weir_u16 field;          // 0: nothing was advertised yet
	weir_u8 shift;
	weir_u8 known;           // 1: the handshake was seen: shift and mss are valid
	weir_u16 mss;            // of the side that sends the ACKs; 0: no such option
	weir_u16 zero;
};

struct edge_rules {
	weir_u32 lease;       // units of the clock
	weir_u32 floor_bytes; // least window of every flow; 0: from its own MSS
	weir_u32 mss_max;     // bytes: the port's MTU - 40
	weir_u32 shrink;      // enum window_shrink
};

// Event: a SYN-ACK that answers the SYN passes. Its window is granted. Edges recorded before belong to an older
// connection, and are cleared.
WEIR_INLINE void edge_begins(struct edge_handshake *h, weir_u8 side, weir_u32 ack, weir_u16 field)
{
	h->edge[0].known = h->edge[1].known = 0;
	window_granted(&h->edge[side & 1], ack, field);
}

// Event: the first window is advertised for a flow whose ACKs this side sends. h: its handshake; 0: not seen.
WEIR_INLINE void edge_enters(struct edge_window *w, const struct edge_handshake *h, weir_u8 side)
{
	if (!h || !(h->seen.flags & HANDSHAKE_KNOWN))
		return;
	w->known = 1;
	w->shift = h->seen.shift[side & 1];
	w->mss = h->seen.mss[side & 1];
	w->edge = h->edge[side & 1];
}

// Returns the least window of a flow in bytes; if its scale is not known: 1, as a field.
WEIR_INLINE weir_u32 edge_floor(const struct edge_rules *rules, const struct edge_window *w)
{
	if (!w->known)
		return 1;
	if (rules->floor_bytes)
		return rules->floor_bytes;
	return window_floor(w->mss < rules->mss_max ? w->mss : rules->mss_max, 0);
}

// Returns the field that an ACK leaves with: limited to the recorded window.
WEIR_INLINE weir_u16 edge_limits(const struct edge_rules *rules, struct edge_window *w, weir_u32 ack, weir_u16 field)
{
	struct window_ack a = {.ack = ack, .field = field, .shift = w->shift, .shrink = (weir_u8)rules->shrink};

	if (rules->shrink == WINDOW_SHRINK_AVOID && !w->known)
		return field;
	a.floor_bytes = edge_floor(rules, w);
	a.window_q8 = ((weir_u64)w->field << window_shift(w->shift, 0)) << 8;
	return window_rewrite(&a, &w->edge);
}

// Returns the field that a flagged ACK leaves with under shrink: avoid: as advertised, or what the right edge still
// grants, if that is more. The own window of this ACK was overwritten. Its sender announced at least what the right edge
// grants, rounded down (RFC 7323 2.4). So the edge rounds down too, and never grants more than the receiver did.
WEIR_INLINE weir_u16 edge_keeps(struct edge_window *w, weir_u32 ack, weir_u16 field)
{
	weir_u32 shift = window_shift(w->shift, 0);
	weir_u32 granted = window_keep_edge(&w->edge, ack, 0) >> shift;

	if (granted > WINDOW_FIELD_MAX)
		granted = WINDOW_FIELD_MAX;
	if (granted > field)
		field = (weir_u16)granted;
	window_granted(&w->edge, ack, (weir_u32)field << shift);
	return field;
}

// Event: a flagged ACK passes. Returns the field that it leaves with.
WEIR_INLINE weir_u16 edge_hears(const struct edge_rules *rules, struct edge_window *w, weir_u32 ack, weir_u16 field,
				weir_u32 now)
{
	if (!field)
		return field;
	w->field = field;
	w->advertised_at = now;
	if (rules->shrink == WINDOW_SHRINK_AVOID && w->known)
		return edge_keeps(w, ack, field);
	return field;
}

// Reports whether a window is recorded and its lease is valid.
WEIR_INLINE int edge_remembers(const struct edge_rules *rules, const struct edge_window *w, weir_u32 now)
{
	return w->field && now - w->advertised_at < rules->lease;
}

// Event: an ACK passes unchanged, because no window is recorded for it. Records the right edge that it grants (shrink:
// avoid).
WEIR_INLINE void edge_passes(struct window_edge *edge, weir_u8 shift, weir_u32 ack, weir_u16 field)
{
	window_granted(edge, ack, (weir_u32)field << window_shift(shift, 0));
}

#endif
