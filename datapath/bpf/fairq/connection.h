// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How a connection enters the flow table, and what is read from its SYNs.
//
//   SYN          of end A: its MSS, window scale and sequence number go into `pending`
//   SYN-ACK      that acknowledges the SYN: those of end B, too. A window scale counts only if both ends sent one
//   first ACK    that acknowledges the SYN-ACK: the connection enters the flow table, and both directions are counted.
//                (count: handshake counts at the SYN-ACK, as the paper does. count: opening counts an open
//                handshake from the SYN-ACK to this ACK.)
//
// A connection that began before Weir was attached is adopted when both ends were seen and the second acknowledges
// what the first sent. Its window scale is then the smallest with which the bytes in flight fit the windows that left
// here. This is never above the true scale: a limit may be too weak, but it never starves the flow.
#ifndef WEIR_BPF_CONNECTION_H
#define WEIR_BPF_CONNECTION_H

#include "canary.h"
#include "ecmp.h"
#include "flows.h"
#include "port.h"
#include "slots.h"
#include "signed.h"
#include "table.h"
#include "unify.h"
#include "../lib/handshake.h"

// Space in which a connection is built: it is too large for the stack.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connection);
} drafts SEC(".maps");

// The table that holds a connection.
enum table {
	TABLE_NONE = 0,
	TABLE_PENDING = 1,
	TABLE_FLOWS = 2,
	TABLE_OUT_OF_SCOPE = 3,
};

static __always_inline int in_scope_address(const __u32 address[4])
{
	struct scope_key key = {.prefix_length = 128};
	__u32 *in;

	__builtin_memcpy(key.address, address, sizeof(key.address));
	in = bpf_map_lookup_elem(&scope, &key);
	return in && *in;
}

__noinline int in_scope_ends(struct __sk_buff *ctx, const struct segment *s)
{
	struct flow_ends ends = {};

	if (!s || !segment_ends(ctx, s, &ends))
		return 0;
	return in_scope_address(ends.address[0]) && in_scope_address(ends.address[1]);
}

static __always_inline int in_scope(struct __sk_buff *ctx, const struct segment *s)
{
	return !scoped || in_scope_ends(ctx, s);
}

// Returns the sequence number behind the segment.
static __always_inline __u32 segment_next(const struct segment *s)
{
	return s->seq + s->payload + !!(s->flags & TCP_SYN) + !!(s->flags & TCP_FIN);
}

static __always_inline int connection_is_closed(const struct connection *c)
{
	return c->flags & CONNECTION_RESET || c->end[0].flags & c->end[1].flags & END_FIN;
}

// Removes a connection from the table and returns its place to its port's share.
__noinline int connection_remove(struct flow_key *key, struct connection *c)
{
	struct port *owner;

	if (!key || !c)
		return 0;
	direction_ends(c, 0);
	direction_ends(c, 1);
	owner = port_of((__u32)c->owner - 1);
	if (flow_remove(key, c))
		return 0; // another CPU removed it
	if (owner)
		__sync_fetch_and_add(&owner->owned, -1);
	return 0;
}

// Records what a SYN or SYN-ACK announces of its sender.
static __always_inline void end_from_syn(struct connection *c, const struct segment *s, const struct tcp_options *o)
{
	struct end *e = &c->end[s->side & 1];

	e->flags = END_SEEN | END_SYN | (o->is_signed ? END_SIGNED : 0);
	c->signs[s->side & 1] = signs_heard(c->signs[s->side & 1], o->is_signed);
	e->first = s->seq;
	e->next = segment_next(s);
	c->acks[s->side & 1].sent = s->seq + 1;
	acks_begin(&c->acks[!s->side], s->seq + 1);
	e->mss = o->mss;
	e->port = port_id + 1;
	e->shift = o->shift;
}

static __always_inline __u8 opened_by(__u8 side) { return side ? CONNECTION_OPENED_BY_1 : 0; }

