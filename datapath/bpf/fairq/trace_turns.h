// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The turns of a trace (trace.h): the steps under a port's lock.
#ifndef WEIR_BPF_TRACE_TURNS_H
#define WEIR_BPF_TRACE_TURNS_H

#include "trace_records.h"

// Record and order are looked up before the lock is taken: no helper can be called under it.
struct turn {
	struct law_turn *record; // NULL: the ring is full
	struct law_order *order;
};

static __always_inline void turn_begins(struct turn *turn, __u32 id, __u32 event)
{
	struct law_turn *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	turn->order = order_of(id);
	turn->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, offsetof(struct law_turn, after));
	record->head.port = id;
	record->head.record = RECORD_TURN;
	record->event = event;
	record->count = count;
}

// Records the inputs of the turn. Call it first under the lock.
static __always_inline void turn_hears(struct turn *turn, const struct port_config *config, const struct port *port,
				       __u64 now, __u32 value, int live, int readable)
{
	struct law_turn *record = turn->record;

	if (!record)
		return;
	record->now_ns = now;
	record->value = value;
	record->live = live;
	record->readable = readable;
	config_copy(&record->config, config);
}

// Records the result of the turn. Call it last under the lock.
static __always_inline void turn_ends(struct turn *turn, const struct port_config *config, const struct port *port)
{
	struct law_turn *record = turn->record;
	__u64 number = 0;

	if (turn->order)
		number = ++turn->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->torn = config_differs(&record->config, config);
	record->running = port->running;
	record->pacing = port->pacing;
	// Packets write port->data_seen without the lock. The value that the tick read follows from data_ns.
	record->data_seen = record->event == TURN_TICKED && port->data_ns == port->ticked_ns;
	__builtin_memcpy(record->after, &port->grant_q8, sizeof(record->after));
}

static __always_inline void turn_reported(struct turn *turn)
{
	if (turn->record)
		bpf_ringbuf_submit(turn->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(turn->order);
}

// A function of its own, so that the verifier checks it once: its caller is inlined into a loop.
__noinline int law_hears_mss(__u32 id, __u32 mss)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct turn turn;

	if (!config || !port)
		return 0;
	turn_begins(&turn, id, TURN_SAW_MSS);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, 0, mss, 0, 0);
	fairq_saw_mss(&config->law, &port->law, mss);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_reported(&turn);
	return 0;
}

#define law_saw_mss(id, config, port, mss) law_hears_mss(id, mss)

#endif
