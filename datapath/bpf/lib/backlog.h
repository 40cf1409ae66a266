// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The queue of the device by which a packet leaves, for tcx egress programs.
#ifndef WEIR_BPF_BACKLOG_H
#define WEIR_BPF_BACKLOG_H

#include "kernel.h"

// Tests define BACKLOG(ctx) as a number of their own.
#ifndef BACKLOG
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

// Returns the bytes in the queue of the device that ctx leaves by, without ctx itself. It takes no lock: the kernel writes
// the 32 bits in one store.
static __always_inline __u32 backlog_of(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct Qdisc *root = skb->dev->qdisc;

	return root ? root->qstats.backlog : 0;
}
#define BACKLOG(ctx) backlog_of(ctx)
#endif

#endif