__noinline int on_syn(struct __sk_buff *ctx, struct segment *s)
{
	struct connection *c, *draft;
	struct tcp_options o = {};
	__u32 zero = 0;

	if (!s || !in_scope(ctx, s))
		return TABLE_NONE;
	c = bpf_map_lookup_elem(&pending, &s->key);
	if (c && c->end[s->side & 1].flags & END_SYN && c->end[s->side & 1].first == s->seq) { // sent again
		c->syn_ns = 0;
		if (scale == SCALE_UNIFY)
			unify_again(ctx, s, &c->end[s->side & 1]);
		return TABLE_NONE;
	}
	draft = bpf_map_lookup_elem(&drafts, &zero);
	if (!draft)
		return TABLE_NONE;
	segment_read_options(ctx, s, &o);
	__builtin_memset(draft, 0, sizeof(*draft));
	groups_begin(ctx, draft, s);
	end_from_syn(draft, s, &o);
	draft->syn_ns = bpf_ktime_get_ns();
	draft->flags = opened_by(s->side);
	// The SYN-ACK decides whether the scale counts. Until then END_SCALE with shift 0 means: no option.
	if (!o.has_scale)
		draft->end[s->side & 1].flags |= END_SCALE;
	if (scale == SCALE_UNIFY)
		unify_syn(ctx, s, &draft->end[s->side & 1], &o);
	bpf_map_update_elem(&pending, &s->key, draft, BPF_ANY);
	return TABLE_NONE;
}

// Reports whether the other end was seen, and this segment acknowledges what it sent.
static __always_inline int answers(const struct connection *c, const struct segment *s)
{
	const struct end *other = &c->end[!s->side];
	__u32 beyond = s->ack - other->next;

	if (!(s->flags & TCP_ACK) || !(other->flags & END_SEEN))
		return 0;
	if (other->flags & END_SYN) // data that came with a SYN need not be acknowledged (RFC 7413)
		return handshake_answers(s, other->first + 1);
	return beyond + ACK_ADOPT_MAX <= 2 * ACK_ADOPT_MAX;
}

static __always_inline void law_sees_mss(const struct connection *c, __u32 side)
{
	__u32 id = (__u32)c->end[side & 1].port - 1, mss = c->end[!(side & 1)].mss;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);

	if (!config || !port || mss <= port->law.mss_bytes)
		return;
	law_saw_mss(id, config, port, mss);
}

// Counts both directions of a connection whose handshake is complete, or that was adopted.
__noinline int connection_count(struct connection *c)
{
	if (!c)
		return 0;
	for (__u32 side = 0; side < 2; side++) {
		if (!c->end[side].port)
			continue;
		law_sees_mss(c, side);
		if (count == COUNT_HANDSHAKE)
			register_enter(c, side);
		else
			slot_take(c, side, c->end[side].port - 1);
	}
	return 0;
}

// Takes a place of a port's share; returns 0 if the share is full. The addition comes before the check: otherwise two
// CPUs could both take the last place.
static __always_inline int share_take(struct port *owner, const struct port_config *config)
{
	// The count may be below 0 after the id was given to another port.
	if ((__s32)__sync_fetch_and_add(&owner->owned, 1) < (__s32)config->flows_max)
		return 1;
	__sync_fetch_and_add(&owner->owned, -1);
	return 0;
}

// ---- adopted connections ----
//
// A sender has at most its window in flight. So the window that left here in the last ACKs, in bytes, is at least
// the bytes in flight: that gives a lower bound of its scale. The largest field of this sweep and of the sweep before
// counts. No round trip takes a sweep (250 ms), so the bytes in flight were sent under one of these fields. The bound is
// weak while windows are wide, and tight as soon as windows are limited, because senders then fill them.
//
// ACKs that left before the connection was adopted were not limited. So in the first two sweeps the fields count as
// they came: a receiver does not take back what it once granted.

#define ADOPT_SWEEPS 2
#define ADOPT_SLACK 1500 // bytes: a probe may be beyond the window

// Moves the fields of an adopted end on by one sweep.
static __always_inline void adopt_sweep(struct end *e)
{
	e->field_before = e->field;
	e->field = 0;
	if (e->sweeps < ADOPT_SWEEPS)
		e->sweeps++;
}

// Records that an acknowledgement left with this field.
static __always_inline void adopt_ack(struct end *e, const struct segment *s, __u16 field)
{
	if (e->sweeps < ADOPT_SWEEPS)
		field = s->window;
	if (field > e->field)
		e->field = field;
	// An ACK that was overtaken would show too many bytes in flight.
	if (!(e->flags & END_ACKED) || (__s32)(s->ack - e->acked) > 0)
		e->acked = s->ack;
	e->flags |= END_ACKED;
}

// Reports whether these bytes in flight exceed a window of this field and shift.
static __always_inline int adopt_exceeds(__u32 field, __u8 shift, __u32 in_flight)
{
	return shift < 14 && (field << (shift & 15)) + ADOPT_SLACK < in_flight;
}

