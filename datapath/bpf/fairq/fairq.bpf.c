// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairQ on the ports of a Linux switch: a tcx egress program around core/fairq.h and core/window.h.
//
// One instance of the program runs on each port. Its port is a constant of the instance, an index into
// the array maps: an ifindex collides across namespaces. The instances of one switch share the maps.
//
//   data        seats its direction at this port (flows.h), which is how the port is learnt and counted
//   ACK         is held to the window of the port that the data it acknowledges leaves by
//   SYN, FIN    begin and end a connection (connection.h)
//
//   signed      TCP-MD5 and TCP-AO are left as they are, or as the operator says (signed.h)
//
// Queues are sampled by a timer for each port (port.h). Nothing here drops a packet, but signed ones where the
// operator chose so.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "arms.h"
#include "connection.h"
#include "edge_tell.h"
#include "flows.h"
#include "port.h"
#include "seats.h"
#include "../lib/counts.h"
#include "../lib/rewrite.h"
#include "../lib/segment.h"
#include "signed.h"
#include "sweep.h"

char _license[] SEC("license") = WEIR_LICENSE;

// How the windows are scaled that an end sends. What the SYNs told counts before the reserved bits, which
// anybody can set. 1 in the bits may as well be AccECN's, as nobody here saw the handshake: the scale that
// was inferred is then 1 at most, too, if a shim wrote it.
static __always_inline __u8 shift_of(const struct end *e, const struct segment *s)
{
	if (scale == SCALE_UNIFY && e->flags & END_UNIFIED)
		return e->told;
	if (scale == SCALE_SHIM && s->reserved > TCP_AE && !(e->flags & END_SCALE))
		return s->reserved;
	return e->shift;
}

// Writes the field and the reserved bits, if they are others. said: the counter of what the law made of
// the window; with scale: unify the field may be another all the same. Gives the field that leaves.
static __always_inline __u16 ack_write(struct __sk_buff *ctx, struct segment *s, struct port_counts *stats,
				      __u64 packets, __u16 field, __u8 bits, __u64 *said)
{
	if (field != s->window || bits != s->reserved) {
		if (edge_interval ? reserved_window_write(ctx, s, bits, field) : window_write(ctx, s, field)) {
			said = &stats->unwritable;
			field = s->window;
		} else if (bits != s->reserved) {
			stats->told += packets;
		}
	}
	*said += packets;
	return field;
}

// The least window of a flow.
static __always_inline __u32 floor_of(const struct port_config *config, const struct end *receiver,
				      const struct end *sender, struct asked *asked)
{
	__u32 mss = mss_of(config, receiver), gso = gso_of(config, sender);

	return asked_floor(asked, mss || gso ? mss : config->mss_unknown, gso);
}

