// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Counts of acknowledgements for a canary, a rollback or an observer: how far they moved, whether they were limited,
// and to what. They are kept only while the control entry says that somebody watches.
#ifndef WEIR_BPF_OBSERVE_H
#define WEIR_BPF_OBSERVE_H

#include "arms.h"
#include "flows.h"
#include "port.h"

// An acknowledgement leaves that offered so many bytes, and grants so many; of a free flow: that would.
static __always_inline void observe_ack(struct connection *c, const struct segment *s, const struct port *port,
					__u32 offered, __u32 granted, __u64 packets)
{
	const struct end *sender = &c->end[!s->side];
	struct acks *acks = &c->acks[s->side & 1];
	struct arm_counts *arm = NULL;

	if (is_watched()) {
		acks->offered = offered;
		acks->granted = granted;
		if (port)
			arm = arm_of((__u32)sender->port - 1, is_held(port, c));
		if (arm && granted < offered)
			arm->limited += packets;
	}
	if (sender->port)
		arm_ack(c, s, arm, packets);
}

#endif
