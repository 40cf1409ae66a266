// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Marking at an instantaneous threshold: the laws `ecn` (mark) and `red` (drop).
//
// Numeric specification
//   backlog_bytes    u32, bytes that wait in the port's queue, without this packet. As the
//                    queue discipline counts them (with Ethernet headers).
//   threshold_bytes  u32, K in bytes. 0 is allowed: every packet behind another one is marked.
//   ecn              the two low bits of the IPv4 TOS byte or IPv6 traffic class: 0 Not-ECT,
//                    1 ECT(1), 2 ECT(0), 3 CE (RFC 3168). Higher bits are ignored.
//   The queue is over the threshold when backlog_bytes > threshold_bytes, strictly. DCTCP marks
//   "if the queue occupancy is greater than K upon its arrival" (Alizadeh et al., SIGCOMM 2010,
//   section 3.1). So a packet that finds an empty queue is never marked, even with K = 0.
//   No state, no average, no randomness, no rounding: one comparison of two integers.
//
//              at or under K     over K, action `mark`            over K, action `drop`
//   Not-ECT    pass              not_ect: pass -> pass,            drop
//                                not_ect: drop -> drop
//   ECT(0|1)   pass              becomes CE                        drop
//   CE         pass              pass: it is marked already        drop
//
// `mark` with `not_ect: drop` is RED with ECN whose thresholds coincide (RFC 3168 section 5);
// `drop` is RED without ECN. `not_ect: pass` passes Linux's SYN-ACKs, pure ACKs and
// retransmissions, which are Not-ECT.
#ifndef WEIR_CORE_MARK_H
#define WEIR_CORE_MARK_H

#include "types.h"

enum mark_ecn {
	MARK_ECN_NOT_ECT = 0,
	MARK_ECN_ECT1 = 1,
	MARK_ECN_ECT0 = 2,
	MARK_ECN_CE = 3,
	MARK_ECN_MASK = 3,
};

enum mark_action {
	MARK_ACTION_MARK = 0,
	MARK_ACTION_DROP = 1,
};

enum mark_not_ect {
	MARK_NOT_ECT_PASS = 0,
	MARK_NOT_ECT_DROP = 1,
};

// The configuration of a port. A value outside an enumeration acts as its 0.
struct mark_config {
	weir_u32 threshold_bytes;
	weir_u8 action;  // enum mark_action
	weir_u8 not_ect; // enum mark_not_ect; only with MARK_ACTION_MARK
};

// The decision about a packet, with its reason. Each outcome has its own counter.
enum mark_verdict {
	MARK_PASS_UNDER,   // the queue is at or under the threshold
	MARK_PASS_CE,      // over it, CE already
	MARK_PASS_NOT_ECT, // over it, cannot be marked, passes
	MARK_SET_CE,       // over it: rewrite ECT to CE
	MARK_DROP_LAW,     // over it, action drop
	MARK_DROP_NOT_ECT, // over it, action mark, cannot be marked
};

WEIR_INLINE enum mark_verdict mark_decide(const struct mark_config *config, weir_u32 backlog_bytes, weir_u8 ecn)
{
	if (backlog_bytes <= config->threshold_bytes)
		return MARK_PASS_UNDER;
	if (config->action == MARK_ACTION_DROP)
		return MARK_DROP_LAW;
	switch (ecn & MARK_ECN_MASK) {
	case MARK_ECN_CE:
		return MARK_PASS_CE;
	case MARK_ECN_NOT_ECT:
		return config->not_ect == MARK_NOT_ECT_DROP ? MARK_DROP_NOT_ECT : MARK_PASS_NOT_ECT;
	default:
		return MARK_SET_CE;
	}
}

#endif
