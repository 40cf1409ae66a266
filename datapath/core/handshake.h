// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads MSS, window scale and options of both ends from SYN and SYN-ACK, as they pass.
//
//   SYN      A -> B   is recorded only: anybody can send one
//   SYN-ACK  B -> A   counts if it acknowledges the recorded SYN. Then the window scales are known: a scale counts only
//                     if both ends announced one (RFC 7323 1.3)
//
// Sequence numbers are u32, compared modulo 2^32. Shifts are 0 .. 14; MSS in bytes, 0: no such option. Sides are 0 and 1.
#ifndef WEIR_CORE_HANDSHAKE_H
#define WEIR_CORE_HANDSHAKE_H

#include "types.h"

#define HANDSHAKE_ACK_MAX 0xffffu // bytes that an answer may acknowledge beyond a SYN: data in it (RFC 7413)

enum handshake_flags {
	HANDSHAKE_ASKED = 1,  // a SYN was seen: asked, opener and asked_* are valid
	HANDSHAKE_KNOWN = 2,  // a SYN-ACK answered a SYN: shift and mss are valid
	HANDSHAKE_SCALE = 4,  // asked_flags: the SYN had a window scale
	HANDSHAKE_SIGNED = 8, // TCP-MD5 or TCP-AO
	HANDSHAKE_ACCECN = 16,
};

// A SYN or SYN-ACK.
struct syn {
	weir_u32 seq;
	weir_u32 ack;
	weir_u16 mss;
	weir_u8 shift;
	weir_u8 flags; // HANDSHAKE_SCALE, HANDSHAKE_SIGNED; of a SYN-ACK HANDSHAKE_ACCECN, if it agrees
	weir_u8 side;  // that sent it
	weir_u8 zero[3];
};

// The state of a handshake. A SYN alone changes only opener and asked...: shift and mss stay.
struct handshake {
	weir_u32 asked; // sequence number behind the latest SYN
	weir_u8 opener; // side that sent that SYN
	weir_u8 asked_shift;
	weir_u8 asked_flags; // HANDSHAKE_SCALE, HANDSHAKE_SIGNED (every segment is, or none); HANDSHAKE_ACCECN if an answer agreed
	weir_u8 flags;       // HANDSHAKE_ASKED, HANDSHAKE_KNOWN, HANDSHAKE_SIGNED, HANDSHAKE_ACCECN
	weir_u16 asked_mss;
	weir_u16 mss[2];  // announced by each side; 0: none
	weir_u8 shift[2]; // of the windows of each side
};

// Reports whether an acknowledgement number acknowledges a SYN. asked: the sequence number behind the SYN.
WEIR_INLINE int syn_acknowledged(weir_u32 ack, weir_u32 asked) { return ack - asked <= HANDSHAKE_ACK_MAX; }

// Event: a SYN passes. Returns 0 if it was sent again and has nothing new.
WEIR_INLINE int syn_asks(struct handshake *h, const struct syn *s)
{
	if (h->flags & HANDSHAKE_ASKED && h->opener == (s->side & 1) && h->asked == s->seq + 1)
		return 0;
	h->asked = s->seq + 1;
	h->opener = s->side & 1;
	h->asked_shift = s->shift;
	h->asked_mss = s->mss;
	h->asked_flags = s->flags & (HANDSHAKE_SCALE | HANDSHAKE_SIGNED);
	h->flags |= HANDSHAKE_ASKED;
	return 1;
}

// Event: a SYN-ACK passes. Returns 1 if it answers the recorded SYN.
WEIR_INLINE int syn_answered(struct handshake *h, const struct syn *s)
{
	weir_u8 opener = h->opener & 1;
	int scaled;

	if (!(h->flags & HANDSHAKE_ASKED) || h->opener == (s->side & 1) || !syn_acknowledged(s->ack, h->asked))
		return 0;
	scaled = h->asked_flags & HANDSHAKE_SCALE && s->flags & HANDSHAKE_SCALE;
	h->shift[!opener] = scaled ? s->shift : 0;
	h->shift[opener] = scaled ? h->asked_shift : 0;
	h->mss[!opener] = s->mss;
	h->mss[opener] = h->asked_mss;
	h->asked_flags |= s->flags & HANDSHAKE_ACCECN;
	h->flags = HANDSHAKE_ASKED | HANDSHAKE_KNOWN | (h->asked_flags & (HANDSHAKE_SIGNED | HANDSHAKE_ACCECN));
	return 1;
}

#endif
