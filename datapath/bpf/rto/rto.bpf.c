// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Sets the initial retransmission timeout of the guests' TCP, for which Linux has no sysctl. The kernel asks this sockops
// program of a cgroup for it. The program answers by the network namespace of the socket.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = WEIR_LICENSE;

// The answer is in jiffies; this is their number per second. The loader fills it in.
extern __u32 CONFIG_HZ __kconfig;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);   // network namespace cookie
	__type(value, __u64); // nanoseconds
} initial_rtos SEC(".maps");

SEC("sockops")
int weir_initial_rto(struct bpf_sock_ops *ctx)
{
	__u64 cookie, *rto_ns, jiffies;

	if (ctx->op != BPF_SOCK_OPS_TIMEOUT_INIT)
		return 1;
	cookie = bpf_get_netns_cookie(ctx);
	rto_ns = bpf_map_lookup_elem(&initial_rtos, &cookie);
	// Without an answer of 1 or more the kernel uses its default of 1 s.
	if (!rto_ns)
		return 1;
	jiffies = (*rto_ns * CONFIG_HZ + 999999999) / 1000000000;
	ctx->reply = jiffies ? jiffies : 1;
	return 1;
}
