// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The counts of a trace (trace.h): a direction enters or leaves the count of a port.
#ifndef WEIR_BPF_TRACE_COUNTS_H
#define WEIR_BPF_TRACE_COUNTS_H

#include "trace_records.h"

struct count_report {
	struct law_count *record;
	struct law_order *order;
};

static __always_inline void count_begins(struct count_report *report, __u32 id, __u32 event)
{
	struct law_count *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	report->order = order_of(id);
	report->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->head.port = id;
	record->head.record = RECORD_COUNT;
	record->event = event;
	record->count = count;
}

// Records the result of a count. Call it last under the lock.
static __always_inline void count_ends(struct count_report *report, const struct port_config *config,
				       const struct port *port, __u64 now, __u64 answer)
{
	struct law_count *record = report->record;
	__u64 number = 0;

	if (report->order)
		number = ++report->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->now_ns = now;
	record->epoch_ns = config ? config->epoch_ns : 0;
	record->answer = answer;
	record->flows = port->registered;
}

static __always_inline void count_reported(struct count_report *report)
{
	if (report->record)
		bpf_ringbuf_submit(report->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(report->order);
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

__noinline int law_slot_taken(__u32 id, __u32 number, __u64 old, __u64 new, __u32 answers)
{
	struct law_count record = {.head = {.number = number, .port = id}, .old = old, .new = new};

	record.event = COUNT_SLOT_TAKEN;
	record.counted = answers >> 1;
	record.answer = answers & 1;
	return law_counts(&record);
}

// Returns the number of the record, cut to 32 bits: the verifier allows a global function no wider result.
__noinline int law_slot_comes(__u32 id, __u64 slot)
{
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);
	__u64 number;

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	slot_comes(port, slot);
	number = ++order->number;
	bpf_spin_unlock(&port->lock);
	return number;
}

__noinline int law_slot_goes(__u32 id, __u64 slot, __u32 opening)
{
	struct law_count record = {.head = {.port = id}};
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	record.answer = opening ? opening_goes(port, slot) : slot_goes(port, slot);
	record.head.number = ++order->number;
	bpf_spin_unlock(&port->lock);
	record.event = opening ? COUNT_OPENING_GOES : COUNT_SLOT_GOES;
	record.old = slot;
	law_counts(&record);
	return record.answer;
}

#endif
