// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a handshake tells, read from SYN and SYN-ACK as they pass: the rules are core/handshake.h. `struct handshake` is
// for programs that need to know no more than this of a connection.
#ifndef WEIR_BPF_HANDSHAKE_H
#define WEIR_BPF_HANDSHAKE_H

#include "../../core/handshake.h"
#include "options.h"

// Whether a segment acknowledges a SYN: `asked` is the number behind it.
static __always_inline int handshake_answers(const struct segment *s, __u32 asked)
{
	return syn_acknowledged(s->ack, asked);
}

// Whether windows are scaled: both ends announced it.
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

// A SYN. 0: it was sent again, and tells nothing new.
static __always_inline int handshake_asks(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	struct syn syn = {};

	syn_of(&syn, s, o);
	return syn_asks(h, &syn);
}

// A SYN-ACK. 1: it answers the SYN that was noted.
static __always_inline int handshake_answered(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	struct syn syn = {};

	syn_of(&syn, s, o);
	if (segment_answers_accecn(s))
		syn.flags |= HANDSHAKE_ACCECN;
	return syn_answered(h, &syn);
}

#endif
