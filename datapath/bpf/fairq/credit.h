// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises and credits at the ports (core/fairq/credit.h; docs/credits.md): finds what a packet opens and releases, takes
// the port's lock, and parks the packets that wait (lib/park.h). The program weir_fairq has no code of it,
// weir_fairq_credit has.
//
//   credit_ack         a segment with an acknowledgement: as data, whose turn it is, and that its end used its promise; the
//                      promise of the end that it acknowledges; when it leaves
//   credit_uncredited  a packet that no credit released
//   credit_parks       parks a packet, or takes back its wait if the parking refuses it
#ifndef WEIR_BPF_CREDIT_H
#define WEIR_BPF_CREDIT_H

#include "canary.h"
#include "flows.h"
#include "port.h"
#include "unify.h"
#include "../lib/park.h"
#include "../../core/fairq/credit_ack.h"
#include "../../core/fairq/groups.h"

#define CREDIT_CLASS_SHIFT 16
#define CREDIT_LENGTH_LIMIT (1u << CREDIT_CLASS_SHIFT)
#define CREDIT_UNIT_LOG2_NS 10 // of times in struct end

// Bits of struct connection.turn. The low two are 1 + the side that sent data last.
#define TURN_SIDE 3
#define TURN_SHORT 4 // its latest segment was shorter than others

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

// The decision of credit_ack for the packet that this processor handles. credit_parks needs it if the parking refuses the packet,
// and the stack has no room for it.
struct credit_wait {
	struct credit_answer answer;
	__u64 now_ns;
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

static __always_inline __u32 credit_time(__u64 ns) { return ns >> CREDIT_UNIT_LOG2_NS; }

// Returns the time until an end's promise ends, in ns, for credit_life.
static __always_inline __s64 credit_left(const struct end *e, __u32 now)
{
	return (__s64)(__s32)(e->promise_until - now) * (1 << CREDIT_UNIT_LOG2_NS);
}

// Returns TURN_SHORT for data whose last segment is shorter than others. gso: length of its other segments; longest: of the
// longest one that the end has sent. Functions of their own like this one have the verifier check their branches once.
__noinline int credit_is_short(__u32 payload, __u32 gso, __u32 longest)
{
	return (gso < payload ? payload % gso != 0 : payload < longest) ? TURN_SHORT : 0;
}

// Handles data that leaves by this port. Reports whether it begins a turn: the other side sent last, or nobody.
__noinline int credit_data(const struct segment *s, struct connection *c, __u32 gso)
{
	__u32 id = port_id, promise;
	struct port_credit *p;
	__u8 side, turn, next, life;
	struct end *e;
	int begins;
	__u64 now;

	if (!s || !c)
		return 0;
	e = &c->end[s->side & 1];
	promise = e->promise;
	side = (s->side & 1) + 1;
	turn = c->turn;
	begins = (turn & TURN_SIDE) != side;
	if (promise) {
		e->promise = 0;
		p = bpf_map_lookup_elem(&credits, &id);
		if (p) {
			now = bpf_ktime_get_ns();
			life = credit_life(&p->config, credit_left(e, credit_time(now)));
			bpf_spin_lock(&p->lock);
			credit_used(&p->config, &p->state, now, promise, s->payload, life);
			bpf_spin_unlock(&p->lock);
		}
	}
	if (!gso || gso > s->payload)
		gso = s->payload;
	if (gso > e->longest)
		e->longest = gso < 0xffff ? gso : 0xffff;
	next = side | credit_is_short(s->payload, gso, e->longest);
	if (turn != next)
		c->turn = next;
	return begins;
}

// Charges a packet that no credit released, while the port's clock runs.
__noinline int credit_uncredited(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct port *port = port_of(id);
	__u64 now;

	if (!p || !port || !p->config.mode)
		return 0;
	now = bpf_ktime_get_ns();
	if (!port->pacing && (__s64)(p->state.clock_ns - now) <= 0)
		return 0;
	bpf_spin_lock(&p->lock);
	credit_other(&p->config, &p->state, now, ctx->len);
	bpf_spin_unlock(&p->lock);
	return 0;
}

// Returns what an acknowledgement may open: enum credit_opens. begins: its data begins a turn; entered: it completed the
// handshake of its connection. A function of its own, so that the verifier checks its branches once.
__noinline int credit_opening(const struct segment *s, const struct connection *c, int begins, int entered)
{
	if (!s || !c)
		return CREDIT_OPENS_NOTHING;
	if (s->flags & TCP_SYN)
		return CREDIT_OPENS;
	if (!is_opener(c, s))
		return CREDIT_OPENS_NOTHING;
	if (begins && (__s32)(c->acks[!s->side].sent - s->ack) <= 0) // a request: the other end has nothing in flight
		return CREDIT_OPENS;
	return entered && !s->payload ? CREDIT_COMPLETES : CREDIT_OPENS_NOTHING;
}

// Reports whether a segment acknowledges an answer whose latest segment was shorter than others.
__noinline int credit_answered(const struct segment *s, const struct connection *c, __u32 live)
{
	return s && c && live && is_opener(c, s) && (c->turn & (TURN_SIDE | TURN_SHORT)) == ((!s->side + 1) | TURN_SHORT);
}

// The question of credit_ack, and the answer of credit_decides.
struct credited {
	struct credit_ack ack;
	struct credit_answer answer;
	__s64 left_ns; // until the promise ends, for credit_life
};

// Has the core decide whether an acknowledgement leaves an end without a promise at rest. Returns the promise of the end from
// now on. A function of its own, so that the verifier checks its branches once.
__noinline int credit_rests_with(__u32 id, struct credited *d, __u32 promise)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);

	if (!p || !d || promise || !credit_rests(&p->config, &d->ack))
		return promise;
	return credit_rest(&p->config, &p->state, &d->ack, &d->answer);
}

