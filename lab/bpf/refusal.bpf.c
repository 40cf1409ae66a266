// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Keeps from Open vSwitch in user space that a port's queue refused a frame. It sends many frames with one
// call, and when the kernel reports one as refused it throws away those behind it, though there is room for
// them. So a frame that finds no room is sent again from here: the queue refuses and counts it all the
// same, once, but what comes of a redirected frame is reported to nobody.
//
// One instance runs on each port. It stands behind the laws, which see such a frame twice.
#include "../../datapath/bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SENT_AGAIN 0x57656972 // as a mark: nothing else in a lab has marks

char _license[] SEC("license") = WEIR_LICENSE;

const volatile __u32 limit_bytes = 0; // of the queue

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

SEC("tcx/egress")
int weir_refusal(struct __sk_buff *ctx)
{
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);
	struct Qdisc *root = skb->dev->qdisc;

	if (ctx->mark == SENT_AGAIN) {
		ctx->mark = 0;
		return TCX_NEXT;
	}
	// Only ovs-vswitchd sends here, so the queue does not grow meanwhile.
	if (!root || root->qstats.backlog + ctx->len <= limit_bytes)
		return TCX_NEXT;
	ctx->mark = SENT_AGAIN;
	return bpf_redirect(ctx->ifindex, 0);
}
