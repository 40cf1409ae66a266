// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a handshake tells, read from SYN and SYN-ACK as they pass. The rules stand here once; `struct handshake` is for
// programs that need to know no more than this of a connection.
//
//   SYN      A -> B   is noted only: anybody can send one
//   SYN-ACK  B -> A   counts if it acknowledges the SYN that was noted. Then the window scales are known: a scale counts
//                     only if both ends announced one (RFC 7323 1.3)
#ifndef WEIR_BPF_HANDSHAKE_H
#define WEIR_BPF_HANDSHAKE_H

#include "segment.h"

#define HANDSHAKE_ACK_MAX 0xffffu // how far an answer may acknowledge beyond a SYN: data in it (RFC 7413)

enum handshake_flags {
	HANDSHAKE_ASKED = 1,  // a SYN was seen: asked, opener and asked_* are valid
	HANDSHAKE_KNOWN = 2,  // and the SYN-ACK to one: shift and mss are valid
	HANDSHAKE_SCALE = 4,  // asked_flags: the SYN had a window scale
	HANDSHAKE_SIGNED = 8, // TCP-MD5 or TCP-AO
	HANDSHAKE_ACCECN = 16,
};

// What the handshake told. A SYN alone leaves what is known of the connection as it is.
struct handshake {
	__u32 asked; // acknowledges the last SYN
	__u8 opener; // side that sent it
	__u8 asked_shift;
	__u8 asked_flags; // HANDSHAKE_SCALE, HANDSHAKE_SIGNED (every segment is, or none); HANDSHAKE_ACCECN if an answer agreed
	__u8 flags;       // HANDSHAKE_ASKED, HANDSHAKE_KNOWN, HANDSHAKE_SIGNED, HANDSHAKE_ACCECN
	__u16 asked_mss;
	__u16 mss[2];  // that each side announced; 0: none
	__u8 shift[2]; // of the windows of each side
};

// Whether a segment acknowledges a SYN: `asked` is the number behind it.
static __always_inline int handshake_answers(const struct segment *s, __u32 asked)
{
	return s->ack - asked <= HANDSHAKE_ACK_MAX;
}

// Whether windows are scaled: both ends announced it.
static __always_inline int handshake_scales(int asked, const struct tcp_options *answer)
{
	return asked && answer->has_scale;
}

// A SYN. 0: it was sent again, and tells nothing new.
static __always_inline int handshake_asks(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	if (h->flags & HANDSHAKE_ASKED && h->opener == (s->side & 1) && h->asked == s->seq + 1)
		return 0;
	h->asked = s->seq + 1;
	h->opener = s->side & 1;
	h->asked_shift = o->shift;
	h->asked_mss = o->mss;
	h->asked_flags = (o->has_scale ? HANDSHAKE_SCALE : 0) | (o->is_signed ? HANDSHAKE_SIGNED : 0);
	h->flags |= HANDSHAKE_ASKED;
	return 1;
}

// A SYN-ACK. 1: it answers the SYN that was noted.
static __always_inline int handshake_answered(struct handshake *h, const struct segment *s, const struct tcp_options *o)
{
	__u8 opener = h->opener & 1;
	int scaled;

	if (!(h->flags & HANDSHAKE_ASKED) || h->opener == (s->side & 1) || !handshake_answers(s, h->asked))
		return 0;
	scaled = handshake_scales(h->asked_flags & HANDSHAKE_SCALE, o);
	h->shift[!opener] = scaled ? o->shift : 0;
	h->shift[opener] = scaled ? h->asked_shift : 0;
	h->mss[!opener] = o->mss;
	h->mss[opener] = h->asked_mss;
	if (segment_answers_accecn(s))
		h->asked_flags |= HANDSHAKE_ACCECN;
	h->flags = HANDSHAKE_ASKED | HANDSHAKE_KNOWN | (h->asked_flags & (HANDSHAKE_SIGNED | HANDSHAKE_ACCECN));
	return 1;
}

#endif
