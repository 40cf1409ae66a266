// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Whether a segment belongs to its connection. A forger who sees no packet of both ends does not know their sequence numbers. A segment
// that does not belong begins no turn, gets no credits, and does not change what is known of the ends.
//
// While the program is not attached, or a route leads elsewhere, a connection can send more than is near. Both ends then show where it is:
// one sends data without a gap (a run), and the other acknowledges a byte of this data.
#ifndef WEIR_CORE_CREDIT_FITS_H
#define WEIR_CORE_CREDIT_FITS_H

#include "../types.h"

#define CREDIT_REACH (1u << 22) // bytes: more than is in flight in one direction

// Sequence numbers of data without a gap: its first byte, and behind its last. Equal: none.
struct credit_run {
	weir_u32 from, to;
};

// Reports whether a sequence number is near the one behind the furthest data of its stream.
WEIR_INLINE int credit_is_near(weir_u32 seq, weir_u32 sent) { return seq - sent + CREDIT_REACH < 2 * CREDIT_REACH; }

// Reports whether a segment belongs to its connection: its numbers are near those that both ends have sent. sent: number behind
// the furthest data of its sender; others: of the other end.
WEIR_INLINE int credit_fits(weir_u32 seq, weir_u32 sent, weir_u32 ack, weir_u32 others)
{
	return ((seq - sent + CREDIT_REACH) | (ack - others + CREDIT_REACH)) < 2 * CREDIT_REACH; // a power of 2: both are below it
}

// Event: data that is not near. It continues the run, or begins another.
WEIR_INLINE void credit_stray(struct credit_run *run, weir_u32 seq, weir_u32 payload_bytes)
{
	if (run->from == run->to || seq != run->to)
		run->from = seq;
	run->to = seq + payload_bytes;
	if (run->to - run->from > CREDIT_REACH)
		run->from = run->to - CREDIT_REACH;
}

// Reports whether an acknowledgement is of a byte of the run.
WEIR_INLINE int credit_agrees(const struct credit_run *run, weir_u32 ack) { return ack - run->from - 1 < run->to - run->from; }

#endif
