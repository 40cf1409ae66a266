// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The baselines of benchmarks: a program that does nothing, and one hash lookup.
#ifndef WEIR_BASELINES_H
#define WEIR_BASELINES_H

SEC("tcx/egress")
int empty(struct __sk_buff *ctx)
{
	return TCX_NEXT;
}

struct lookup_key {
	__u64 cookie;
	__u32 ifindex, zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct lookup_key);
	__type(value, __u64);
} lookups SEC(".maps");

SEC("tcx/egress")
int hash_lookup(struct __sk_buff *ctx)
{
	struct lookup_key key = {.ifindex = ctx->ifindex};
	__u64 *v = bpf_map_lookup_elem(&lookups, &key);

	return v ? TCX_DROP : TCX_NEXT;
}

#endif
