// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The events of the test vectors of core/arrivals.h, bucket.h, grant.h and repair.h, and of core/fairq/slots.h, release.h, groups.h and
// edge.h, for both worlds: configuration, state, and the arguments of an event stand in one struct, which the event changes.
// Each function gives 0, or 1 if it does not know the
// event.
#ifndef WEIR_COREVEC_EVENTS_H
#define WEIR_COREVEC_EVENTS_H

#include "../../core/types.h"

struct weir_world;
struct port;
WEIR_INLINE struct port *event_port(struct weir_world *world, weir_u32 id);
#define WEIR_PORT(world, id) event_port(world, id)

#include "../../core/fairq/credit.h"
#include "../../core/bucket.h"
#include "../../core/arrivals.h"
#include "../../core/fairq/edge.h"
#include "../../core/fairq/groups.h"
#include "../../core/fairq/release.h"
#include "../../core/fairq/slots.h"
#include "../../core/grant.h"
#include "../../core/repair.h"

enum {
	SLOTS_TAKE = 1,
	SLOTS_LEAVE,
	SLOTS_TURN,
	SLOTS_HEARS,
	SLOTS_OPEN,
	SLOTS_OPENED,
	SLOTS_REGISTER,
	SLOTS_UNREGISTER,
	SLOTS_SENDS,
	SLOTS_FINISHES,
	SLOTS_FLOWS,
	SLOTS_OPENINGS,
	RELEASE_TICK,
	RELEASE_RECOUNT,
	RELEASE_LIMIT,
	RELEASE_STOP,
	RELEASE_REUSE,
	RELEASE_LEASE,
	GROUPS_GRANT,
	GROUPS_FLOOR,
	GROUPS_ASSUME,
	GROUPS_ADVERTISES,
	EDGE_DUE,
	EDGE_ADVERTISE,
	EDGE_LEFT,
	EDGE_SYN,
	EDGE_ANSWER,
	EDGE_ACKED,
	RELEASE_PACE,
	GRANT_ADD,
	GRANT_RATE,
	GRANT_FIELD,
	GRANT_RELEASED,
	GRANT_BIT,
	BUCKET_CLASS,
	BUCKET_CHANGES,
	BUCKET_BURST,
	BUCKET_QUANTUM,
	BUCKET_LIMIT,
	ARRIVALS_SEE,
	ARRIVALS_MATTER,
	REPAIR_DECIDE,
	REPAIR_WAITS,
	REPAIR_AGAIN,
};

// One direction of a connection, and two ports.
struct slots_event {
	struct port_config config;
	struct end end;
	struct port port[2];
	weir_u64 now_ns;
	weir_u32 id;
	weir_u32 behind;
	weir_u32 count;
	weir_u32 event;
	weir_u64 result;
};

WEIR_INLINE struct port *event_port(struct weir_world *world, weir_u32 id)
{
	struct slots_event *e = (struct slots_event *)world;

	return id < 2 ? &e->port[id] : 0;
}

WEIR_INLINE int slots_run(struct slots_event *e)
{
	struct weir_world *world = (struct weir_world *)e;
	weir_u32 id = e->id & 1, registration;
	struct port *port = &e->port[id];
	weir_u8 count = (weir_u8)e->count;

	e->result = 0;
	switch (e->event) {
	case SLOTS_TAKE:
		e->result = slots_take(world, &e->end, port, id, count);
		return 0;
	case SLOTS_LEAVE:
		slots_leave(world, &e->end);
		return 0;
	case SLOTS_TURN:
		port_turn(&e->config, port, e->now_ns);
		return 0;
	case SLOTS_HEARS:
		port_hears(&e->config, port, count, e->now_ns);
		return 0;
	case SLOTS_OPEN:
		opening_leave(world, &e->end);
		e->end.registration = opening_comes(&e->config, port, e->now_ns);
		e->end.registered_at = (weir_u16)id;
		return 0;
	case SLOTS_OPENED:
		opening_leave(world, &e->end);
		return 0;
	case SLOTS_REGISTER:
		e->result = register_wants(port, &e->end);
		if (e->result)
			register_comes(port, &e->end, id);
		return 0;
	case SLOTS_UNREGISTER:
		registration = WEIR_SWAP(&e->end.registration, 0);
		if (registration)
			register_goes(&e->port[e->end.registered_at & 1], registration);
		return 0;
	case SLOTS_SENDS:
		end_sends(&e->end, e->behind);
		e->result = register_lapsed(port, &e->end, id);
		return 0;
	case SLOTS_FINISHES:
		e->result = end_finishes(&e->end, e->behind);
		return 0;
	case SLOTS_FLOWS:
		e->result = port_flows(port, count);
		return 0;
	case SLOTS_OPENINGS:
		e->result = port_openings(&e->config, port, e->now_ns);
		return 0;
	}
	return 1;
}

