// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads what SYN and SYN-ACK announce, as they pass. The rules are in core/handshake.h. `struct handshake` is for
// programs that need no other state of a connection.
#ifndef WEIR_BPF_HANDSHAKE_H
#define WEIR_BPF_HANDSHAKE_H

#include "../../core/handshake.h"
#include "options.h"

// Reports whether a segment acknowledges a SYN. asked: the sequence number behind the SYN.
static __always_inline int handshake_answers(const struct segment *s, __u32 asked)
{
	return syn_acknowledged(s->ack, asked);
}

// Reports whether windows are scaled: both ends announced the option.
static __always_inline int handshake_scales(int asked, const struct tcp_options *answer)
{
	return asked && answer->has_scale;
}

static __always_inline void syn_of(struct syn *syn, const struct segment *s, const struct tcp_options *o)
{
	syn->seq = s->seq;
	syn->ack = s->ack;
	syn->mss = o->mss;
	syn->shift = o->shift;
	syn->flags = (o->has_scale ? HANDSHAKE_SCALE : 0) | (o->is_signed ? HANDSHAKE_SIGNED : 0);
	syn->side = s->side;
}

// Records a SYN. Returns 0 if it was sent again and has nothing new.
static __always_inline int handshake_asks(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	struct syn syn = {};

	syn_of(&syn, s, o);
	return syn_asks(h, &syn);
}

// Records a SYN-ACK. Returns 1 if it answers the recorded SYN.
static __always_inline int handshake_answered(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	struct syn syn = {};

	syn_of(&syn, s, o);
	if (segment_answers_accecn(s))
		syn.flags |= HANDSHAKE_ACCECN;
	return syn_answered(h, &syn);
}

#endif
