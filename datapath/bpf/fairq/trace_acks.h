// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The acknowledgements of a trace (trace.h).
#ifndef WEIR_BPF_TRACE_ACKS_H
#define WEIR_BPF_TRACE_ACKS_H

#include "trace_records.h"

struct asked {
	struct law_ack *record; // NULL: no port governs the ACK, or the ring is full
	struct law_order *order;
	struct end seen; // the ACK's end as it was recorded
};

static __always_inline void asked_end(struct law_end *to, const struct end *e)
{
	to->edge_advertised = e->edge_advertised;
	to->edge_advertised_at = e->edge_advertised_at;
	to->upstream_at = e->upstream_at;
	to->upstream = e->upstream;
	to->mss = e->mss;
	to->shift = e->shift;
	to->announced = e->announced;
	to->flags = e->flags;
}

// Takes the port's lock until asked_grants: the grant is read under it, together with its number in the order.
static __always_inline void asked_begins(struct asked *asked, __u32 id, struct port *port)
{
	struct law_ack *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	asked->order = order_of(id);
	asked->record = record;
	if (record) {
		__builtin_memset(record, 0, sizeof(*record));
		record->head.port = id;
		record->head.record = RECORD_ACK;
		record->count = count;
	}
	bpf_spin_lock(&port->lock);
}

static __always_inline void asked_grants(struct asked *asked, const struct port_config *config, struct port *port,
					 const struct granted *granted)
{
	struct law_ack *record = asked->record;
	__u64 number = 0;

	if (asked->order)
		number = ++asked->order->number;
	bpf_spin_unlock(&port->lock);
	if (!record)
		return;
	record->head.number = number;
	config_copy(&record->config, config);
	record->granted = *granted;
}

// Records the ACK and its end before the decision. shift: the scale that the program uses, which may differ from the
// end's.
static __always_inline void asked_about(struct asked *asked, const struct segment *s, const struct connection *c,
					__u32 shift, __u64 now, int live, __u64 packets)
{
	struct law_ack *record = asked->record;
	const struct end *sender = &c->end[!s->side];

	if (!record)
		return;
	asked->seen = c->end[s->side & 1];
	asked_end(&record->end, &asked->seen);
	if (!(record->end.flags & END_UNIFIED))
		record->end.shift = shift;
	record->before = c->acks[s->side & 1].edge;
	record->after = record->before;
	record->now_ns = now;
	record->ack = s->ack;
	record->bucket = c->bucket;
	record->packets = packets;
	record->own = s->window;
	record->gso = sender->gso;
	record->syn = !!(s->flags & TCP_SYN);
	record->shrink = shrink;
	record->apart = !sender->port;
	record->live = live;
}

// Records the promise from which promises and credits limit an ACK. Call it under the port's lock.
static __always_inline __u32 asked_promised(struct asked *asked, __u32 promise)
{
	if (asked->record) {
		asked->record->promise = promise;
		asked->record->credit = 1;
	}
	return promise;
}

// Returns the end from which edge mode decides about an ACK: the recorded copy. An ACK of the same end on another CPU may
// change the end between the record and the decision, and the trace would then name another input than the decision had.
static __always_inline struct end *asked_sees(struct asked *asked, struct end *e)
{
	return asked->record ? &asked->seen : e;
}

// Copies what edge mode changed in the recorded end to the connection's.
static __always_inline void asked_keeps(const struct asked *asked, struct end *e)
{
	if (!asked->record)
		return;
	e->edge_advertised = asked->seen.edge_advertised;
	e->edge_advertised_at = asked->seen.edge_advertised_at;
	e->upstream_at = asked->seen.upstream_at;
	e->upstream = asked->seen.upstream;
}

// Records the inputs of edge mode, and whether the ACK advertises.
static __always_inline void asked_edge(struct asked *asked, const struct edge_ack *a, int advertises)
{
	struct law_ack *record = asked->record;

	if (!record)
		return;
	record->edge_config.interval = edge_interval;
	record->edge_config.lease = edge_lease;
	record->edge_config.change = edge_change;
	record->clock = a->now;
	record->flagged = a->flagged;
	record->advertises = advertises;
}

// Returns the edge from which an ACK is decided: the recorded copy. An ACK of the same end on another CPU may change the connection's.
static __always_inline struct window_edge *asked_edge_before(struct asked *asked, struct window_edge *edge)
{
	return asked->record ? &asked->record->after : edge;
}

// Copies the edge after the decision to the connection's.
static __always_inline void asked_edge_after(struct asked *asked, struct window_edge *edge)
{
	if (asked->record)
		*edge = asked->record->after;
}

static __always_inline void asked_law(struct asked *asked, const struct window_ack *window, __u16 field)
{
	if (!asked->record)
		return;
	asked->record->called = 1;
	asked->record->floor = window->floor_bytes;
	asked->record->law = field;
}

static __always_inline void asked_ends(struct asked *asked, const struct segment *s, const struct connection *c,
				       __u16 left, __u16 wire, int leaves)
{
	struct law_ack *record = asked->record;
	__u8 shift = record->end.shift;

	asked_end(&record->end_after, &asked->seen);
	record->end_after.shift = shift;
	record->left = left;
	record->leaves = leaves;
	record->wire = wire;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// Records that the ACK leaves with the field `left`, and the field that is in the packet.
static __always_inline void asked_reported(struct asked *asked, struct __sk_buff *ctx, const struct segment *s,
				       const struct connection *c, __u16 left)
{
	__be16 wire = 0;

	if (!asked->record) {
		law_lost(asked->order);
		return;
	}
	bpf_skb_load_bytes(ctx, s->l4 + TCP_WINDOW, &wire, sizeof(wire));
	asked_ends(asked, s, c, left, bpf_ntohs(wire), LEFT_WRITTEN);
}

// Records that the ACK passes unchanged, or is not left to the edge (enum law_left).
static __always_inline void asked_left(struct asked *asked, const struct segment *s, const struct connection *c, int leaves)
{
	if (asked->record)
		asked_ends(asked, s, c, s->window, s->window, leaves);
	else
		law_lost(asked->order);
}

#endif
