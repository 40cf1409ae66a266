// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The metadata address of a VM: a tcx ingress program at the VM's port.
//
// It takes the frames that the VM sends to the address and passes them to the agent in a ring. They do not reach the bridge:
//
//   ARP                       target protocol address (offset 24 of 28)
//   ICMPv6 solicitation       type 135, target address at 8: sent to a multicast address
//   IPv4, IPv6                destination; TCP and ICMP. Fragments and other protocols are dropped
//
// All else passes, and so do frames with VLAN tags. The port's ifindex says whose frame it is. A port has a budget of frames, so that a flood of one VM leaves room for others.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../lib/frame.h"

#define METADATA_PORTS 4096
#define METADATA_BYTES 16384           // of a frame; the agent's TCP window is smaller
#define METADATA_RING (1 << 20)
#define METADATA_FRAMES 1024           // of a port in an interval
#define METADATA_INTERVAL_NS 250000000 // 0.25 s

#define ETH_P_ARP 0x0806
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_ICMPV6 58
#define NEIGHBOR_SOLICITATION 135

char _license[] SEC("license") = WEIR_LICENSE;

struct metadata_port {
	__u64 begun_ns; // of the interval
	__u64 frames;   // in it
	__u64 taken;
	__u64 dropped; // above the budget, too long, another protocol, or no room in the ring
};

struct metadata_frame {
	__u32 ifindex;
	__u32 zero;
	__u8 data[METADATA_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, METADATA_PORTS);
	__type(key, __u32); // ifindex
	__type(value, struct metadata_port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, METADATA_RING);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct metadata_frame);
} scratch SEC(".maps");

const volatile __u32 ipv4_address = 0; // 0: none
const volatile __u32 ipv6_address[4] = {};

enum metadata_verdict {
	METADATA_PASS,
	METADATA_TAKE,
	METADATA_DROP,
};

static __always_inline enum metadata_verdict metadata_ipv4(struct __sk_buff *ctx)
{
	__u32 word[4]; // from the fragment's offset to the destination

	if (bpf_skb_load_bytes(ctx, FRAME_ETH_BYTES + 4, word, sizeof(word)) || word[3] != ipv4_address)
		return METADATA_PASS;
	if (word[0] >> 16 & bpf_htons(0x3fff))
		return METADATA_DROP;
	switch (word[1] >> 8 & 255) {
	case PROTOCOL_TCP:
	case PROTOCOL_ICMP:
		return METADATA_TAKE;
	}
	return METADATA_DROP;
}

static __always_inline int is_ipv6_address(const __u32 *a)
{
	return a[0] == ipv6_address[0] && a[1] == ipv6_address[1] && a[2] == ipv6_address[2] && a[3] == ipv6_address[3];
}

static __always_inline enum metadata_verdict metadata_ipv6(struct __sk_buff *ctx)
{
	__u32 at = FRAME_ETH_BYTES, address[4];
	__u8 next, type;

	if (bpf_skb_load_bytes(ctx, at + 6, &next, 1) || bpf_skb_load_bytes(ctx, at + 24, address, sizeof(address)))
		return METADATA_PASS;
	if (is_ipv6_address(address))
		return next == PROTOCOL_TCP || next == PROTOCOL_ICMPV6 ? METADATA_TAKE : METADATA_DROP;
	if (next != PROTOCOL_ICMPV6)
		return METADATA_PASS;
	at += FRAME_IPV6_BYTES;
	if (bpf_skb_load_bytes(ctx, at, &type, 1) || type != NEIGHBOR_SOLICITATION ||
	    bpf_skb_load_bytes(ctx, at + 8, address, sizeof(address)) || !is_ipv6_address(address))
		return METADATA_PASS;
	return METADATA_TAKE;
}

static __always_inline enum metadata_verdict metadata_judge(struct __sk_buff *ctx)
{
	__u32 target;

	if (ctx->vlan_present) // ctx->protocol is behind the tag
		return METADATA_PASS;
	switch (ctx->protocol) {
	case bpf_htons(FRAME_ETH_P_IPV4):
		return ipv4_address ? metadata_ipv4(ctx) : METADATA_PASS;
	case bpf_htons(FRAME_ETH_P_IPV6):
		return ipv6_address[0] ? metadata_ipv6(ctx) : METADATA_PASS;
	case bpf_htons(ETH_P_ARP):
		if (!ipv4_address || bpf_skb_load_bytes(ctx, FRAME_ETH_BYTES + 24, &target, sizeof(target)))
			return METADATA_PASS;
		return target == ipv4_address ? METADATA_TAKE : METADATA_PASS;
	}
	return METADATA_PASS;
}

static __always_inline int metadata_within_budget(struct metadata_port *port)
{
	__u64 now = bpf_ktime_get_ns();

	if (now - port->begun_ns >= METADATA_INTERVAL_NS) {
		port->begun_ns = now;
		port->frames = 0;
	}
	return __sync_fetch_and_add(&port->frames, 1) < METADATA_FRAMES;
}

// Returns 0 if the frame is in the ring.
static __always_inline int metadata_pass_on(struct __sk_buff *ctx)
{
	__u32 zero = 0, bytes = ctx->len;
	struct metadata_frame *f = bpf_map_lookup_elem(&scratch, &zero);

	if (!f || bytes < FRAME_ETH_BYTES || bytes > METADATA_BYTES)
		return -1;
	f->ifindex = ctx->ifindex;
	f->zero = 0;
	if (bpf_skb_load_bytes(ctx, 0, f->data, bytes))
		return -1;
	return bpf_ringbuf_output(&frames, f, __builtin_offsetof(struct metadata_frame, data) + bytes, 0);
}

SEC("tcx/ingress")
int weir_metadata(struct __sk_buff *ctx)
{
	enum metadata_verdict verdict = metadata_judge(ctx);
	struct metadata_port *port;
	__u32 ifindex = ctx->ifindex;

	if (likely(verdict == METADATA_PASS))
		return TCX_NEXT;
	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TCX_NEXT;
	if (verdict == METADATA_TAKE && metadata_within_budget(port) && !metadata_pass_on(ctx))
		__sync_fetch_and_add(&port->taken, 1);
	else
		__sync_fetch_and_add(&port->dropped, 1);
	return TCX_DROP;
}
