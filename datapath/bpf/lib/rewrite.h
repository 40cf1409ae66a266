// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Writes into a TCP header (window, reserved bits, options) and updates its checksum.
#ifndef WEIR_BPF_REWRITE_H
#define WEIR_BPF_REWRITE_H

#include <bpf/bpf_core_read.h>
#include "../../core/window.h"
#include "segment.h"

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

// Reports whether the device adds the checksum. The header then has the sum of the pseudo-header, and a write does not
// change that.
static __always_inline int checksum_is_partial(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	return BPF_CORE_READ_BITFIELD(skb, ip_summed) == CHECKSUM_PARTIAL;
}

// Stores `bytes` of the TCP header, from byte `at` to the end of its checksum, which is next to the changed words. One call
// takes half the time of bpf_l4_csum_replace and a store. Returns 0, or an error of the kernel (no memory): the packet is
// then unchanged.
//
// A partial checksum is not stored. skb->csum of a CHECKSUM_COMPLETE packet stays the same, because words and checksum
// change by opposite amounts. So the store recomputes nothing (flag 0).
static __always_inline long tcp_store(struct __sk_buff *ctx, const struct segment *s, __u32 at, const void *words,
				      __u32 bytes)
{
	if (checksum_is_partial(ctx))
		return bpf_skb_store_bytes(ctx, s->l4 + at, words, bytes - sizeof(__sum16), 0);
	return bpf_skb_store_bytes(ctx, s->l4 + at, words, bytes, 0);
}

// Replaces the window.
static __always_inline long window_write(struct __sk_buff *ctx, const struct segment *s, __u16 field)
{
	__be16 words[2] = {bpf_htons(field)};

	words[1] = window_checksum(s->check, bpf_htons(s->window), words[0]);
	return tcp_store(ctx, s, TCP_WINDOW, words, sizeof(words));
}

// Replaces the window and the reserved bits, which share a 16-bit word with data offset and flags.
static __always_inline long reserved_window_write(struct __sk_buff *ctx, const struct segment *s, __u8 reserved,
						  __u16 field)
{
	__u16 word = s->header / 4 << 12 | s->flags;
	__be16 words[3] = {bpf_htons(word | reserved << 8), bpf_htons(field)};

	words[2] = window_checksum(s->check, bpf_htons(word | s->reserved << 8), words[0]);
	words[2] = window_checksum(words[2], bpf_htons(s->window), words[1]);
	return tcp_store(ctx, s, TCP_RESERVED, words, sizeof(words));
}

// Replaces the reserved bits.
static __always_inline long reserved_write(struct __sk_buff *ctx, const struct segment *s, __u8 reserved)
{
	return reserved_window_write(ctx, s, reserved, s->window);
}

// Replaces two bytes of the options, `at` bytes from the start of the TCP header, and updates the checksum. It updates
// s->check, too, because the window may be written next. `at` is even; old and new are in wire order. Returns 0, or an
// error of the kernel: the packet is then unchanged.
static __always_inline long option_write(struct __sk_buff *ctx, struct segment *s, __u32 at, __be16 old, __be16 new)
{
	long err = bpf_l4_csum_replace(ctx, s->l4 + TCP_CHECK, old, new, sizeof(new));

	if (err)
		return err;
	s->check = window_checksum(s->check, old, new);
	// The checksum's write has made the header writable: the store cannot fail after it.
	return bpf_skb_store_bytes(ctx, s->l4 + at, &new, sizeof(new), 0);
}

#endif
