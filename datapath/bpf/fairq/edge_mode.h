// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode in the switch program (docs/fairq.md): an ACK is left to the edge, or advertises a window to it. The file
// advertise.h decides which. If the constant edge_interval is 0, the program contains none of this code.
#ifndef WEIR_BPF_EDGE_MODE_H
#define WEIR_BPF_EDGE_MODE_H

#include "canary.h"
#include "advertise.h"
#include "flows.h"
#include "observe.h"
#include "port.h"
#include "unify.h"

// Returns the field that the edge will write, if the ACK is left to it. Returns -1 if the ACK must advertise, or if
// nothing was advertised for its flow.
__noinline int edge_leaves(struct segment *s, struct connection *c, struct port_counts *stats, __u64 packets)
{
	struct granted granted = {};
	struct port_config *config;
	struct asked asked = {};
	struct end *e, *sender;
	struct edge_ack ack;
	struct port *port;
	__u32 id, left;
	__u8 shift;
	int due;

	if (!s || !c || !stats || s->flags & TCP_SYN || s->is_signed)
		return -1;
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	id = (__u32)sender->port - 1;
	port = port_of(id);
	config = bpf_map_lookup_elem(&configs, &id);
	shift = shift_of(e, s) & 15;
	if (!e->edge_advertised || !port || !config)
		return -1;
	asked_begins(&asked, id, port);
	grant_of(config, port, c->bucket, 0, 1, 0, &granted);
	asked_grants(&asked, config, port, &granted);
	asked_about(&asked, s, c, shift, 0, 0, packets);
	edge_ack_of(&ack, s, shift, granted.window_q8);
	e = asked_sees(&asked, e);
	due = edge_due(e, &ack);
	asked_edge(&asked, &ack, due);
	asked_left(&asked, s, c, due ? LEFT_NOT : LEFT_TO_EDGE);
	if (due)
		return -1;
	left = edge_left(e, s->window, shift);
	observe_ack(c, s, (__u32)s->window << shift, left, packets, is_watched());
	stats->left_to_edge += packets;
	return left >> shift;
}

// Handles an ACK that is not left to the edge. field: its window under the law's limit. may: it may advertise
// (core/fairq/groups.h). Returns the field that leaves, and sets the flag in *bits if the ACK advertises.
static __always_inline __u16 edge_handles(const struct window_ack *w, struct end *receiver, const struct segment *s,
					     __u16 field, __u8 *bits, const struct granted *granted, int may,
					     struct asked *asked)
{
	struct end *seen = asked_sees(asked, receiver);
	struct edge_ack ack;
	int due;

	if (w->syn)
		return field;
	edge_ack_of(&ack, s, w->shift, granted->window_q8);
	due = may && edge_due(seen, &ack);
	asked_edge(asked, &ack, due);
	if (!due)
		return field;
	*bits |= EDGE_FLAG;
	field = edge_advertise(seen, &ack, field);
	asked_keeps(asked, receiver);
	return field;
}

#endif
