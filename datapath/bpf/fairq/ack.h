// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// An acknowledgement leaves by a port with the window min(rwnd, W). rwnd is the receive window that it came with. W is
// the grant of the port that the acknowledged data leaves by.
//
//   1 ack_begins      finds the data's sender, and the port that the data leaves by
//   2 ack_is_granted  reads what that port grants the flow; 0: nothing, and the window stays
//   3 ack_is_limited  calculates the field: the smaller of both, not below the flow's floor
//   4 ack_is_written  writes it into the header, with the checksum
//
// core/fairq/ack.h decides 2 and 3, also for the simulator. The rest is in files of its own, each behind one call: edge
// mode (edge_mode.h), scale: unify (unify.h), equal paths (ecmp.h), and counts for observers (observe.h).
#ifndef WEIR_BPF_ACK_H
#define WEIR_BPF_ACK_H

#include "canary.h"
#include "connection.h"
#include "ecmp.h"
#include "edge_mode.h"
#include "flows.h"
#include "observe.h"
#include "port.h"
#include "slots.h"
#include "unify.h"
#include "../lib/rewrite.h"
#include "../../core/fairq/credit_ack.h"

// Limits a window with shrink: avoid. A function of its own, so that the verifier checks its many paths once.
__noinline int ack_keeps_edge(const struct window_ack *window, struct window_edge *edge)
{
	return window && edge ? window_rewrite(window, edge) : 0;
}

#define ACK_CLOCK(now_ns, live) ((now_ns) = bpf_ktime_get_ns(), (live) = is_live(now_ns))
#define ACK_KEEPS_EDGE(window, edge) ack_keeps_edge(window, edge)
#include "../../core/fairq/ack.h"

struct ack {
	struct end *receiver, *sender; // of the data
	struct port *port;             // the port that the data leaves by; NULL: not known
	struct port_config *config;
	__u64 *said;       // the counter of its outcome
	struct granted granted; // what the port grants the flow
	__u32 id;          // of the port
	int may_advertise;
	struct window_ack window;
	struct asked asked;
};

static __always_inline void ack_begins(struct ack *a, const struct segment *s, struct connection *c,
				       struct port_counts *stats)
{
	__u32 id = paths_port(&c->end[!s->side]); // a local, because the address of a->id would keep *a in memory

	a->receiver = &c->end[s->side & 1];
	a->sender = &c->end[!s->side];
	a->id = id;
	a->port = port_of(id);
	a->config = NULL; // ack_is_configured
	a->said = &stats->ungoverned;
	a->granted = (struct granted){};
	a->may_advertise = 1;
	a->asked = (struct asked){};
	a->window = (struct window_ack){
		.field = scale == SCALE_UNIFY ? unify_field(a->receiver, s) : s->window,
		.shift = shift_of(a->receiver, s),
		.syn = !!(s->flags & TCP_SYN),
		.ack = s->ack,
		.shrink = shrink,
	};
}

// Reads the configuration of the data's port, if it was not read yet. Reports whether there is one.
static __always_inline int ack_is_configured(struct ack *a)
{
	__u32 id = a->id; // a local, as in ack_begins

	if (!a->config)
		a->config = bpf_map_lookup_elem(&configs, &id);
	return a->config != NULL;
}

// Reports whether an ACK is plain: its grant depends on its port's state only, not on its configuration, and an ACK that fits
// its grant keeps its window. It is so for all ACKs of a flow whose data was seen here.
static __always_inline int ack_is_plain(const struct ack *a)
{
	return scale != SCALE_UNIFY && shrink != WINDOW_SHRINK_AVOID && likely(!a->window.syn && a->sender->port);
}

static __always_inline void ack_is_granted(struct ack *a, const struct segment *s, struct connection *c, __u64 packets, int plain,
					   const int credit)
{
	int here = a->sender->port != 0, live = 0, opens = 0;
	__u64 now = 0;

	if (!plain)
		opens = ack_opens(a->config, a->port, count, a->window.syn, here, &now, &live);
	asked_begins(&a->asked, a->id, a->port);
	if (plain)
		grant_of(NULL, a->port, c->bucket, 0, 1, 0, &a->granted);
	else
		ack_granted(a->config, a->port, c->bucket, opens, here, now, &a->granted);
	if (credit && !s->is_stranger)
		grant_promised(a->port, c->bucket, credit_limit(a->port, asked_promised(&a->asked, a->sender->promise)), &a->granted);
	asked_grants(&a->asked, a->config, a->port, &a->granted);
	asked_about(&a->asked, s, c, a->window.shift, now, live, packets);
}

