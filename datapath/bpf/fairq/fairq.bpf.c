// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairQ on the ports of a Linux switch: a tcx egress program around core/fairq/fairq.h and core/window.h.
//
// One instance of the program runs on each port. Its port is a constant of the instance, an index into
// the array maps: an ifindex collides across namespaces. The instances of one switch share the maps.
//
//   data        gives its direction a slot at this port (data.h): so the port is learnt, and the flow is counted
//   ACK         is limited to the window of the port that the acknowledged data leaves by (ack.h)
//   SYN, FIN    begin and end a connection (connection.h)
//   signed      TCP-MD5 and TCP-AO segments pass unchanged, or as `signed_mode` says (signed.h)
//
// A timer for each port samples its queue (port.h). The program drops signed segments if the operator configured it,
// and no other packet.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "ack.h"
#include "canary.h"
#include "connection.h"
#include "control.h"
#include "credit_park.h"
#include "data.h"
#include "edge_mode.h"
#include "flows.h"
#include "port.h"
#include "slots.h"
#include "../lib/counts.h"
#include "../lib/segment.h"
#include "signed.h"
#include "sweep.h"
#include "table.h"

char _license[] SEC("license") = WEIR_LICENSE;

// Reads the headers with a stack of its own: with a trace, the functions that fairq_packet calls need more of it.
__noinline int segment_read_apart(struct __sk_buff *ctx, struct segment *s)
{
	return s ? segment_read(ctx, s) : SEGMENT_SHORT;
}

// Reports whether a packet must sample in the timer's place. A function of its own, because few packets call it.
__noinline int timer_is_late(__u32 id)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	__u64 now, before;

	if (!config || !port)
		return 0;
	now = bpf_ktime_get_ns();
	before = port->looked_ns;
	port->looked_ns = now;
	if (!law_may_sample(id, config, port, now) || port_rests_empty(id, config, port, now))
		return 0;
	// The looks since the last sample found the queue empty. Else they would count as what this one finds.
	if (!port->backlog && (__s64)(now - before) > 0 && fairq_packet_may_sample(&config->law, &port->law, before))
		port_tick(id, 1, before);
	return 1;
}

// Reports whether a packet must check the timer: every 16th. So a timer that stalls does not
// stop the law, and a timer may rest, which costs less.
static __always_inline int is_sixteenth(__u64 seen, __u64 packets) { return ((seen ^ (seen - packets)) & ~15ull) != 0; }

// Returns the connection of a segment, NULL if it is in no table. Records what SYNs announce.
static __always_inline struct connection *connection_of(struct __sk_buff *ctx, struct segment *s, int *table)
{
	struct connection *c;

	if (likely(!(s->flags & TCP_SYN))) {
		c = flow_find(&s->key);
		if (likely(c))
			return c;
		*table = on_unknown(ctx, s);
	} else if (s->flags & TCP_ACK) {
		*table = on_syn_ack(ctx, s);
	} else {
		*table = on_syn(ctx, s);
	}
	if (*table == TABLE_FLOWS)
		return flow_find(&s->key);
	if (*table == TABLE_PENDING)
		return bpf_map_lookup_elem(&pending, &s->key);
	return NULL;
}

// Handles the first segment of a connection in this sweep. A function of its own, because few packets call it.
__noinline int connection_sweeps(struct connection *c, __u32 sweep)
{
	__u32 sweeps;

	if (!c)
		return 0;
	sweeps = sweep - c->seen;
	c->seen = sweep;
	for (int side = 0; side < 2; side++) {
		flight_sweep(&c->acks[side], sweeps);
		adopt_sweep(&c->end[side]);
		c->signs[side] = signs_later(c->signs[side]);
	}
	return 0;
}

// Handles a segment whose connection is in no table. Returns the program's verdict.
static __always_inline int on_no_connection(struct __sk_buff *ctx, struct segment *s, struct port_counts *stats,
					    __u64 packets, int out_of_scope)
{
	if (signed_mode == SIGNED_DROP && !out_of_scope && on_signed_unknown(ctx, s, packets)) {
		stats->dropped += packets;
		return TCX_DROP;
	}
	if (!acknowledges(s))
		stats->no_ack += packets;
	else if (out_of_scope)
		stats->out_of_scope += packets;
	else
		stats->unknown += packets;
	return TCX_NEXT;
}