// Returns the least shift, from this one on, that allows these bytes in flight.
__noinline int adopt_shift(__u32 field, __u32 shift, __u32 in_flight)
{
	for (int i = 0; i < 14 && adopt_exceeds(field, shift, in_flight); i++)
		shift++;
	return shift;
}

// Raises the scale of an end until its window allows the data that is sent to it. For ends whose scale is inferred.
static __always_inline void adopt_data(struct end *receiver, const struct segment *s)
{
	__u32 in_flight = segment_next(s) - receiver->acked;
	__u32 field = receiver->field > receiver->field_before ? receiver->field : receiver->field_before;

	if (!field || !(receiver->flags & END_ACKED) || in_flight > ACK_ADOPT_MAX)
		return;
	if (adopt_exceeds(field, receiver->shift, in_flight))
		receiver->shift = adopt_shift(field, receiver->shift, in_flight);
}

// Moves a connection from `pending` to the flow table. Returns 0 if the table or the port's share is full.
__noinline int connection_enter(struct segment *s, struct connection *c)
{
	__u32 id = port_id;
	struct port_counts *stats = bpf_map_lookup_elem(&counts, &id);
	struct control *control = control_of();
	struct port_config *config;
	struct port *owner;
	__u32 owner_id;
	long err;

	if (!s || !c || !stats)
		return 0;
	// The opening end is behind the port that the answers to it leave by.
	owner_id = (__u32)c->end[!(c->flags & CONNECTION_OPENED_BY_1)].port - 1;
	config = bpf_map_lookup_elem(&configs, &owner_id);
	owner = port_of(owner_id);
	// Two CPUs may enter it at once, and the first of them copies it. Both write the same here, and a CPU that
	// finds the share full writes nothing.
	if (config && owner) {
		if (!share_take(owner, config)) {
			stats->table_full++;
			return 0;
		}
		c->owner = owner_id + 1;
	} else {
		c->owner = 0;
	}
	if (count == COUNT_OPENING)
		connection_opened(c);
	c->seen = control ? control->sweep : 0;
	if (count != COUNT_HANDSHAKE && is_opener(c, s))
		handshake_ends(c);
	err = flow_add(&s->key, c);
	if (err) {
		if (owner && config)
			__sync_fetch_and_add(&owner->owned, -1);
		if (err == -EEXIST) // another CPU entered it
			return 1;
		c->owner = 0;
		stats->table_full++;
		return 0;
	}
	stats->opened++;
	if (c->flags & CONNECTION_ADOPTED)
		stats->adopted++;
	bpf_map_delete_elem(&pending, &s->key);
	c = flow_find(&s->key);
	if (!c)
		return 0;
	if (owner && config) // a CPU that found the table full may have taken it from what this one copied
		c->owner = owner_id + 1;
	connection_count(c);
	return 1;
}

// Reports whether a new connection with the same ends may replace this one of the table. A connection that was seen in
// this sweep stays, unless it has ended: otherwise somebody who forges the SYNs of both ends could take its place.
static __always_inline int connection_gives_way(const struct connection *old)
{
	struct control *control = control_of();

	return connection_is_closed(old) || (control && old->seen != control->sweep);
}