struct release_event {
	struct port_config config;
	struct port port;
	weir_u64 now_ns;
	weir_u64 heartbeat_ns;
	weir_u64 lease_ns;
	weir_u64 gap_ns;
	weir_u32 backlog_bytes;
	weir_u32 live;
	weir_u32 readable;
	weir_u32 count;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

WEIR_INLINE int release_run(struct release_event *e)
{
	weir_u8 count = (weir_u8)e->count;

	e->result = 0;
	switch (e->event) {
	case RELEASE_TICK:
		e->result = port_ticked(&e->config, &e->port, count, e->live != 0, e->now_ns, e->backlog_bytes, e->readable != 0);
		return 0;
	case RELEASE_RECOUNT:
		e->result = port_recounted(&e->config, &e->port, count, e->live != 0, e->now_ns);
		return 0;
	case RELEASE_LIMIT:
		e->result = port_must_limit(&e->config, &e->port);
		port_limited(&e->config, &e->port, e->gap_ns);
		return 0;
	case RELEASE_STOP:
		port_stopped(&e->port);
		return 0;
	case RELEASE_REUSE:
		port_reused(&e->port);
		return 0;
	case RELEASE_PACE:
		e->result = port_must_pace(&e->config, &e->port, e->live != 0);
		port_paces(&e->config, &e->port, (int)e->result);
		return 0;
	case RELEASE_LEASE:
		e->result = lease_is_live(!e->live, e->heartbeat_ns, e->lease_ns, e->now_ns);
		return 0;
	}
	return 1;
}

struct groups_event {
	struct port_config config;
	struct port port;
	struct granted granted;
	weir_u64 now_ns;
	weir_u32 bucket;
	weir_u32 opening; // 1: a SYN-ACK, with count: opening
	weir_u32 live;
	weir_u32 apart; // 1: its data takes another of the equal paths
	weir_u32 mss_option_bytes;
	weir_u32 gso_size_bytes;
	weir_u32 receiver_flags;
	weir_u32 sender_flags;
	weir_u32 sender_port;
	weir_u32 event;
	weir_u64 result;
};

WEIR_INLINE int groups_run(struct groups_event *e)
{
	struct end receiver = {.flags = (weir_u8)e->receiver_flags};
	struct end sender = {.flags = (weir_u8)e->sender_flags, .port = (weir_u16)e->sender_port};

	e->result = 0;
	switch (e->event) {
	case GROUPS_GRANT:
		e->result = e->opening && port_limits_opening(&e->config, &e->port, e->live != 0);
		grant_of(&e->config, &e->port, e->bucket, e->result != 0, grant_divisor(&e->config, !e->apart), e->now_ns,
			 &e->granted);
		return 0;
	case GROUPS_FLOOR:
		e->result = grant_floor(&e->config, e->mss_option_bytes, e->gso_size_bytes);
		return 0;
	case GROUPS_ASSUME:
		e->result = end_may_assume(&receiver, &sender);
		return 0;
	case GROUPS_ADVERTISES:
		e->result = grant_advertises(&e->port, e->bucket, &e->granted);
		return 0;
	}
	return 1;
}

// A switch's part, and that of the edge: of the ACKs that side 1 sends.
struct edge_event {
	struct edge_config config;
	struct edge_rules rules;
	struct end end;
	struct edge_handshake handshake;
	struct edge_window window;
	struct edge_ack ack;
	struct syn syn;
	weir_u32 number; // acknowledged
	weir_u32 field;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

WEIR_INLINE int edge_run(struct edge_event *e)
{
	struct edge_window begins = {0};

	e->result = 0;
	switch (e->event) {
	case EDGE_DUE:
		e->result = edge_is_due(&e->config, &e->end, &e->ack);
		return 0;
	case EDGE_ADVERTISE:
		e->result = edge_advertises(&e->config, &e->end, &e->ack, (weir_u16)e->field);
		return 0;
	case EDGE_LEFT:
		e->result = edge_left(&e->end, e->ack.field, e->ack.shift);
		return 0;
	case EDGE_SYN:
		e->result = syn_asks(&e->handshake.seen, &e->syn);
		return 0;
	case EDGE_ANSWER:
		e->result = syn_answered(&e->handshake.seen, &e->syn);
		if (!e->result)
			return 0;
		edge_begins(&e->handshake, e->syn.side, e->syn.ack, (weir_u16)e->field);
		edge_enters(&begins, &e->handshake, 1);
		e->window = begins;
		return 0;
	case EDGE_ACKED:
		if (e->ack.flagged)
			e->result = edge_hears(&e->rules, &e->window, e->number, e->ack.field, e->ack.now);
		else if (edge_remembers(&e->rules, &e->window, e->ack.now))
			e->result = edge_limits(&e->rules, &e->window, e->number, e->ack.field);
		else if (e->rules.shrink == WINDOW_SHRINK_AVOID && e->window.known)
			edge_passes(&e->window.edge, e->window.shift, e->number, e->ack.field);
		return 0;
	}
	return 1;
}

// One grant with its owner, and the minimum so far.
struct grant_event {
	struct grant_least least;
	struct grant grant;
	struct grant_owner owner;
	struct window_ack ack;
	weir_u64 now_ns;
	weir_u64 bps;
	weir_u32 address; // its last word
	weir_u32 ports;
	weir_u32 mss;
	weir_u32 mss_max;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

struct arrivals_event {
	struct arrivals_config config;
	struct arrivals_flow flow;
	struct arrivals_packet packet;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

WEIR_INLINE int grant_run(struct grant_event *e)
{
	e->result = 0;
	switch (e->event) {
	case GRANT_ADD:
		grant_add(&e->least, &e->grant, &e->owner, e->now_ns);
		e->result = grant_is_valid(&e->grant, &e->owner, e->now_ns);
		return 0;
	case GRANT_RATE:
		e->result = grant_rate(e->bps, &e->grant, &e->owner, e->now_ns);
		return 0;
	case GRANT_FIELD:
		e->result = grant_field(&e->least, &e->ack, e->mss, e->mss_max);
		return 0;
	case GRANT_RELEASED:
		e->result = released_after(e->bps, e->now_ns);
		return 0;
	case GRANT_BIT:
		e->result = grant_bit(e->address, e->ports);
		return 0;
	}
	return 1;
}

struct bucket_event {
	weir_u64 bps;
	weir_u64 has_bps;
	weir_u32 limited;
	weir_u32 relaxed;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

WEIR_INLINE int bucket_run(struct bucket_event *e)
{
	e->result = 0;
	switch (e->event) {
	case BUCKET_CLASS:
		e->result = bucket_class(e->bps, e->limited, e->relaxed);
		return 0;
	case BUCKET_CHANGES:
		e->result = bucket_changes(e->has_bps, e->bps);
		return 0;
	case BUCKET_BURST:
		e->result = bucket_burst(e->bps);
		return 0;
	case BUCKET_QUANTUM:
		e->result = bucket_quantum(e->bps);
		return 0;
	case BUCKET_LIMIT:
		e->result = bucket_limit(e->bps);
		return 0;
	}
	return 1;
}

WEIR_INLINE int arrivals_run(struct arrivals_event *e)
{
	e->result = 0;
	switch (e->event) {
	case ARRIVALS_SEE:
		e->result = arrivals_see(&e->config, &e->flow, &e->packet);
		return 0;
	case ARRIVALS_MATTER:
		e->result = arrivals_matter(e->packet.payload, e->packet.flags);
		return 0;
	}
	return 1;
}

struct repair_event {
	struct repair_config config;
	struct repair_flow flow;
	weir_u64 back_ns;
	weir_u64 now_ns;
	weir_u32 backlog_bytes;
	weir_u32 parked_bytes;
	weir_u32 bytes;
	weir_u32 is_tcp;
	weir_u32 waits;
	weir_u32 event;
	weir_u64 waited_ns;
	weir_u64 result;
};

WEIR_INLINE int repair_run(struct repair_event *e)
{
	switch (e->event) {
	case REPAIR_DECIDE:
		e->result = repair_decide(&e->config, e->backlog_bytes, e->parked_bytes, e->bytes, e->is_tcp != 0, e->waits != 0);
		return 0;
	case REPAIR_WAITS:
		e->result = repair_waits(&e->flow, e->back_ns, e->now_ns) != 0;
		return 0;
	case REPAIR_AGAIN:
		e->result = repair_again(&e->config, e->backlog_bytes, e->bytes, e->waits != 0, e->waited_ns) != 0;
		return 0;
	}
	return 1;
}

#endif
