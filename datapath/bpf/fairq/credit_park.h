// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The ways into the parking and back for packets that need credits (credit.h; lib/park.h).
//
//   credit_return  a packet that comes back from the parking: it leaves, or a request is held
//   credit_parks   parks a packet, or takes back its wait if the parking refuses it
//   credit_keeps   parks a segment that the port's queue would lose (lib/repair.h)
#ifndef WEIR_BPF_CREDIT_PARK_H
#define WEIR_BPF_CREDIT_PARK_H

#include "credit.h"

// Takes back the wait of a packet that the parking refused: it passes. side: of the end that sent it.
static __always_inline void credit_passes(__u32 id, struct connection *c, __u32 side)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_wait *wait = credit_wait_of();
	struct credit_report report;
	struct credited *d;

	if (!p || !wait)
		return;
	d = &wait->credited;
	c->end[side].waits_until = wait->until_before;
	if (!flight_left(c->released[!side]))
		c->released[!side] = 0;
	credit_reports(&report, id, CREDIT_REFUSED);
	credit_hears(&report, d->ack.now_ns, 0, 0, 0, 0);
	credit_replies(&report, 0, &d->answer);
	bpf_spin_lock(&p->lock);
	credit_refused(&p->config, &p->state, d->ack.now_ns, &d->answer);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_reported(&report);
}

// Reports whether a port has held requests now.
static __always_inline int credit_is_holding(__u32 id)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);

	return p && credit_holds(&p->config, &p->state, bpf_ktime_get_ns());
}

#define KEPT_LOOK_NS 10000u // the least time between two looks at segments that wait once more

// Returns what a segment that is kept counts for in the parking: its bytes on the line. One that waits once more counts for what the
// port sends until the next look, or more.
static __always_inline __u32 credit_kept_cost(const struct __sk_buff *ctx, __u32 id, int again)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	__u64 bytes = ctx->len, least = 0;

	if (!p)
		return bytes;
	bytes += p->config.line_bytes;
	if (again && p->config.byte_ns_q20)
		least = ((__u64)KEPT_LOOK_NS << 20) / p->config.byte_ns_q20;
	if (least > PARK_LENGTH_MAX)
		least = PARK_LENGTH_MAX;
	return bytes > least ? bytes : least;
}

// Reports whether the law acts at this port: else nothing is kept.
static __always_inline int credit_acts(__u32 id, __u64 now)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);

	return config && !config->releasing && mode_of(config) == ENFORCE_ALL && is_live(now);
}

// Reports whether a packet may have to be kept: some are kept at the port, or its queue has no room for this one.
static __always_inline int credit_may_keep(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct repair_port *state = bpf_map_lookup_elem(&repair_ports, &id);
	struct repair_port_config *config = bpf_map_lookup_elem(&repair_configs, &id);

	return state && config && config->park_bytes && (state->bytes || (__u64)BACKLOG(ctx) + ctx->wire_len > config->limit_bytes);
}

// Parks a segment that the port's queue has no room for, or that must stay behind such segments of its flow. Any other segment
// passes. Returns the program's verdict. A function of its own, because few packets call it.
__noinline int credit_keeps(struct __sk_buff *ctx, const struct segment *s)
{
	struct repair_flow *flow;
	enum repair_verdict verdict;
	struct direction of;
	struct at_port p;
	int parked;
	__u64 now;

	if (!s || !repair_read(&p, port_id))
		return TCX_NEXT;
	now = bpf_ktime_get_ns();
	if (!credit_acts(port_id, now))
		return TCX_NEXT;
	of = direction_of(s, port_id);
	flow = repair_flow_of(&p, &of);
	verdict = repair_decides(ctx, &p, flow, 1, now);
	if (verdict != REPAIR_OVER && verdict != REPAIR_BEHIND)
		return TCX_NEXT;
	parked = repair_parks(ctx, &p, &of, flow, port_id | PARK_KEPT, credit_kept_cost(ctx, port_id, 0),
			      verdict == REPAIR_OVER ? STAMP_OVER : 0);
	return parked == PARK_PASS ? TCX_NEXT : parked;
}

// Handles a segment that comes back, if credit_keeps parked it. Returns 0 if it did not, else 1 and the program's verdict.
static __always_inline int credit_kept(struct __sk_buff *ctx, const struct segment *s, int *verdict)
{
	__u32 stamp = ctx->tc_index;
	struct direction of;
	struct at_port p;
	__s32 debt;

	*verdict = TCX_NEXT;
	if (!(stamp & STAMP_KEPT) || !repair_read(&p, port_id))
		return 0;
	if (repair_is_early(ctx, &p)) {
		ctx->tc_index = stamp | STAMP_AGAIN;
		*verdict = park_send(ctx, port_id, port_id | PARK_KEPT_AGAIN, credit_kept_cost(ctx, port_id, 1), &debt);
		if (*verdict != PARK_PASS) {
			if (!(stamp & STAMP_AGAIN))
				__sync_fetch_and_add(&p.state->again, 1);
			return 1;
		}
		*verdict = TCX_NEXT;
		ctx->tc_index = stamp;
	}
	of = direction_of(s, port_id);
	repair_returns(ctx, &p, &of);
	return 1;
}

// Handles a segment that comes back from the parking. It leaves, unless it is a request that the buffer has no room for, or a
// packet behind such a request. Returns the program's verdict.
__noinline int credit_return(struct __sk_buff *ctx, const struct segment *s)
{
	__u32 id, mark, queue = PARK_HELD;
	struct connection *c;
	int verdict, request;
	__s32 debt;

	if (!s)
		return TCX_NEXT;
	if (credit_kept(ctx, s, &verdict))
		return verdict;
	c = flow_find(&s->key);
	if (!c)
		return TCX_NEXT;
	mark = c->released[!s->side];
	if (mark != FLIGHT_WAITS && mark != FLIGHT_HELD)
		return TCX_NEXT;
	id = (__u32)c->end[!s->side].port - 1;
	request = s->payload && s->seq == c->request[s->side & 1];
	if (request) {
		if (mark == FLIGHT_HELD)
			queue = PARK_FIRST;
		mark = credit_leaves(id, &c->end[!s->side], mark == FLIGHT_HELD);
		c->released[!s->side] = mark;
	} else if (mark == FLIGHT_HELD && !credit_is_holding(id)) {
		mark = 0; // its request was lost in the parking
	}
	if (mark != FLIGHT_HELD)
		return TCX_NEXT;
	verdict = park_send(ctx, port_id, id | queue, CREDIT_HOLD_COST, &debt);
	if (verdict != PARK_PASS)
		return verdict;
	if (request)
		c->released[!s->side] = 0;
	return TCX_NEXT;
}

// Parks a packet of a connection's end as credit_ack said. Returns the program's verdict.
__noinline int credit_parks(struct __sk_buff *ctx, __u32 how, struct connection *c, __u32 side)
{
	__s32 debt; // core/fairq/credit.h follows the queue by the lengths
	__u32 id = how >> CREDIT_CLASS_SHIFT;
	int verdict;

	ctx->tc_index = 0; // else it could come back as a segment that was kept: anybody sets it
	verdict = park_send(ctx, port_id, id, how & (CREDIT_LENGTH_LIMIT - 1), &debt);
	if (verdict != PARK_PASS || !c)
		return verdict == PARK_PASS ? TCX_NEXT : verdict;
	credit_passes(id & ~PARK_QUEUES, c, side & 1);
	return TCX_NEXT;
}

#endif