// Returns a window field in bytes.
static __always_inline __u32 ack_bytes(const struct ack *a, __u16 field)
{
	return (__u32)field << window_shift(a->window.shift, a->window.syn);
}

// Returns the field that leaves, and sets *limited, which is the ACK's own field before, to the field under the limit.
static __always_inline __u16 ack_is_limited(struct ack *a, struct acks *acks, struct port_counts *stats, __u64 packets, int plain,
					    __u16 *limited)
{
	__u16 own = a->window.field, field = own;

	a->window.window_q8 = ack_limit_q8(&a->granted);
	if (!plain || !window_fits(&a->window)) {
		if (!ack_is_configured(a))
			return own;
		field = ack_limit(&a->window, a->config, &a->granted, a->receiver->mss, a->sender->gso,
				  shrink == WINDOW_SHRINK_AVOID, asked_edge_before(&a->asked, &acks->edge), limited);
		asked_edge_after(&a->asked, &acks->edge);
		asked_law(&a->asked, &a->window, *limited);
	}
	if (!a->sender->port)
		stats->assumed += packets;
	if (!a->granted.window_q8)
		a->said = &stats->free_;
	else
		a->said = *limited == own ? &stats->smaller : &stats->rewritten;
	return field;
}

// Writes the field and the reserved bits if they differ from the header's. With scale: unify the field may differ also
// where nothing is limited. Returns the field that leaves.
static __always_inline __u16 ack_is_written(struct __sk_buff *ctx, const struct segment *s, struct port_counts *stats,
					    __u64 packets, __u16 field, __u8 bits, __u64 *said, const int edge)
{
	if (field != s->window || bits != s->reserved) {
		if (edge ? reserved_window_write(ctx, s, bits, field) : window_write(ctx, s, field)) {
			said = &stats->unwritable;
			field = s->window;
		} else if (bits != s->reserved) {
			stats->advertised += packets;
		}
	}
	*said += packets;
	return field;
}

// Limits the window of an acknowledgement. Returns the field that it leaves with. watched: count it for observers. edge:
// it may advertise; a constant, so that the program has no code of edge mode in full mode. credit: promises limit it, too.
static __always_inline int on_ack(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port_counts *stats,
				  __u64 packets, int watched, const int edge, const int credit)
{
	struct acks *acks = &c->acks[s->side & 1];
	__u8 bits = s->reserved;
	__u16 field, limited;
	struct ack a;
	int plain;

	ack_begins(&a, s, c, stats);
	if (unlikely(s->is_signed)) {
		observe_ack(c, s, ack_bytes(&a, a.window.field), ack_bytes(&a, a.window.field), packets, watched);
		stats->signed_ += packets;
		return s->window;
	}
	field = limited = a.window.field;
	plain = ack_is_plain(&a);
	if (likely(a.port) && ((plain && !LAW_TRACED) || ack_is_configured(&a))) { // a trace records the configuration of every ACK
		ack_is_granted(&a, s, c, packets, plain, credit);
		if (ack_is_limitable(&a.granted))
			field = ack_is_limited(&a, acks, stats, packets, plain, &limited);
	}
	if (edge && a.port)
		a.may_advertise = grant_advertises(a.port, c->bucket, &a.granted);
	if (!credit || !s->is_stranger)
		observe_ack(c, s, ack_bytes(&a, a.window.field), ack_bytes(&a, limited), packets, watched);
	if (edge)
		field = edge_handles(&a.window, a.receiver, s, field, &bits, &a.granted, a.may_advertise, &a.asked);
	field = ack_is_written(ctx, s, stats, packets, field, bits, a.said, edge);
	asked_reported(&a.asked, ctx, s, c, field);
	return field;
}

// Calls on_ack with a stack of its own: edge mode and the trace need more than the caller has left. A call takes 7 ns.
__noinline int on_ack_apart(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port_counts *stats,
			    __u64 packets)
{
	return s && c && stats ? on_ack(ctx, s, c, stats, packets, is_watched(), edge_interval != 0, 0) : 0;
}

// Calls on_ack with promises and credits, also with a stack of its own.
__noinline int on_ack_credit(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port_counts *stats,
			     __u64 packets)
{
	return s && c && stats ? on_ack(ctx, s, c, stats, packets, is_watched(), 0, 1) : 0;
}

#endif
