// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A law that parks every TCP packet (or every packet) of a port, and records how packets come back.
#include "../../../bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../../bpf/lib/park.h"
#include "../../bpftest/baselines.h"

char _license[] SEC("license") = WEIR_LICENSE;

// The orders of the program. User space writes them.
struct rule {
	__u32 out, class, cost;
	__u32 enabled;
	__u32 all;      // also packets that are not TCP
	__u32 mark;     // set skb->mark and skb->priority before the call
	__u32 priority; // and keep them of packets that pass
};

// The counts of the program.
struct seen {
	__u64 sent;       // park_send returned PARK_REDIRECT
	__u64 refused;    // it returned PARK_PASS
	__u64 changed;    // refused, but the packet's mark, priority or length differs from before
	__u64 back;       // packets that came back
	__u64 gso_back;   // of those: GSO packets
	__u64 marked;     // came back with a mark
	__s64 debt;       // the sum
	__u32 priority;   // of the last packet that came back
	__u32 last_debt;
	__u64 first_ns;   // when the first packet was sent
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} sights SEC(".maps");

#define TIMES 1024

// When packets came back, in ns.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TIMES);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

#define ADD(field, n) __sync_fetch_and_add(&(field), n)

static __always_inline int is_tcp(struct __sk_buff *ctx)
{
	struct frame f = {};
	__u8 protocol = 0;

	frame_read(ctx, &f);
	if (f.kind != FRAME_IPV4 && f.kind != FRAME_IPV6)
		return 0;
	bpf_skb_load_bytes(ctx, f.l3 + (f.kind == FRAME_IPV4 ? 9 : 6), &protocol, 1);
	return protocol == 6;
}

SEC("tcx/egress")
int park_all(struct __sk_buff *ctx)
{
	__u32 zero = 0, length = ctx->len, mark, priority;
	struct rule *rule = bpf_map_lookup_elem(&rules, &zero);
	struct seen *seen = bpf_map_lookup_elem(&sights, &zero);
	__s32 debt = 0;
	int verdict;

	if (!rule || !seen)
		return TCX_NEXT;
	if (park_is_return(ctx)) {
		__u32 n = ADD(seen->back, 1);
		__u64 *at = bpf_map_lookup_elem(&times, &n);

		if (at)
			*at = bpf_ktime_get_ns();
		if (ctx->gso_size)
			ADD(seen->gso_back, 1);
		if (ctx->mark)
			ADD(seen->marked, 1);
		seen->priority = ctx->priority;
		return TCX_NEXT;
	}
	if (!rule->enabled || (!rule->all && !is_tcp(ctx)))
		return TCX_NEXT;
	if (rule->mark)
		ctx->mark = rule->mark;
	if (rule->priority)
		ctx->priority = rule->priority;
	mark = ctx->mark;
	priority = ctx->priority;
	if (!seen->first_ns)
		seen->first_ns = bpf_ktime_get_ns();
	verdict = park_send(ctx, rule->out, rule->class, rule->cost, &debt);
	if (verdict == PARK_PASS) {
		ADD(seen->refused, 1);
		if (ctx->len != length || ctx->mark != mark || ctx->priority != priority)
			ADD(seen->changed, 1);
		return TCX_NEXT;
	}
	ADD(seen->sent, 1);
	ADD(seen->debt, debt);
	seen->last_debt = debt;
	return verdict;
}
