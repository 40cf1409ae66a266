// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A law that marks a packet leaves a note for the telemetry of the same port, further down the chain. A packet that an earlier switch
// marked has CE, too, and only the note shows that it was not marked here. The note is in skb->cb, which all programs of a chain share and
// nobody clears: so it has the port's identity. The ifindex alone repeats in every namespace.
#ifndef WEIR_BPF_MARKED_H
#define WEIR_BPF_MARKED_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#define MARKED_NOTE 0x57656972 // "Weir"
#define MARKED_PORT 2 // places in cb; the lab's measuring program has the last one
#define MARKED_NETNS 3

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

static __always_inline __u32 marked_netns(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	__u64 cookie = skb->dev->nd_net.net->net_cookie;

	return (__u32)cookie ^ (__u32)(cookie >> 32);
}

// Notes that the port by which ctx leaves has marked it.
static __always_inline void marked_here(struct __sk_buff *ctx)
{
	ctx->cb[MARKED_PORT] = ctx->ifindex ^ MARKED_NOTE;
	ctx->cb[MARKED_NETNS] = marked_netns(ctx);
}

// Reports whether the port by which ctx leaves has marked it, and removes the note.
static __always_inline int was_marked_here(struct __sk_buff *ctx)
{
	if (ctx->cb[MARKED_PORT] != (ctx->ifindex ^ MARKED_NOTE) || ctx->cb[MARKED_NETNS] != marked_netns(ctx))
		return 0;
	ctx->cb[MARKED_PORT] = 0;
	return 1;
}

#endif
