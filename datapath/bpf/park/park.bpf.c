// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The far end of the parking (lib/park.h): sends packets that have waited to their ports.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../lib/park.h"

char _license[] SEC("license") = WEIR_LICENSE;

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

// Removes the zeros that park_send added. Returns 0 if the kernel could not.
static __always_inline int trim(struct __sk_buff *ctx, __u32 trailer)
{
	__u32 end = park_ip_end(ctx);

	return end && end + trailer <= ctx->len && !bpf_skb_change_tail(ctx, end + trailer, 0);
}

// At the ingress of the parking device's other end. All that comes here was sent by the parking device.
SEC("tc")
int weir_park_return(struct __sk_buff *ctx)
{
	__u32 mark = ctx->mark, id = mark % PARK_PORTS;
	struct park_counts *counts = park_counts_of();
	struct park_port *port = bpf_map_lookup_elem(&park_ports, &id);
	__u64 packets = packets_of(ctx);

	if (!counts || !port)
		return TCX_DROP;
	if (mark >> PARK_MAGIC_SHIFT != PARK_MAGIC) {
		counts->foreign += packets;
		return TCX_DROP;
	}
	if (!port->ifindex || port->generation != (mark >> 14) % PARK_GENERATIONS) {
		counts->stale += packets;
		return TCX_DROP;
	}
	counts->returned += packets;
	if (mark & PARK_PROBE && port->due_ns)
		park_probed(port);
	ctx->mark = 0;
	ctx->priority = mark >> 20 & PARK_PRIORITY_MAX;
	if (mark & PARK_PADDED && !trim(ctx, mark >> 10 & PARK_TRAILER_MAX))
		counts->untrimmed += packets;
	return bpf_redirect(port->ifindex, 0);
}

// Learns the parking device. User space runs it once with BPF_PROG_TEST_RUN, on a packet of that device.
SEC("tc")
int weir_park_learn(struct __sk_buff *ctx)
{
	struct park_state *state = park_state_of();
	struct sk_buff *skb = bpf_cast_to_kern_ctx(ctx);

	if (!state || skb->dev->ifindex != (int)state->in_ifindex)
		return 1;
	state->netns_cookie = skb->dev->nd_net.net->net_cookie;
	state->device = (__u64)skb->dev;
	return 0;
}