// Holds an ACK to the window of its data's port, or says what that would do. Gives the field that it
// leaves with.
__noinline int on_ack(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port_counts *stats,
		      __u64 packets)
{
	__u64 grant = 0, would = 0, *said;
	struct control *control = control_of();
	struct end *e, *sender;
	struct port_config *config;
	struct arm_counts *arm;
	struct acks *acks;
	struct window_ack a = {};
	struct window_edge edge;
	struct asked asked = {};
	struct port *port;
	__u16 field;
	__u32 id, divisor, openings;
	__u8 bits;
	int tells, opens = 0;

	if (!s || !c || !stats)
		return 0;
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	acks = &c->acks[s->side & 1];
	id = (__u32)(sender->port ? sender->port : sender->assumed) - 1;
	port = port_of(id);
	config = bpf_map_lookup_elem(&configs, &id);
	divisor = !sender->port && config && config->divisor ? config->divisor : 1;
	arm = port ? arm_of(id, is_held(port, c)) : NULL;
	said = &stats->ungoverned;
	tells = 0;
	edge = acks->edge;
	bits = s->reserved;
	a.field = scale == SCALE_UNIFY ? unify_field(e, s) : s->window;
	a.shift = shift_of(e, s);
	a.syn = !!(s->flags & TCP_SYN);
	a.ack = s->ack;
	a.shrink = shrink;
	field = a.field;
	acks->offered = acks->granted = (__u32)field << window_shift(a.shift, a.syn);
	if (s->is_signed) {
		if (arm && sender->port)
			arm_ack(c, s, arm, packets);
		stats->signed_ += packets;
		return s->window;
	}
	if (count == COUNT_OPENING && a.syn && sender->port && port && config && control)
		opens = port_holds_opening(control, config, port, bpf_ktime_get_ns());
	if (port && config && arm) {
		asked_begins(&asked, id, port);
		grant = grant_of(port, c, &would);
		if (opens && is_held(port, c)) {
			openings = port_openings(port);
			grant = fairq_opening_q8(&config->law, &port->law, openings);
			asked_opens(&asked, openings);
		}
		asked_grants(&asked, port, is_held(port, c), grant, would);
		grant /= divisor;
		would /= divisor;
		if (sender->port)
			arm_ack(c, s, arm, packets);
	}
	// A free flow passes as it is, also with what another switch tells of it.
	if (edge_interval && !a.syn && (grant || !port || is_held(port, c)))
		tells = edge_due(e, s, a.shift, grant);
	bits |= tells * EDGE_FLAG;
	if ((grant || would) && config && arm) {
		a.window_q8 = grant ? grant : would;
		a.floor_bytes = config->law.floor_bytes;
		if (!a.floor_bytes)
			a.floor_bytes = floor_of(config, e, sender, &asked);
		asked_window(&asked, &edge);
		field = window_rewrite(&a, &edge);
		asked_answer(&asked, field, &edge);
		acks->granted = (__u32)field << window_shift(a.shift, a.syn);
		if (field != a.field && sender->port)
			arm->limited += packets;
		if (!sender->port)
			stats->assumed += packets;
		said = field == a.field ? &stats->smaller : &stats->rewritten;
		if (!grant) {
			field = a.field;
			said = &stats->free_;
			edge = acks->edge;
			if (shrink == WINDOW_SHRINK_AVOID)
				window_granted(&edge, a.ack, acks->offered);
		}
		acks->edge = edge;
	}
	if (tells)
		field = edge_tell(e, s, field, a.shift, grant);
	field = ack_write(ctx, s, stats, packets, field, bits, said);
	asked_told(&asked, ctx, s, &a, divisor, packets, field);
	return field;
}

// An ACK that is left to the edge, in its arm. how: 1: of a held flow, 2: the edge makes its window smaller.
__noinline int arm_left(struct connection *c, const struct segment *s, __u32 id, __u32 how, __u64 packets)
{
	struct arm_counts *arm = arm_of(id, how & 1);

	if (!c || !s || !arm)
		return 0;
	arm_ack(c, s, arm, packets);
	if (how & 2)
		arm->limited += packets;
	return 0;
}

// Edge mode. Gives the field that an ACK has behind the edge, to which it is left; -1: it is to tell, or
// nothing is told of its flow.
__noinline int edge_leaves(struct segment *s, struct connection *c, struct port_counts *stats, __u64 packets)
{
	struct end *e, *sender;
	struct acks *acks;
	struct port *port;
	__u32 id, told;
	__u64 would;
	__u8 shift;

	if (!s || !c || !stats || s->flags & TCP_SYN || s->is_signed)
		return -1;
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	acks = &c->acks[s->side & 1];
	id = (__u32)sender->port - 1;
	port = port_of(id);
	shift = shift_of(e, s) & 15;
	told = e->edge_told;
	if (!told || !port || edge_due(e, s, shift, grant_of(port, c, &would)))
		return -1;
	acks->offered = (__u32)s->window << shift;
	acks->granted = told < acks->offered ? told : acks->offered;
	arm_left(c, s, id, is_held(port, c) | (told < acks->offered) << 1, packets);
	stats->untold += packets;
	return acks->granted >> shift;
}

#define FIN_REACH (1u << 24) // no sender has more bytes on their way when it sends its FIN

// Data leaves by this port: here its direction is counted, and this port's window governs it.
static __always_inline void on_data(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port *port,
				    struct port_counts *stats, __u64 packets)
{
	struct end *e = &c->end[s->side & 1], *receiver = &c->end[!s->side];

