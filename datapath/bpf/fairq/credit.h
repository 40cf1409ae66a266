// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises and credits at the ports (core/fairq/credit.h; docs/credits.md): finds what a packet opens and releases, takes
// the port's lock, and parks the packets that wait (lib/park.h). The program weir_fairq has no code of it,
// weir_fairq_credit has.
//
//   credit_first       a segment with an acknowledgement: as data, whose turn it is, and that its end used its promise; whether
//                      it may need credits. Most ACKs of a port that does not pace do not
//   credit_ack         the promise of the end that it acknowledges; when it leaves
//   credit_belongs     whether a segment belongs to its connection; the others get no credits
//   credit_strays      whether both ends say that their data is elsewhere. It is, if more passed than fits while the program was away
//   credit_uncredited  a packet that no credit released
//
// credit_park.h sends packets to the parking, and handles those that come back.
#ifndef WEIR_BPF_CREDIT_H
#define WEIR_BPF_CREDIT_H

#include "canary.h"
#include "flows.h"
#include "port.h"
#include "unify.h"
#define REPAIR_FLOWS 8192 // of all ports: their parking has room for as many packets
#include "../lib/repair.h"
#include "../../core/fairq/credit_ack.h"
#include "../../core/fairq/credit_turn.h"
#include "../../core/fairq/groups.h"

#define CREDIT_CLASS_SHIFT 16
#define CREDIT_NEEDS 0x10 // above enum credit_opens
#define CREDIT_LENGTH_LIMIT (1u << CREDIT_CLASS_SHIFT)
#define CREDIT_HOLD_COST 200 // bytes that a packet in the queue of held requests counts for: with heldPart of datapath/park, one step of core
#define CREDIT_UNIT_LOG2_NS 10 // of times in struct end
#define CREDIT_BEHIND_MAX (1u << 22) // such units, 4 s: no packet waits for as long. A time beyond it is of before the clock's wrap
#define STRAY_SWEEPS 2 // sweeps without data that belongs before other numbers can become a connection's

struct port_credit {
	struct bpf_spin_lock lock;
	__u32 zero;
	struct credit_config config;
	struct credit_state state;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct port_credit);
} credits SEC(".maps");

// The question of credit_ack, and the answer of credit_decides.
struct credited {
	struct credit_ack ack;
	struct credit_answer answer;
};

// The decision of credit_ack for the packet that this processor handles. credit_parks needs it if the parking refuses the packet,
// and the stack has no room for it.
struct credit_wait {
	struct credited credited;
	__u32 until_before; // waits_until of the packet's direction, before it
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct credit_wait);
} credit_waits SEC(".maps");

static __always_inline struct credit_wait *credit_wait_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&credit_waits, &zero);
}

// Returns the bytes in the queue of a port, and those that its queue had no room for (credit_keeps).
static __always_inline __u32 credit_backlog(__u32 id)
{
	struct repair_port *kept = bpf_map_lookup_elem(&repair_ports, &id);

	return (__u32)port_backlog(id) + (kept ? repair_waiting(kept, bpf_ktime_get_ns()) : 0);
}

static __always_inline __u32 credit_time(__u64 ns) { return ns >> CREDIT_UNIT_LOG2_NS; }

// Returns the time until an end's promise ends, in ns, for credit_life.
static __always_inline __s64 credit_left(const struct end *e, __u32 now)
{
	return (__s64)(__s32)(e->promise_until - now) * (1 << CREDIT_UNIT_LOG2_NS);
}

#ifdef WEIR_LAW_TRACE
#include "trace_credits.h"
#endif

// Moves what is in flight on. A function of its own, so that the verifier checks its loop once.
__noinline int credit_later(__u32 id, __u64 now)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_report report;

	if (!p)
		return 0;
	credit_reports(&report, id, CREDIT_LATER);
	credit_hears(&report, now, 0, 0, 0, 0);
	bpf_spin_lock(&p->lock);
	flight_until(&p->state.flight, now);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_reported(&report);
	return 0;
}

static __always_inline void credit_moves_on(__u32 id, struct port_credit *p, __u64 now)
{
	if (flight_is_later(&p->state.flight, now))
		credit_later(id, now);
}

