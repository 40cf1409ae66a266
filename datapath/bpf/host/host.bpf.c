// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Enforcement at a hypervisor (docs/host.md). Both programs are at tcx egress:
//
//   weir_host_vm      of a VM's port, towards the VM: windows of ACKs (clamp.h), marks (came.h), the ECN field (vmecn.h); a source check of
//                     packets from other VMs of this host (guest.h), which pass no uplink
//   weir_host_up      of the uplink: source check (guest.h), the ECN field, and the class of HTB (bucket.h)
//
// Without user space windows are released after a second, and packets keep passing.
#include "came.h"
#include "vmecn.h"

char _license[] SEC("license") = WEIR_LICENSE;

const volatile __u32 relaxed_class = 0; // skb->priority of the relaxed class; 0: the uplink has no limiter

SEC("tcx/egress")
int weir_host_vm(struct __sk_buff *ctx)
{
	__u32 from = 0, id = vm_behind(ctx->ifindex);
	struct host_counts *stats, *senders = 0;
	struct host_vm *vm = 0;
	__u32 agreed;

	if (guest_check(ctx, &from, &vm, &senders) == GUEST_DROP)
		return TCX_DROP;
	if (senders)
		senders->local += packets_of(ctx);
	if (!id--)
		return TCX_NEXT;
	stats = bpf_map_lookup_elem(&counts, &id);
	if (!stats)
		return TCX_NEXT;
	agreed = segment_clamp(ctx, stats, id);
	if (count_came && ctx->ingress_ifindex == uplink_ifindex)
		stats->marked += came_count(ctx, id);
	if (ecn_mode && vm_ecn(ctx, agreed, 1) > 0)
		stats->ecn_cleared += packets_of(ctx);
	return TCX_NEXT;
}

// Returns the smallest valid rate of a VM, in bit/s; 0: none.
static __always_inline __u64 rate_of(__u32 id)
{
	struct host_grants *g = bpf_map_lookup_elem(&vm_grants, &id);
	__u64 now, bps = 0;

	if (!g)
		return 0;
	now = bpf_ktime_get_coarse_ns();
	for (__u32 i = 0; i < GRANTS_A_KEY; i++) {
		__u32 slot = g->rate.grant[i].owner & (GRANT_OWNERS - 1);
		struct grant_owner *owner;

		if (!(g->rate.grant[i].flags & GRANT_SET))
			continue;
		owner = bpf_map_lookup_elem(&owners, &slot);
		if (owner)
			bps = grant_rate(bps, &g->rate.grant[i], owner, now);
	}
	return bps;
}

SEC("tcx/egress")
int weir_host_up(struct __sk_buff *ctx)
{
	struct host_counts *stats = 0;
	struct host_vm *vm = 0;
	__u32 from = 0, class;
	enum guest_fate fate = guest_check(ctx, &from, &vm, &stats);

	if (fate == GUEST_DROP)
		return TCX_DROP;
	if (!vm || !stats)
		return TCX_NEXT; // the host's own, or not from a VM of the list
	if (ecn_mode && fate != GUEST_NO_ECN && vm_ecn(ctx, ecn_sent(ctx, from), 0) > 0)
		stats->ecn_set += packets_of(ctx);
	class = relaxed_class ? bucket_class(rate_of(from), vm->class, relaxed_class) : 0;
	if (class)
		ctx->priority = class;
	if (class && class != relaxed_class)
		stats->in_class += packets_of(ctx);
	else
		stats->relaxed += packets_of(ctx);
	return TCX_NEXT;
}