// credit: promises and credits (credit.h); a constant, so that the program without them has no code of them.
static __always_inline int fairq_packet(struct __sk_buff *ctx, const int credit)
{
	__u32 id = port_id, edge;
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct port_counts *stats = bpf_map_lookup_elem(&counts, &id);
	struct control *control = control_of();
	__u64 packets = packets_of(ctx);
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct segment s;
	struct connection *c;
	enum segment_kind kind;
	__u16 field;
	int table = TABLE_NONE, left, parks = 0, belongs = 1;

	if (unlikely(!port || !stats || !control))
		return TCX_NEXT;
	kind = LAW_TRACED ? segment_read_apart(ctx, &s) : segment_read(ctx, &s);
	if (credit && park_is_return(ctx)) // it was handled before it waited
		return kind == SEGMENT_TCP ? credit_return(ctx, &s) : TCX_NEXT;
	stats->seen += packets;
	if (unlikely(port->device != (__u64)skb->dev))
		port->device = (__u64)skb->dev;
	if (unlikely(is_sixteenth(stats->seen, packets)) && port->running && timer_is_late(id))
		port_tick(id, 1, 0);
	if (unlikely(kind != SEGMENT_TCP)) {
		if (credit && credit_may_count(port))
			credit_uncredited(ctx);
		count_not_tcp(&stats->not_tcp, kind, packets);
		return TCX_NEXT;
	}
	c = connection_of(ctx, &s, &table);
	if (credit && (!c || !s.payload) && credit_may_count(port))
		credit_uncredited(ctx);
	if (unlikely(!c))
		return on_no_connection(ctx, &s, stats, packets, table == TABLE_OUT_OF_SCOPE);
	if (unlikely(c->seen != control->sweep)) {
		connection_sweeps(c, control->sweep);
		if (!in_scope(ctx, &s)) { // the scope has changed since the connection was entered
			connection_remove(&s.key, c);
			return on_no_connection(ctx, &s, stats, packets, 1);
		}
	}
	if (unlikely(!(c->flags & CONNECTION_BARE)) && on_signed(ctx, &s, c, packets)) {
		stats->dropped += packets;
		return TCX_DROP;
	}
	if (credit) {
		belongs = credit_belongs(&s, c) || credit_strays(&s, c);
		s.is_stranger = !belongs;
	}
	if (s.payload && likely(c->owner)) // only connections in the table count, also if their SYN carries data
		on_data(ctx, &s, c, port, id, stats, packets, control->watched, belongs);
	if (unlikely(s.flags & (TCP_FIN | TCP_RST)))
		on_end(&s, c);
	if (unlikely(!acknowledges(&s))) {
		stats->no_ack += packets;
		return TCX_NEXT;
	}
	if (unlikely(c->syn_ns) && count == COUNT_HANDSHAKE && is_opener(c, &s))
		handshake_ends(c);
	if (credit && belongs)
		parks = credit_first(ctx, &s, c, table);
	if (credit && parks)
		parks = credit_ack(ctx, &s, c, parks);
	edge = edge_interval;
	left = edge ? edge_leaves(&s, c, stats, packets) : -1;
	if (left >= 0)
		field = left;
	else if (edge || LAW_TRACED || credit)
		field = credit ? on_ack_credit(ctx, &s, c, stats, packets) : on_ack_apart(ctx, &s, c, stats, packets);
	else
		field = on_ack(ctx, &s, c, stats, packets, control->watched, 0, 0);
	if (unlikely(!(c->end[s.side & 1].flags & END_SCALE)))
		adopt_ack(&c->end[s.side & 1], &s, field);
	if (credit && parks)
		return credit_parks(ctx, parks, c, s.side);
	return credit && unlikely(credit_may_keep(ctx)) ? credit_keeps(ctx, &s) : TCX_NEXT;
}

SEC("tcx/egress")
int weir_fairq(struct __sk_buff *ctx)
{
	return fairq_packet(ctx, 0);
}

// The same with promises and credits. User space attaches one of the two.
SEC("tcx/egress")
int weir_fairq_credit(struct __sk_buff *ctx)
{
	return fairq_packet(ctx, 1);
}
