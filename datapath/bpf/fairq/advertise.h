// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode in the switch: core/fairq/edge.h decides which ACKs advertise a window to the edge, and which window. The
// other ACKs pass unchanged. SYN-ACKs are always rewritten and never flagged.
#ifndef WEIR_BPF_ADVERTISE_H
#define WEIR_BPF_ADVERTISE_H

#include "edge.h"
#include "flows.h"

static __always_inline void edge_config_set(struct edge_config *config)
{
	config->interval = edge_interval;
	config->lease = edge_lease;
	config->change = edge_change;
	config->zero = 0;
}

static __always_inline void edge_ack_of(struct edge_ack *a, const struct segment *s, __u8 shift, __u64 grant_q8)
{
	a->grant_q8 = grant_q8;
	a->now = edge_clock();
	a->field = s->window;
	a->shift = shift;
	a->flagged = !!(s->reserved & EDGE_FLAG);
}

// Reports whether the ACK must advertise.
__noinline int edge_due(const struct end *e, const struct edge_ack *a)
{
	struct edge_config config;

	if (!e || !a)
		return 0;
	edge_config_set(&config);
	return edge_is_due(&config, e, a);
}

// Advertises on this ACK. `field` is its window under the law's limit. Returns the field that is advertised.
__noinline int edge_advertise(struct end *e, const struct edge_ack *a, __u32 field)
{
	struct edge_config config;

	if (!e || !a)
		return field;
	edge_config_set(&config);
	return edge_advertises(&config, e, a, field);
}

#endif