	stats->data += packets;
	if (!port->data_seen)
		port->data_seen = 1;
	if (e->port != port_id + 1)
		e->port = port_id + 1;
	if (c->flags & CONNECTION_RESET) // it was not: the ends did not believe it
		c->flags &= ~CONNECTION_RESET;
	// Nor this one, if data goes on behind the FIN or far ahead of it. Else it is data that is sent again;
	// it fills the queue too, and is counted.
	if (e->flags & END_FIN && e->next - segment_next(s) > FIN_REACH)
		e->flags &= ~END_FIN;
	if (e->seat != seat_at(port_id, port->epoch))
		seat_take(c, s->side, port_id);
	if (count == COUNT_HANDSHAKE && e->registration && e->registered_at == port_id &&
	    e->registration != port->generation)
		register_enter(c, s->side);
	if (ctx->gso_size > e->gso)
		e->gso = ctx->gso_size < 0xffff ? ctx->gso_size : 0xffff;
	if (!(receiver->flags & END_SCALE))
		adopt_data(receiver, s);
	arm_data(c, s, is_held(port, c));
}

// FIN or RST of a connection in the table.
__noinline int on_end(struct segment *s, struct connection *c)
{
	if (!s || !c)
		return 0;
	if (s->flags & TCP_RST) {
		direction_ends(c, 0);
		direction_ends(c, 1);
		c->flags |= CONNECTION_RESET;
		return 0;
	}
	if (!(c->end[s->side & 1].flags & END_FIN)) {
		c->end[s->side & 1].flags |= END_FIN;
		c->end[s->side & 1].next = segment_next(s);
		direction_ends(c, s->side);
	}
	return 0;
}

// A timer that died or stalls must not leave a port without a law, and one that may rest costs less: every
// 16th packet looks whether it shall sample.
static __always_inline void take_timers_place(struct port *port, __u64 seen, __u64 packets)
{
	struct port_config *config;
	__u32 id = port_id;
	__u64 now;

	if (!((seen ^ (seen - packets)) & ~15ull) || !port->running)
		return;
	config = bpf_map_lookup_elem(&configs, &id);
	if (!config)
		return;
	now = bpf_ktime_get_ns();
	port->looked_ns = now;
	if (law_may_sample(id, config, port, now))
		port_tick(id, 1);
}

static __always_inline int acknowledges(const struct segment *s)
{
	return (s->flags & (TCP_ACK | TCP_RST)) == TCP_ACK;
}

// The connection of a segment, NULL if it is in no table: what its SYNs tell is noted on the way.
static __always_inline struct connection *connection_of(struct __sk_buff *ctx, struct segment *s, int *table)
{
	struct connection *c;

	if (!(s->flags & TCP_SYN)) {
		c = bpf_map_lookup_elem(&flows, &s->key);
		if (c)
			return c;
		*table = on_unknown(ctx, s);
	} else if (s->flags & TCP_ACK) {
		*table = on_syn_ack(ctx, s);
	} else {
		*table = on_syn(ctx, s);
	}
	if (*table == TABLE_FLOWS)
		return bpf_map_lookup_elem(&flows, &s->key);
	if (*table == TABLE_PENDING)
		return bpf_map_lookup_elem(&pending, &s->key);
	return NULL;
}

// A segment of no connection.
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