// Ends the promise of a segment's sender: it sends data, or closes and uses nothing of it. A function of its own, because few packets
// call it.
__noinline int credit_uses(const struct segment *s, struct connection *c)
{
	__u32 id = port_id, promise, released;
	struct credit_report report;
	struct port_credit *p;
	struct end *e;
	__u64 now;
	__s64 left;
	__u8 life;

	if (!s || !c)
		return 0;
	e = &c->end[s->side & 1];
	promise = e->promise;
	p = bpf_map_lookup_elem(&credits, &id);
	if (!promise || !p)
		return 0;
	e->promise = 0;
	now = bpf_ktime_get_ns();
	credit_moves_on(id, p, now);
	left = credit_left(e, credit_time(now));
	life = credit_life(&p->config, left) | (is_opener(c, s) ? CREDIT_OPENERS : 0);
	credit_reports(&report, id, CREDIT_USED);
	released = c->released[s->side & 1];
	c->released[s->side & 1] = 0;
	credit_hears(&report, now, left, promise, s->payload, life);
	credit_remembers(&report, released);
	bpf_spin_lock(&p->lock);
	credit_used(&p->config, &p->state, now, promise, s->payload, life, released);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_reported(&report);
	return 0;
}

// Handles data that leaves by this port. Reports whether it begins a turn: it is new, and the other side sent last, or nobody.
static __always_inline int credit_data(const struct segment *s, struct connection *c, __u32 gso)
{
	__u8 side = s->side & 1, turn, next;
	__u16 before, longest;
	__u32 segment, una;
	struct end *e;
	int begins;

	e = &c->end[side];
	turn = c->turn;
	una = c->acks[!side].una;
	if (unlikely(credit_was_acknowledged(s->seq + s->payload, una))) {
		asked_again(s, gso, turn, e->longest, una);
		return 0;
	}
	begins = credit_begins(turn, side);
	if (unlikely(e->promise))
		credit_uses(s, c);
	segment = credit_segment_of(s->payload, gso);
	before = e->longest;
	longest = credit_longest(before, segment);
	if (longest != before)
		e->longest = longest;
	next = credit_turn(side, s->payload, segment, longest);
	asked_turn(s, gso, turn, next, begins, before, longest, una);
	if (turn != next)
		c->turn = next;
	return begins;
}

// Reports whether a packet that no credit released may count: the port paces, or its clock runs. The coarse clock is at most a tick
// behind, and costs less: a clock before it does not run.
static __always_inline int credit_may_count(const struct port *port)
{
	__u32 id = port_id;
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);

	return p && p->config.mode && (port->pacing || (__s64)(p->state.clock_ns - bpf_ktime_get_coarse_ns()) > 0);
}

// Charges a packet that no credit released, while the port's clock runs. A function of its own, because few packets call it.
__noinline int credit_uncredited(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct port *port = port_of(id);
	struct credit_report report;
	__u64 now;

	if (!p || !port)
		return 0;
	now = bpf_ktime_get_ns();
	if (!law_counts_other(id, port->pacing, now))
		return 0;
	credit_reports(&report, id, CREDIT_OTHER);
	credit_hears(&report, now, 0, 0, ctx->len, 0);
	bpf_spin_lock(&p->lock);
	credit_other(&p->config, &p->state, now, ctx->len);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_reported(&report);
	return 0;
}

// Returns what an acknowledgement may open: enum credit_opens. begins: its data begins a turn; entered: it completed the
// handshake of its connection.
static __always_inline int credit_opening(const struct segment *s, const struct connection *c, int begins, int entered)
{
	__u32 sent;
	__u8 opens;

	sent = c->acks[!s->side].sent;
	opens = credit_opens(!!(s->flags & TCP_SYN), is_opener(c, s), begins, entered && !s->payload, sent, s->ack);
	asked_opens(s, c, begins, entered && !s->payload, sent, opens);
	return opens;
}

// Reports whether a segment belongs to its connection (credit_fits of core). A SYN gives its own.
static __always_inline int credit_belongs(const struct segment *s, const struct connection *c)
{
	return s->flags & TCP_SYN || credit_fits(s->seq, c->acks[s->side & 1].sent, s->ack, c->acks[!s->side].sent);
}

// Handles a segment that does not belong to its connection. If it acknowledges data that does not belong either, the connection is there:
// these are the numbers of both ends. Reports whether the segment belongs now. Data that belongs must have been missing for STRAY_SWEEPS.
// So a forger of both ends' segments cannot move a connection that sends.
__noinline int credit_strays(const struct segment *s, struct connection *c)
{
	struct acks *own, *others;
	__u8 lately;

	if (!s || !c)
		return 0;
	own = &c->acks[s->side & 1];
	others = &c->acks[!s->side];
	lately = c->data_lately[!s->side];
	if (lately + STRAY_SWEEPS <= LATELY && acknowledges(s) && credit_agrees(&others->stray, s->ack)) {
		others->sent = others->stray.to;
		acks_begin(own, s->ack);
		c->end[!s->side].promise = 0;
		c->end[!s->side].allowed = 0;
	}
	if (s->payload && !credit_is_near(s->seq, own->sent))
		credit_stray(&own->stray, s->seq, s->payload);
	return credit_belongs(s, c);
}

