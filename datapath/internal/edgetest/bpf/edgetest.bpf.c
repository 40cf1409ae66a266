// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The edge's programs and the baselines of their benchmark.
#include "../../../bpf/fairq/edge.bpf.c"
#include "../../bpftest/baselines.h"

const volatile __u32 tcp_at = 0;

// Puts the word of offset, flags and window back that the packet came with.
static __always_inline void restore(struct __sk_buff *ctx, __be32 to)
{
	__be32 from;

	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_RESERVED, &from, sizeof(from)))
		return;
	bpf_l4_csum_replace(ctx, tcp_at + TCP_CHECK, from, to, sizeof(to));
	bpf_skb_store_bytes(ctx, tcp_at + TCP_RESERVED, &to, sizeof(to), 0);
}

SEC("tcx/egress")
int undo(struct __sk_buff *ctx)
{
	__be32 word;

	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_RESERVED, &word, sizeof(word)))
		return TCX_DROP;
	restore(ctx, word);
	return TCX_NEXT;
}

SEC("tcx/egress")
int apply_and_undo(struct __sk_buff *ctx)
{
	__be32 word;

	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_RESERVED, &word, sizeof(word)))
		return TCX_DROP;
	edge_apply(ctx);
	restore(ctx, word);
	return TCX_NEXT;
}

SEC("tcx/egress")
int guard_and_undo(struct __sk_buff *ctx)
{
	__be32 word;

	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_RESERVED, &word, sizeof(word)))
		return TCX_DROP;
	edge_guard(ctx);
	restore(ctx, word);
	return TCX_NEXT;
}