static __always_inline int fairq_packet(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct port_counts *stats = bpf_map_lookup_elem(&counts, &id);
	struct control *control = control_of();
	__u64 packets = packets_of(ctx);
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct segment s = {};
	struct connection *c;
	enum segment_kind kind;
	__u16 field;
	int table = TABLE_NONE, left;

	if (!port || !stats || !control)
		return TCX_NEXT;
	stats->seen += packets;
	if (port->device != (__u64)skb->dev)
		port->device = (__u64)skb->dev;
	take_timers_place(port, stats->seen, packets);
	kind = segment_read(ctx, &s);
	if (kind != SEGMENT_TCP) {
		count_not_tcp(&stats->not_tcp, kind, packets);
		return TCX_NEXT;
	}
	c = connection_of(ctx, &s, &table);
	if (!c)
		return on_no_connection(ctx, &s, stats, packets, table == TABLE_OUT_OF_SCOPE);
	if (c->seen != control->sweep) {
		arm_sweep(&c->acks[0], control->sweep - c->seen);
		arm_sweep(&c->acks[1], control->sweep - c->seen);
		c->seen = control->sweep;
		adopt_sweep(&c->end[0]);
		adopt_sweep(&c->end[1]);
		c->signs[0] = signs_later(c->signs[0]);
		c->signs[1] = signs_later(c->signs[1]);
		if (!in_scope(&s.key)) { // the scope is another one than when it was entered
			connection_remove(&s.key, c);
			return on_no_connection(ctx, &s, stats, packets, 1);
		}
	}
	if (!(c->flags & CONNECTION_BARE) && on_signed(ctx, &s, c, packets)) {
		stats->dropped += packets;
		return TCX_DROP;
	}
	if (s.payload && c->owner) // who is not in the table counts as no flow, whatever it sends with its SYN
		on_data(ctx, &s, c, port, stats, packets);
	if (s.flags & (TCP_FIN | TCP_RST))
		on_end(&s, c);
	if (!acknowledges(&s)) {
		stats->no_ack += packets;
		return TCX_NEXT;
	}
	if (count == COUNT_HANDSHAKE && c->syn_ns && is_opener(c, &s))
		handshake_ends(c);
	left = edge_interval ? edge_leaves(&s, c, stats, packets) : -1;
	field = left < 0 ? on_ack(ctx, &s, c, stats, packets) : left;
	if (!(c->end[s.side & 1].flags & END_SCALE))
		adopt_ack(&c->end[s.side & 1], &s, field);
	return TCX_NEXT;
}

SEC("tcx/egress")
int weir_fairq(struct __sk_buff *ctx)
{
	return fairq_packet(ctx);
}

// ---- what user space runs ----

struct port_arg {
	__u32 id;
};

// Sets the port's timer going, or makes the one that is there run this program's code from now on.
SEC("syscall")
int weir_fairq_arm(struct port_arg *arg)
{
	__u32 id = arg->id;
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);
	long err;

	if (!slot)
		return 1;
	err = bpf_timer_init(&slot->timer, &timers, CLOCK_MONOTONIC);
	if (err && err != -EBUSY) // EBUSY: there is one, and it is taken over
		return err;
	err = bpf_timer_set_callback(&slot->timer, port_timer);
	return err ? err : bpf_timer_start(&slot->timer, 0, 0);
}

SEC("syscall")
int weir_fairq_disarm(struct port_arg *arg)
{
	__u32 id = arg->id;
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);

	return slot ? bpf_timer_cancel(&slot->timer) : 1;
}

struct port_clear_arg {
	__u32 id;
	__u32 all; // 1: the number is another port's from now on
};

// Clears what a port grants, once its timer has stopped: connections may still name it. With all it also clears
// the rest of its state but for what connections of the former port still take from. User space never writes a port
// itself: it would write back counts that packets changed since it read them.
SEC("syscall")
int weir_fairq_clear(struct port_clear_arg *arg)
{
	struct port *port = port_of(arg->id);
	__u32 *words = (__u32 *)port;

	if (!port)
		return 1;
	bpf_spin_lock(&port->lock);
	port->grant_q8 = 0;
	port->let_go_q8 = 0;
	port->running = 0;
	port->enforced = 0;
	bpf_spin_unlock(&port->lock);
	if (!arg->all)
		return 0;
	// They sit in epochs and registers that are over then.
	port->generation++;
	port->epoch += FLOWS_WHEEL;
	for (__u32 i = offsetof(struct port, running) / 4; i < sizeof(*port) / 4; i++) {
		if (i == offsetof(struct port, epoch) / 4 || i == offsetof(struct port, epoch) / 4 + 1 ||
		    i == offsetof(struct port, generation) / 4 || i == offsetof(struct port, owned) / 4)
			continue;
		words[i] = 0;
	}
	return 0;
}
