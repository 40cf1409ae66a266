// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode in the switch program (docs/fairq.md): an ACK is left to the edge, or advertises a window to it. Which does what
// is decided in edge_tell.h. With edge_interval 0, a constant of the program, none of this is in it.
#ifndef WEIR_BPF_EDGE_MODE_H
#define WEIR_BPF_EDGE_MODE_H

#include "arms.h"
#include "edge_tell.h"
#include "flows.h"
#include "observe.h"
#include "port.h"
#include "unify.h"

// Called once, so that the verifier checks it once.
__noinline int edge_observes(struct segment *s, struct connection *c, __u32 offered, __u32 granted, __u64 packets)
{
	if (!s || !c)
		return 0;
	observe_ack(c, s, port_of((__u32)c->end[!s->side].port - 1), offered, granted, packets);
	return 0;
}

// Gives the field that an ACK has behind the edge, to which it is left; -1: it is to advertise, or nothing was advertised
// of its flow.
__noinline int edge_leaves(struct segment *s, struct connection *c, struct port_counts *stats, __u64 packets)
{
	struct end *e, *sender;
	struct port *port;
	__u32 id, own, left;
	__u64 would;
	__u8 shift;

	if (!s || !c || !stats || s->flags & TCP_SYN || s->is_signed)
		return -1;
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	id = (__u32)sender->port - 1;
	port = port_of(id);
	shift = shift_of(e, s) & 15;
	if (!e->edge_told || !port || edge_due(e, s, shift, grant_of(port, c, &would)))
		return -1;
	own = (__u32)s->window << shift;
	left = e->edge_told < own ? e->edge_told : own;
	edge_observes(s, c, own, left, packets);
	stats->untold += packets;
	return left >> shift;
}

// An ACK that is not left to the edge. field is what the law makes of its window; free: its flow is not held, and passes as
// it is, also with what another switch advertised of it. Gives the field that leaves, and in bits the reserved bits.
static __always_inline __u16 edge_advertises(const struct window_ack *w, struct end *receiver, const struct segment *s,
					     __u16 field, __u8 *bits, __u64 grant, int free)
{
	if (w->syn || free || !edge_due(receiver, s, w->shift, grant))
		return field;
	*bits |= EDGE_FLAG;
	return edge_tell(receiver, s, field, w->shift, grant);
}

#endif