// Calls credit_answered. Without a lease no answer gets a promise.
static __always_inline int credit_answer_of(const struct segment *s, const struct connection *c, __u32 live)
{
	int answered;
	__u8 turn;

	if (!live)
		return 0;
	turn = c->turn;
	answered = credit_answered(is_opener(c, s), turn, s->side & 1);
	asked_answered(s, c, turn, answered);
	return answered;
}

// Has the core decide whether an acknowledgement leaves an end without a promise at rest. Returns the promise of the end from
// now on. A function of its own, so that the verifier checks its branches once.
__noinline int credit_rests_with(__u32 id, struct credited *d, __u32 promise)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);

	return p && d ? credit_rest(&p->config, &p->state, &d->ack, promise, &d->answer) : promise;
}

// Has the core decide about an acknowledgement of data of a port, under the lock of its credits. Sets the promise of the
// data's sender. A function of its own, so that the verifier checks it once.
__noinline int credit_decides(__u32 id, struct credited *d, struct end *sender)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_report report;
	__u32 promise;

	if (!p || !d || !sender)
		return 0;
	credit_moves_on(id, p, d->ack.now_ns);
	d->ack.life = credit_life(&p->config, d->ack.left_ns);
	credit_reports(&report, id, CREDIT_ACKNOWLEDGED);
	credit_hears_ack(&report, d);
	bpf_spin_lock(&p->lock);
	promise = credit_acknowledges(&p->config, &p->state, &d->ack, &d->answer);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_replies(&report, promise, &d->answer);
	credit_reported(&report);
	sender->promise = law_rests(id, d, promise);
	if (sender->allowed != d->answer.allowed)
		sender->allowed = d->answer.allowed;
	if (d->answer.renewed)
		sender->promise_until = credit_time(d->answer.live_ns);
	return 0;
}

// Has the core decide whether a request is held that may leave otherwise. Returns what the end of its server remembers.
__noinline int credit_leaves(__u32 id, struct end *sender, __u32 held)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_report report;
	__u32 backlog, promise, mark;
	__s64 left;
	__u64 now = bpf_ktime_get_ns();

	if (!p || !sender || !is_live(now))
		return 0;
	credit_moves_on(id, p, now);
	promise = sender->promise;
	backlog = credit_backlog(id);
	credit_reports(&report, id, CREDIT_RETURNED);
	left = credit_left(sender, credit_time(now));
	credit_hears(&report, now, left, promise, backlog, held);
	bpf_spin_lock(&p->lock);
	credit_returns(&p->config, &p->state, now, backlog, promise, left, held, &mark);
	credit_ends(&report, p);
	bpf_spin_unlock(&p->lock);
	credit_remembers(&report, mark);
	credit_reported(&report);
	if (flight_left(mark))
		sender->promise_until = credit_time(now + credit_live_ns(&p->config));
	return mark;
}

// Starts or ends the pacing of a port. Returns 1 if it paces.
__noinline int credit_pacing(__u32 id, __u32 live)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct turn turn;
	__u32 paces;

	if (!port || !config)
		return 0;
	paces = law_paces(id, config, port, live);
	if (paces != port->pacing) {
		turn_begins(&turn, id, TURN_PACES);
		bpf_spin_lock(&port->lock);
		turn_hears(&turn, config, port, 0, paces, live, 0);
		port_paces(config, port, paces);
		turn_ends(&turn, config, port);
		bpf_spin_unlock(&port->lock);
		turn_reported(&turn);
	}
	return paces;
}

// Reports whether the promise of an end must be taken back, because the law does not act at the port of its data. The coarse clock costs
// less than the other one, and is a tick behind at most.
static __always_inline int credit_takes_back(const struct end *sender, const struct port_config *config, const struct control *control)
{
	if (!sender->promise)
		return 0;
	return config->releasing || mode_of(config) != ENFORCE_ALL || !control_is_live(control, bpf_ktime_get_coarse_ns());
}

// Reports whether an acknowledgement may need credits: cheap questions first, because most ACKs of a port that does not pace need
// none. A promise alone does not: an end that never answers, such as the server of an upload, keeps it. The heartbeat is read for
// promises only: without one the answer may be yes although nothing is needed.
static __always_inline int credit_may_need(const struct segment *s, const struct connection *c, __u32 opens)
{
	const struct end *sender = &c->end[!s->side];
	struct control *control = control_of();
	struct port_config *config;
	struct port *port;
	__u32 id;

	id = (__u32)sender->port - 1;
	port = port_of(id);
	config = bpf_map_lookup_elem(&configs, &id);
	if (!port || !config || !control || !config->credit)
		return 0;
	return opens || port->pacing || credit_takes_back(sender, config, control) || c->end[s->side & 1].waits_until ||
	       c->released[!s->side] == FLIGHT_HELD || credit_answer_of(s, c, 1) || port_must_pace(config, port, 1);
}

