// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What every program counts of the packets that it looks at. Packets are counted as they are on the wire.
#ifndef WEIR_BPF_COUNTS_H
#define WEIR_BPF_COUNTS_H

#include "segment.h"

// The packets that a buffer becomes on the wire: a GSO packet's segments.
static __always_inline __u64 packets_of(const struct __sk_buff *ctx) { return ctx->gso_segs > 1 ? ctx->gso_segs : 1; }

// Counts packets without a TCP header that can be read. counters are four, in this order: other, tunnel, fragment, short.
static __always_inline void count_not_tcp(__u64 *counters, enum segment_kind kind, __u64 packets)
{
	switch (kind) {
	case SEGMENT_OTHER:
		counters[0] += packets;
		return;
	case SEGMENT_TUNNEL:
		counters[1] += packets;
		return;
	case SEGMENT_FRAGMENT:
		counters[2] += packets;
		return;
	default:
		counters[3] += packets;
	}
}

#endif
