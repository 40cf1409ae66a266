// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises and credits in a trace (trace.h). credit.h includes it, because it needs the map of the credits.
//
//   asked     what a segment means (core/fairq/credit_turn.h), and whether promises and credits concern it
//   paces     whether a port must pace; in the order of the port, because it depends on the port's flows. The change of
//             `pacing` is a turn
//   credit    every other decision of core/fairq/credit.h and credit_ack.h, and the port's clock after it
//
// Order: asked and credit take the next number of the port's credits, under their lock. Where the program decides without
// the lock, these functions take it, so that they decide from the state that the number stands for.
#ifndef WEIR_BPF_TRACE_CREDITS_H
#define WEIR_BPF_TRACE_CREDITS_H

#include "trace_records.h"

// As struct turn: looked up before the lock is taken.
struct credit_report {
	struct law_credit *record; // NULL: the ring is full
	struct law_order *order;
};

static __always_inline void credit_reports(struct credit_report *report, __u32 id, __u32 event)
{
	struct law_credit *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	report->order = order_of(id);
	report->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->head.port = id;
	record->head.record = RECORD_CREDIT;
	record->event = event;
}

// Records the inputs of an event without an acknowledgement.
static __always_inline void credit_hears(struct credit_report *report, __u64 now, __s64 left, __u32 promise, __u32 bytes,
					 __u32 life)
{
	struct law_credit *record = report->record;

	if (!record)
		return;
	record->now_ns = now;
	record->left_ns = left;
	record->promise = promise;
	record->bytes = bytes;
	record->life = life;
}

// Records what an end remembers of its request.
static __always_inline void credit_remembers(struct credit_report *report, __u32 mark)
{
	if (report->record)
		report->record->mark = mark;
}

static __always_inline void credit_hears_ack(struct credit_report *report, const struct credited *d)
{
	if (!report->record)
		return;
	report->record->ack = d->ack;
	report->record->left_ns = d->ack.left_ns;
}

static __always_inline void credit_replies(struct credit_report *report, __u32 promise, const struct credit_answer *answer)
{
	if (!report->record)
		return;
	report->record->promise = promise;
	report->record->answer = *answer;
}

// Records the configuration, the state after the event, and its number. Call it last under the lock.
static __always_inline void credit_ends(struct credit_report *report, const struct port_credit *p)
{
	struct law_credit *record = report->record;
	__u64 number = 0;

	if (report->order)
		number = ++report->order->credits;
	if (!record)
		return;
	record->head.number = number;
	record->config = p->config;
	record->after = p->state;
}

static __always_inline void credit_reported(struct credit_report *report)
{
	if (report->record)
		bpf_ringbuf_submit(report->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(report->order);
}

// ---- decisions that the program makes without the lock ----

__noinline int law_rests(__u32 id, struct credited *d, __u32 promise)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_report report;

	if (!p || !d)
		return promise;
	credit_reports(&report, id, CREDIT_RESTED);
	credit_hears(&report, 0, 0, 0, promise, 0);
	credit_hears_ack(&report, d);
	bpf_spin_lock(&p->lock);
	promise = credit_rest(&p->config, &p->state, &d->ack, promise, &d->answer);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_replies(&report, promise, &d->answer);
	credit_reported(&report);
	return promise;
}

__noinline int law_counts_other(__u32 id, __u32 pacing, __u64 now)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_report report;
	int counts;

	if (!p)
		return 0;
	credit_reports(&report, id, CREDIT_COUNTED);
	bpf_spin_lock(&p->lock);
	counts = credit_counts_other(&p->state, pacing, now);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_hears(&report, now, 0, counts, pacing, 0);
	credit_reported(&report);
	return counts;
}

__noinline int law_must_pace(__u32 id, __u32 live)
{
	struct law_paces *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);
	const struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct law_order *order = order_of(id);
	__u64 number;
	int paces;

	if (!config || !port || !order) {
		if (record)
			bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		return 0;
	}
	if (record) {
		__builtin_memset(record, 0, sizeof(*record));
		config_copy(&record->config, config);
		config = &record->config;
	}
	bpf_spin_lock(&port->lock);
	paces = port_must_pace(config, port, live);
	number = ++order->number;
	bpf_spin_unlock(&port->lock);
	if (!record) {
		law_lost(order);
		return paces;
	}
	record->head = (struct law_head){.number = number, .port = id, .record = RECORD_PACES};
	record->count = count;
	record->live = live;
	record->answer = paces;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return paces;
}