// Handles a segment with an acknowledgement, first part: as data, and what it opens. table: the table that its connection was
// entered in by it, if any. Returns 0 if it needs no credits, else CREDIT_NEEDS and what it opens, for credit_ack.
__noinline int credit_first(struct __sk_buff *ctx, const struct segment *s, struct connection *c, int table)
{
	__u32 opens;

	if (!s || !c)
		return 0;
	if (s->flags & TCP_FIN)
		credit_uses(s, c);
	opens = credit_opening(s, c, s->payload && c->owner ? credit_data(s, c, ctx->gso_size) : 0, table == TABLE_FLOWS);
	return credit_may_need(s, c, opens) ? CREDIT_NEEDS | opens : 0;
}

// Charges an acknowledgement that may need credits, before its window is written. needs: of credit_first. Sets the promise of
// the data's sender. Returns 0: the packet passes; or how it is parked: its length, and above CREDIT_CLASS_SHIFT the id of the
// port whose credits it needs. (One number, because the caller has no stack left.)
__noinline int credit_ack(struct __sk_buff *ctx, const struct segment *s, struct connection *c, __u32 needs)
{
	struct credit_wait *wait = credit_wait_of();
	struct control *control = control_of();
	struct port_config *config;
	struct end *e, *sender;
	struct credited *d;
	struct port *port;
	__u32 id, now, live, una, length;

	if (!s || !c || !control || !wait)
		return 0;
	d = &wait->credited;
	__builtin_memset(d, 0, sizeof(*d));
	d->ack.opens = needs & (CREDIT_NEEDS - 1);
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	id = (__u32)sender->port - 1;
	port = port_of(id);
	config = bpf_map_lookup_elem(&configs, &id);
	if (!port || !config || !config->credit)
		return 0;
	d->ack.now_ns = bpf_ktime_get_ns();
	now = credit_time(d->ack.now_ns);
	live = !config->releasing && mode_of(config) == ENFORCE_ALL && control_is_live(control, d->ack.now_ns);
	if (!live) {
		sender->promise = 0;
		d->ack.opens = 0;
	}
	d->ack.behind = e->waits_until && e->waits_until - now - 1 < CREDIT_BEHIND_MAX;
	if (e->waits_until && !d->ack.behind)
		e->waits_until = 0;
	if (c->released[!s->side] == FLIGHT_HELD)
		d->ack.behind = 1;
	d->ack.pacing = credit_pacing(id, live);
	d->ack.promise = sender->promise;
	d->ack.answered = credit_answer_of(s, c, live);
	if (!credit_concerns(&d->ack)) {
		asked_unconcerned(id, d);
		return 0;
	}
	una = c->acks[s->side & 1].una;
	d->ack.advance_bytes = credit_advance(una, s->ack);
	asked_advance(id, una, s->ack, d->ack.advance_bytes);
	d->ack.ack = s->ack;
	d->ack.sent = c->acks[!s->side].sent;
	d->ack.allowed = sender->allowed;
	d->ack.longest_bytes = sender->longest;
	d->ack.ends = sender->flags & END_FIN && credit_ends_at(sender->next, d->ack.sent);
	d->ack.left_ns = credit_left(sender, now);
	d->ack.floor_bytes = grant_floor(config, e->mss, sender->gso);
	d->ack.shift = s->flags & TCP_SYN ? 0 : shift_of(e, s);
	d->ack.backlog_bytes = credit_backlog(id);
	d->ack.length_bytes = ctx->len;
	d->ack.fixed = !!ctx->gso_size;
	credit_decides(id, d, sender);
	wait->until_before = e->waits_until;
	if (d->ack.opens == CREDIT_OPENS) {
		c->request[s->side & 1] = s->seq;
		c->released[!s->side] = d->answer.length_bytes ? FLIGHT_WAITS : credit_leaves(id, sender, 0);
		if (c->released[!s->side] == FLIGHT_HELD)
			return (id | PARK_HELD) << CREDIT_CLASS_SHIFT | CREDIT_HOLD_COST;
	}
	if (!d->answer.length_bytes)
		return 0;
	if (live) // without a lease nothing new waits, but a packet does not overtake those that do
		e->waits_until = credit_time(d->answer.leaves_ns + CREDIT_SLACK_NS) + 1;
	length = d->answer.length_bytes < CREDIT_LENGTH_LIMIT ? d->answer.length_bytes : CREDIT_LENGTH_LIMIT - 1;
	return id << CREDIT_CLASS_SHIFT | length;
}

#endif
