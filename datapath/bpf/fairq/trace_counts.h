// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The counts of a trace (trace.h): a direction enters or leaves the count of a port.
#ifndef WEIR_BPF_TRACE_COUNTS_H
#define WEIR_BPF_TRACE_COUNTS_H

#include "trace_records.h"

struct count_told {
	struct law_count *record;
	struct law_order *order;
};

static __always_inline void count_begins(struct count_told *told, __u32 id, __u32 event)
{
	struct law_count *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	told->order = order_of(id);
	told->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->head.port = id;
	record->head.record = RECORD_COUNT;
	record->event = event;
	record->count = count;
}

// Records the result of a count. Call it last under the lock.
static __always_inline void count_ends(struct count_told *told, const struct port_config *config,
				       const struct port *port, __u64 now, __u64 answer)
{
	struct law_count *record = told->record;
	__u64 number = 0;

	if (told->order)
		number = ++told->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->now_ns = now;
	record->epoch_ns = config ? config->epoch_ns : 0;
	record->answer = answer;
	record->flows = port->registered;
}

static __always_inline void count_is_told(struct count_told *told)
{
	if (told->record)
		bpf_ringbuf_submit(told->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(told->order);
}

__noinline int law_counts(struct law_count *record)
{
	struct law_order *order;

	if (!record)
		return 0;
	order = order_of(record->head.port);
	record->head.record = RECORD_COUNT;
	record->count = count;
	if (bpf_ringbuf_output(&law_records, record, sizeof(*record), BPF_RB_NO_WAKEUP))
		law_lost(order);
	return 0;
}

__noinline int law_seat_taken(__u32 id, __u32 number, __u64 old, __u64 new, __u32 answers)
{
	struct law_count record = {.head = {.number = number, .port = id}, .old = old, .new = new};

	record.event = COUNT_SEAT_TAKEN;
	record.counted = answers >> 1;
	record.answer = answers & 1;
	return law_counts(&record);
}

// Returns the number of the record, cut to 32 bits: the verifier allows a global function no wider result.
__noinline int law_seat_comes(__u32 id, __u64 seat)
{
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);
	__u64 number;

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	seat_comes(port, seat);
	number = ++order->number;
	bpf_spin_unlock(&port->lock);
	return number;
}

__noinline int law_seat_goes(__u32 id, __u64 seat, __u32 opening)
{
	struct law_count record = {.head = {.port = id}};
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	record.answer = opening ? opening_goes(port, seat) : seat_goes(port, seat);
	record.head.number = ++order->number;
	bpf_spin_unlock(&port->lock);
	record.event = opening ? COUNT_OPENING_GOES : COUNT_SEAT_GOES;
	record.old = seat;
	law_counts(&record);
	return record.answer;
}

#endif