// Gives the table that the connection now is in, if any.
__noinline int on_syn_ack(struct __sk_buff *ctx, struct segment *s)
{
	struct connection *c, *old, *draft;
	struct tcp_options o = {};
	struct end *opener, *e;
	__u32 zero = 0;

	if (!s)
		return TABLE_NONE;
	if (!in_scope(ctx, s))
		return TABLE_OUT_OF_SCOPE;
	c = bpf_map_lookup_elem(&pending, &s->key);
	old = flow_find(&s->key);
	if (!c && old && !connection_is_closed(old)) {
		if (old->end[s->side & 1].first != s->seq)
			return TABLE_NONE; // forged
		old->syn_ns = 0;
		if (scale == SCALE_UNIFY)
			unify_again(ctx, s, &old->end[s->side & 1]);
		return TABLE_FLOWS;
	}
	if (!c) { // the SYN passed before Weir was attached, or took another path
		draft = bpf_map_lookup_elem(&drafts, &zero);
		if (!draft)
			return TABLE_NONE;
		__builtin_memset(draft, 0, sizeof(*draft));
		draft->flags = CONNECTION_ADOPTED | opened_by(!s->side);
		groups_begin(ctx, draft, s);
		draft->acks[!s->side].sent = s->ack;
		acks_begin(&draft->acks[s->side & 1], s->ack);
		bpf_map_update_elem(&pending, &s->key, draft, BPF_ANY);
		c = bpf_map_lookup_elem(&pending, &s->key);
	}
	if (!c)
		return TABLE_NONE;
	opener = &c->end[!s->side];
	e = &c->end[s->side & 1];
	if (opener->flags & END_SYN && !answers(c, s))
		return TABLE_NONE;
	if (old && !connection_gives_way(old))
		return TABLE_NONE;
	if (e->flags & END_SYN && e->flags & END_SCALE && e->first == s->seq) { // sent again
		c->syn_ns = 0;
		if (scale == SCALE_UNIFY)
			unify_again(ctx, s, e);
		if (count == COUNT_OPENING)
			connection_opens(c);
		return TABLE_PENDING;
	}
	segment_read_options(ctx, s, &o);
	c->flags = (c->flags & ~CONNECTION_OPENED_BY_1) | opened_by(!s->side);
	end_from_syn(c, s, &o);
	e->flags |= END_SCALE; // a SYN-ACK has the option only if the SYN had it (RFC 7323 1.3)
	if (!handshake_scales(!(opener->flags & END_SYN) || !(opener->flags & END_SCALE), &o)) {
		e->shift = opener->shift = 0;
		opener->flags |= END_SCALE;
	}
	if (opener->flags & END_SYN) {
		opener->flags |= END_SCALE;
		signed_by_syns(c);
	}
	if (scale == SCALE_UNIFY)
		unify_syn_ack(ctx, s, opener, e, &o);
	if (old) // the acceptor sends a SYN-ACK only if the older connection of these ends is gone
		connection_remove(&s->key, old);
	if (count == COUNT_HANDSHAKE)
		return connection_enter(s, c) ? TABLE_FLOWS : TABLE_NONE;
	if (count == COUNT_OPENING)
		connection_opens(c);
	return TABLE_PENDING;
}

// Reports whether a segment can belong to the connection that its sender's SYN began. It cannot if the SYN was forged
// for ends that have a connection already: that connection would otherwise stay out of the table for good. With unify,
// an entry is kept if its SYNs were rewritten, because the ends use the announced scale.
static __always_inline int follows_syn(const struct connection *c, const struct segment *s)
{
	const struct end *e = &c->end[s->side & 1];

	if (!(e->flags & END_SYN) || (c->end[0].flags | c->end[1].flags) & END_UNIFIED)
		return 1;
	return s->seq - e->first <= SYN_REACH;
}

// Handles a segment, not a SYN, of a connection that is not in the flow table: it may complete a handshake, or belong to
// a connection older than Weir. Returns the table that the connection is in afterwards.
__noinline int on_unknown(struct __sk_buff *ctx, struct segment *s)
{
	struct connection *c, *draft;
	__u32 zero = 0;
	struct end *e;

	if (!s)
		return TABLE_NONE;
	if (!in_scope(ctx, s))
		return TABLE_OUT_OF_SCOPE;
	c = bpf_map_lookup_elem(&pending, &s->key);
	if (s->flags & TCP_RST) {
		if (c && count == COUNT_OPENING)
			connection_opened(c);
		if (c)
			bpf_map_delete_elem(&pending, &s->key);
		return TABLE_NONE;
	}
	if (!c || !follows_syn(c, s)) {
		draft = bpf_map_lookup_elem(&drafts, &zero);
		if (!draft)
			return TABLE_NONE;
		__builtin_memset(draft, 0, sizeof(*draft));
		draft->flags = CONNECTION_ADOPTED | opened_by(s->side);
		groups_begin(ctx, draft, s);
		bpf_map_update_elem(&pending, &s->key, draft, BPF_ANY);
		c = bpf_map_lookup_elem(&pending, &s->key);
		if (!c)
			return TABLE_NONE;
	}
	e = &c->end[s->side & 1];
	groups_hear(c, s);
	signature_counts(ctx, s, c);
	if (!(e->flags & END_SYN)) {
		e->next = segment_next(s);
		e->flags |= END_SEEN;
		if (s->payload || !e->port)
			e->port = port_id + 1;
	}
	if (!answers(c, s)) {
		groups_alone(c, s);
		return assumes_port(ctx, s, c) ? TABLE_PENDING : TABLE_NONE;
	}
	if (connection_enter(s, c))
		return TABLE_FLOWS;
	// There is no room: it passes, but the scale that its ends were sent is kept.
	return scale == SCALE_UNIFY && (c->end[0].flags | c->end[1].flags) & END_UNIFIED ? TABLE_PENDING : TABLE_NONE;
}

#endif