#define law_paces(id, config, port, live) law_must_pace(id, live)

// ---- questions: the answers depend on no state of the port ----

static __always_inline int law_asks(__u32 id, struct law_asked *asked)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct law_order *order = order_of(id);

	if (!p || !order)
		return 0;
	asked->head.port = id;
	asked->head.record = RECORD_ASKED;
	bpf_spin_lock(&p->lock);
	asked->head.number = ++order->credits;
	bpf_spin_unlock(&p->lock);
	if (bpf_ringbuf_output(&law_records, asked, sizeof(*asked), BPF_RB_NO_WAKEUP))
		law_lost(order);
	return 0;
}

// turns: the turn before the data, whether it begins one, and the turn after it, 8 bits each; above them, whether it came again.
// longest: of the end before and after it, 16 bits each. una: the furthest acknowledgement of the other end.
__noinline int law_turned(const struct segment *s, __u32 gso, __u32 turns, __u32 longest, __u32 una)
{
	struct law_asked asked = {.event = ASKED_TURN, .gso = gso, .una = una};

	if (!s)
		return 0;
	asked.side = s->side & 1;
	asked.payload = s->payload;
	asked.sent = s->seq + s->payload;
	asked.again = turns >> 24;
	asked.turn = turns >> 16;
	asked.begins = turns >> 8;
	asked.answer = turns & 0xff;
	asked.longest = longest >> 16;
	asked.longest_after = longest;
	return law_asks(port_id, &asked);
}

#define asked_turn(s, gso, turn, next, begins, longest, after, una)                                                 \
	law_turned(s, gso, (__u32)(turn) << 16 | (__u32)(begins) << 8 | (next), (__u32)(longest) << 16 | (after), una)
#define asked_again(s, gso, turn, longest, una)                                                                     \
	law_turned(s, gso, 1u << 24 | (__u32)(turn) << 16 | (turn), (__u32)(longest) << 16 | (longest), una)

// begins: whether its data begins a turn, and in bit 1 whether it completes the handshake.
__noinline int law_opens(const struct segment *s, const struct connection *c, __u32 begins, __u32 sent, __u32 answer)
{
	struct law_asked asked = {.event = ASKED_OPENS, .sent = sent, .answer = answer};

	if (!s || !c)
		return 0;
	asked.side = s->side & 1;
	asked.ack = s->ack;
	asked.syn = !!(s->flags & TCP_SYN);
	asked.opener = is_opener(c, s);
	asked.begins = begins & 1;
	asked.completes = begins >> 1;
	return law_asks((__u32)c->end[!s->side].port - 1, &asked);
}

#define asked_opens(s, c, begins, completes, sent, answer) law_opens(s, c, !!(begins) | !!(completes) << 1, sent, answer)

__noinline int law_answered(const struct segment *s, const struct connection *c, __u32 turn, __u32 answer)
{
	struct law_asked asked = {.event = ASKED_ANSWERED, .answer = answer};

	if (!s || !c)
		return 0;
	asked.side = s->side & 1;
	asked.opener = is_opener(c, s);
	asked.turn = turn;
	return law_asks((__u32)c->end[!s->side].port - 1, &asked);
}

#define asked_answered(s, c, turn, answer) law_answered(s, c, turn, answer)

__noinline int law_advances(__u32 id, __u32 una, __u32 ack, __u32 answer)
{
	struct law_asked asked = {.event = ASKED_ADVANCE, .una = una, .ack = ack, .answer = answer};

	return law_asks(id, &asked);
}

#define asked_advance(id, una, ack, answer) law_advances(id, una, ack, answer)

// An acknowledgement that is not charged. The record of CREDIT_ACKNOWLEDGED stands for the others.
__noinline int law_unconcerned(__u32 id, const struct credited *d)
{
	struct law_asked asked = {.event = ASKED_CONCERN};

	if (!d)
		return 0;
	asked.promise = d->ack.promise;
	asked.opens = d->ack.opens;
	asked.pacing = d->ack.pacing;
	asked.behind = d->ack.behind;
	asked.answered = d->ack.answered;
	return law_asks(id, &asked);
}

#define asked_unconcerned(id, d) law_unconcerned(id, d)

#endif
