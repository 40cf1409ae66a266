// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Counts that every program keeps of the packets that it reads. Packets count as on the wire.
#ifndef WEIR_BPF_COUNTS_H
#define WEIR_BPF_COUNTS_H

#include "segment.h"

// Returns the number of packets on the wire: a GSO packet has several segments. A large packet that a guest leaves to its virtio device has no
// number of segments yet: the kernel counts them later. It counts as its whole segments, with the shortest headers of TCP.
static __always_inline __u64 packets_of(const struct __sk_buff *ctx)
{
	__u32 headers = FRAME_ETH_BYTES + FRAME_IPV4_BYTES + TCP_BYTES, bytes = ctx->gso_size, segments;

	if (likely(!bytes))
		return 1;
	segments = ctx->gso_segs;
	if (unlikely(!segments && ctx->len > headers))
		segments = (ctx->len - headers) / bytes;
	return segments ? segments : 1;
}

// Counts packets without a readable TCP header. counters has four elements: other, tunnel, fragment, short.
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
