// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Hides from Open vSwitch in user space that a port's queue refused a frame. Open vSwitch sends many frames
// with one call. When the kernel reports one as refused, Open vSwitch drops the frames after it, even if the
// queue has room for them. So this program sends a frame without room again: the queue still refuses and
// counts it, once, but the result of a redirected frame is not reported to the sender.
//
// One instance runs on each port, after the laws, which see such a frame twice.
#include "../../datapath/bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SENT_AGAIN 0x57656972 // a packet mark: nothing else in a lab uses marks

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
