// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The host's programs and the baselines of their benchmark.
#include "../../../bpf/host/host.bpf.c"
#include "../../bpftest/baselines.h"

#define TCP_AT 34 // of an IPv4 frame without tags and options

// Puts the window back that the packet came with.
static __always_inline void restore(struct __sk_buff *ctx, __be16 to)
{
	__be16 from;

	if (bpf_skb_load_bytes(ctx, TCP_AT + TCP_WINDOW, &from, sizeof(from)))
		return;
	bpf_l4_csum_replace(ctx, TCP_AT + TCP_CHECK, from, to, sizeof(to));
	bpf_skb_store_bytes(ctx, TCP_AT + TCP_WINDOW, &to, sizeof(to), 0);
}

SEC("tcx/egress")
int undo(struct __sk_buff *ctx)
{
	__be16 window;

	if (bpf_skb_load_bytes(ctx, TCP_AT + TCP_WINDOW, &window, sizeof(window)))
		return TCX_DROP;
	restore(ctx, window);
	return TCX_NEXT;
}

SEC("tcx/egress")
int clamp_and_undo(struct __sk_buff *ctx)
{
	__be16 window;

	if (bpf_skb_load_bytes(ctx, TCP_AT + TCP_WINDOW, &window, sizeof(window)))
		return TCX_DROP;
	weir_host_vm(ctx);
	restore(ctx, window);
	return TCX_NEXT;
}