// Has the core decide about an acknowledgement of data of a port, under the lock of its credits. Sets the promise of the
// data's sender. A function of its own, so that the verifier checks it once.
__noinline int credit_decides(__u32 id, struct credited *d, struct end *sender)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	__u32 promise;

	if (!p || !d || !sender)
		return 0;
	d->ack.life = credit_life(&p->config, d->left_ns);
	bpf_spin_lock(&p->lock);
	promise = credit_acknowledges(&p->config, &p->state, &d->ack, &d->answer);
	bpf_spin_unlock(&p->lock);
	sender->promise = credit_rests_with(id, d, promise);
	if (sender->allowed != d->answer.allowed)
		sender->allowed = d->answer.allowed;
	if (d->answer.renewed)
		sender->promise_until = credit_time(d->answer.live_ns);
	return 0;
}

// Starts or ends the pacing of a port. Returns 1 if it paces.
__noinline int credit_pacing(__u32 id, __u32 live)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	__u32 paces;

	if (!port || !config)
		return 0;
	paces = port_must_pace(config, port, live);
	if (paces != port->pacing) {
		bpf_spin_lock(&port->lock);
		port_paces(config, port, paces);
		bpf_spin_unlock(&port->lock);
	}
	return paces;
}

// Charges an acknowledgement, before its window is written. table: the table that its connection was entered in by it, if
// any. Sets the promise of the data's sender. Returns 0: the packet passes; or how it is parked: its length, and above
// CREDIT_CLASS_SHIFT the id of the port whose credits it needs. (One number, because the caller has no stack left.)
__noinline int credit_ack(struct __sk_buff *ctx, const struct segment *s, struct connection *c, int table)
{
	struct credited d = {};
	struct port_config *config;
	struct control *control = control_of();
	struct end *e, *sender;
	struct credit_wait *wait;
	struct port *port;
	__u32 id, now, live;

	if (!s || !c || !control)
		return 0;
	d.ack.opens = credit_opening(s, c, s->payload && c->owner ? credit_data(s, c, ctx->gso_size) : 0, table == TABLE_FLOWS);
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	id = (__u32)sender->port - 1;
	port = port_of(id);
	config = bpf_map_lookup_elem(&configs, &id);
	if (!port || !config || !config->credit)
		return 0;
	d.ack.now_ns = bpf_ktime_get_ns();
	now = credit_time(d.ack.now_ns);
	live = !config->releasing && mode_of(config) == ENFORCE_ALL && control_is_live(control, d.ack.now_ns);
	if (!live) {
		sender->promise = 0;
		d.ack.opens = 0;
	}
	d.ack.behind = e->waits_until && (__s32)(e->waits_until - now) > 0;
	d.ack.pacing = credit_pacing(id, live);
	d.ack.promise = sender->promise;
	d.ack.answered = credit_answered(s, c, live);
	if (!(d.ack.opens | d.ack.promise | d.ack.pacing | d.ack.behind | d.ack.answered))
		return 0;
	d.ack.advance_bytes = s->ack - c->acks[s->side & 1].una;
	if (d.ack.advance_bytes >= REACH)
		d.ack.advance_bytes = 0;
	d.ack.ack = s->ack;
	d.ack.sent = c->acks[!s->side].sent;
	d.ack.allowed = sender->allowed;
	d.ack.longest_bytes = sender->longest;
	d.ack.ends = !!(sender->flags & END_FIN);
	d.left_ns = credit_left(sender, now);
	d.ack.floor_bytes = grant_floor(config, e->mss, sender->gso);
	d.ack.shift = s->flags & TCP_SYN ? 0 : shift_of(e, s);
	port_backlog(config, port, &d.ack.backlog_bytes);
	d.ack.length_bytes = ctx->len;
	d.ack.fixed = !!ctx->gso_size;
	credit_decides(id, &d, sender);
	wait = credit_wait_of();
	if (!d.answer.length_bytes || !wait)
		return 0;
	wait->answer = d.answer;
	wait->now_ns = d.ack.now_ns;
	wait->until_before = e->waits_until;
	if (live) // without a lease nothing new waits, but a packet does not overtake those that do
		e->waits_until = credit_time(d.answer.leaves_ns + CREDIT_SLACK_NS) + 1;
	return id << CREDIT_CLASS_SHIFT | (d.answer.length_bytes & (CREDIT_LENGTH_LIMIT - 1));
}

// Takes back the wait of a packet that the parking refused: it passes. e: the end that sent it.
static __always_inline void credit_passes(__u32 id, struct end *e)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);
	struct credit_wait *wait = credit_wait_of();

	if (!p || !wait)
		return;
	e->waits_until = wait->until_before;
	bpf_spin_lock(&p->lock);
	credit_refused(&p->config, &p->state, wait->now_ns, &wait->answer);
	bpf_spin_unlock(&p->lock);
}

// Parks a packet of the end e as credit_ack said. Returns the program's verdict.
__noinline int credit_parks(struct __sk_buff *ctx, __u32 how, struct end *e)
{
	__s32 debt; // core/fairq/credit.h follows the queue by the lengths
	__u32 id = how >> CREDIT_CLASS_SHIFT;
	int verdict = park_send(ctx, port_id, id, how & (CREDIT_LENGTH_LIMIT - 1), &debt);

	if (verdict != PARK_PASS || !e)
		return verdict == PARK_PASS ? TCX_NEXT : verdict;
	credit_passes(id, e);
	return TCX_NEXT;
}

#endif
