// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Counts of acknowledgements for a canary, a rollback or an observer: how far ACKs advanced, whether they were limited,
// and to which window. They are kept only while `watched` is set in the control entry.
#ifndef WEIR_BPF_OBSERVE_H
#define WEIR_BPF_OBSERVE_H

#include "canary.h"
#include "flows.h"
#include "port.h"

// Counts an acknowledgement: the bytes that it offered, and those that it grants or, of an unlimited flow, would grant.
__noinline int observe_counts(struct connection *c, const struct segment *s, __u32 offered, __u32 granted, __u64 packets)
{
	struct port_groups *counts;
	struct group_counts *group;
	struct acks *acks;
	struct port *port;
	__u32 id;

	if (!c || !s)
		return 0;
	acks = &c->acks[s->side & 1];
	acks->offered = offered;
	acks->granted = granted;
	id = (__u32)c->end[!s->side].port - 1;
	port = port_of(id);
	counts = bpf_map_lookup_elem(&groups, &id);
	if (!port || !counts) // the port that the data leaves by is not known
		return 0;
	group = &counts->group[is_limited(port, c)];
	if (granted < offered)
		group->limited += packets;
	group_ack(c, s, group, packets);
	return 0;
}

// Handles an acknowledgement that leaves. watched: it is counted. offered, granted: as in observe_counts.
static __always_inline void observe_ack(struct connection *c, const struct segment *s, __u32 offered, __u32 granted,
					__u64 packets, int watched)
{
	if (unlikely(watched))
		observe_counts(c, s, offered, granted, packets);
	else if (c->end[!s->side].port)
		group_ack(c, s, NULL, packets);
}

#endif
