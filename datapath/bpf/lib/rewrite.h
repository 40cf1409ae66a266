// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// How a program writes into a TCP header. Every write goes through tcp_write: window, reserved bits, options.
#ifndef WEIR_BPF_REWRITE_H
#define WEIR_BPF_REWRITE_H

#include "segment.h"

// Replaces `bytes` (2 or 4) of the TCP header, `at` bytes from its start, and updates the checksum. `at` is even; old and
// new are as on the wire. 0, or an error of the kernel's (no memory), the packet then being as it was.
//
// The helper knows the states of a checksum: whole, partial (the device adds the rest), complete (the sum over the
// packet, which stays: the word and the checksum change it to and fro, so the store recomputes nothing).
static __always_inline long tcp_write(struct __sk_buff *ctx, const struct segment *s, __u32 at, __be32 old, __be32 new,
				      __u32 bytes)
{
	long err = bpf_l4_csum_replace(ctx, s->l4 + TCP_CHECK, old, new, bytes);

	// The checksum's write has made the header writable: the store cannot fail after it.
	return err ? err : bpf_skb_store_bytes(ctx, s->l4 + at, &new, bytes, 0);
}

// Replaces the window.
static __always_inline long window_write(struct __sk_buff *ctx, const struct segment *s, __u16 field)
{
	return tcp_write(ctx, s, TCP_WINDOW, bpf_htons(s->window), bpf_htons(field), 2);
}

// Replaces the reserved bits, which stand in one word with data offset and flags.
static __always_inline long reserved_write(struct __sk_buff *ctx, const struct segment *s, __u8 reserved)
{
	__u16 word = s->header / 4 << 12 | s->flags;

	return tcp_write(ctx, s, TCP_RESERVED, bpf_htons(word | s->reserved << 8), bpf_htons(word | reserved << 8), 2);
}

// Replaces reserved bits and window in one write.
static __always_inline long reserved_window_write(struct __sk_buff *ctx, const struct segment *s, __u8 reserved,
						  __u16 field)
{
	__u32 word = (__u32)(s->header / 4) << 28 | (__u32)s->flags << 16;

	return tcp_write(ctx, s, TCP_RESERVED, bpf_htonl(word | (__u32)s->reserved << 24 | s->window),
			 bpf_htonl(word | (__u32)reserved << 24 | field), 4);
}

#endif
