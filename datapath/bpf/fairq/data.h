// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Segments with payload that leave by the port, and the end of a direction: FIN and RST.
#ifndef WEIR_BPF_DATA_H
#define WEIR_BPF_DATA_H

#include "canary.h"
#include "connection.h"
#include "flows.h"
#include "port.h"
#include "slots.h"

// Handles data that leaves by this port, of this id: its direction counts here, and this port's window governs it. belongs: a
// constant 1 without promises and credits, else credit_belongs.
static __always_inline void on_data(struct __sk_buff *ctx, struct segment *s, struct connection *c, struct port *port, __u32 id,
				    struct port_counts *stats, __u64 packets, int watched, int belongs)
{
	struct end *e = &c->end[s->side & 1], *receiver = &c->end[!s->side];

	stats->data += packets;
	if (unlikely(!port->data_seen))
		port->data_seen = 1;
	if (unlikely(e->port != id + 1))
		e->port = id + 1;
	if (unlikely(c->flags & CONNECTION_RESET)) // the ends did not accept the RST: data goes on
		c->flags &= ~CONNECTION_RESET;
	end_sends(e, segment_next(s));
	if (unlikely(e->slot != slot_at(id, port->epoch)))
		slot_take(c, s->side, id);
	if (unlikely(e->registration) && count == COUNT_HANDSHAKE && register_lapsed(port, e, id))
		register_enter(c, s->side);
	if (unlikely(ctx->gso_size > e->gso))
		e->gso = ctx->gso_size < 0xffff ? ctx->gso_size : 0xffff;
	if (unlikely(!(receiver->flags & END_SCALE)))
		adopt_data(receiver, s);
	if (belongs)
		group_data(c, s, is_limited(port, c), watched);
}

// Handles FIN or RST of a connection in the table.
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
	if (end_finishes(&c->end[s->side & 1], segment_next(s)))
		direction_ends(c, s->side);
	return 0;
}

#endif
