// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A packet from a guest. Its sender is the VM whose port it came in by, whatever the packet says.
//
// Dropped are:
//   control      frames of Weir's control protocols: EtherType 0x7A00 .. 0x7A0F, IP protocol 143
//   spoofed_mac  a source address that is not the VM's, also the sender's in ARP
//   spoofed_ip   the same for the IPv4 or IPv6 source, and the sender's in ARP. Nobody is accountable for packets from the
//                unspecified address (0.0.0.0, ::). So few kinds pass, as Not-ECT: no switch marks them. These are ARP
//                probes, DHCP of IPv4 from port 68 to 67 of 255.255.255.255, and solicitations (router, neighbour) and
//                MLD to multicast addresses of the link. Fragments do not pass. DHCPv6 has a link-local source (RFC 8415)
//   malformed    the source cannot be read: IP by its EtherType without a header, or more than two VLAN tags
// Not checked are the inner packets of tunnels, and the target of a neighbour advertisement.
//
//   0  Ethernet 14 B, two VLAN tags at most     IPv4: protocol at 9, source at 12     IPv6: source at 8, extension headers
//   ARP: 0 types 4 B, 4 lengths 2 B, 6 operation 2 B, 8 sender's MAC 6 B, 14 sender's IPv4 4 B
#ifndef WEIR_BPF_HOST_GUEST_H
#define WEIR_BPF_HOST_GUEST_H

#include "clamp.h"

#define CONTROL_ETHERTYPE 0x7a00 // and the 15 after it
#define CONTROL_PROTOCOL 143
#define ETH_P_ARP 0x0806
#define IP_ICMPV6 58
#define GUEST_EXTENSIONS SEGMENT_EXTENSIONS_MAX
#define ARP_BYTES 28

enum guest_verdict {
	GUEST_PASSES,
	GUEST_PASSES_SYN,  // TCP with SYN
	GUEST_PASSES_BARE, // from the unspecified address
	GUEST_CONTROL,
	GUEST_SPOOFED_MAC,
	GUEST_SPOOFED_IP,
	GUEST_MALFORMED,
};

enum guest_fate {
	GUEST_DROP,
	GUEST_PASS,
	GUEST_NO_ECN,
};

static __always_inline int is_control(__be16 ethertype)
{
	return (ethertype & bpf_htons(0xfff0)) == bpf_htons(CONTROL_ETHERTYPE);
}

static __always_inline int may_send_from(const struct host_vm *vm, const __u32 *from)
{
	for (__u32 i = 0; i < HOST_ADDRESSES && i < vm->addresses; i++) {
		const struct host_range *r = &vm->address[i];
		__u32 apart = (from[0] & r->mask[0]) ^ r->address[0];

		apart |= (from[1] & r->mask[1]) ^ r->address[1];
		apart |= (from[2] & r->mask[2]) ^ r->address[2];
		apart |= (from[3] & r->mask[3]) ^ r->address[3];
		if (!apart)
			return 1;
	}
	return 0;
}

// Judges the upper protocol, whose header begins at l4.
static __always_inline enum guest_verdict guest_protocol(struct __sk_buff *ctx, __u8 protocol, __u32 l4)
{
	__u32 word; // data offset, flags, window

	if (protocol == CONTROL_PROTOCOL)
		return GUEST_CONTROL;
	if (protocol != IP_TCP || bpf_skb_load_bytes(ctx, l4 + TCP_RESERVED, &word, sizeof(word)))
		return GUEST_PASSES;
	return word >> 8 & TCP_SYN ? GUEST_PASSES_SYN : GUEST_PASSES;
}

// Judges IPv4 from 0.0.0.0 with its UDP header at l4.
static __always_inline enum guest_verdict guest_bare_ipv4(struct __sk_buff *ctx, const __u8 *head, __u32 l4)
{
	__u16 ports[2];

	if (head[1] & FRAME_ECN_CE || head[9] != IP_UDP || *(__u32 *)(head + 16) != 0xffffffff || *(__be16 *)(head + 6) & bpf_htons(0x3fff))
		return GUEST_SPOOFED_IP;
	if (bpf_skb_load_bytes(ctx, l4, ports, sizeof(ports)) || ports[0] != bpf_htons(68) || ports[1] != bpf_htons(67))
		return GUEST_SPOOFED_IP;
	return GUEST_PASSES_BARE;
}

// Judges the upper protocol of IPv6 from ::, whose header begins at l4.
static __always_inline enum guest_verdict guest_bare_ipv6(struct __sk_buff *ctx, const __u8 *head, __u8 protocol, __u32 l4)
{
	__u8 type;

	if (head[1] >> 4 & FRAME_ECN_CE || protocol != IP_ICMPV6 || head[24] != 0xff || (head[25] & 15) != 2 || bpf_skb_load_bytes(ctx, l4, &type, 1))
		return GUEST_SPOOFED_IP;
	switch (type) {
	case 131: // MLD: report, done
	case 132:
	case 133: // router solicitation
	case 135: // neighbour solicitation: duplicate address detection
	case 143: // MLD version 2: report
		return GUEST_PASSES_BARE;
	}
	return GUEST_SPOOFED_IP;
}

static __always_inline enum guest_verdict guest_ipv4(struct __sk_buff *ctx, const struct host_vm *vm, __u32 l3)
{
	__u8 *head = (__u8 *)(long)ctx->data + l3;
	__u32 from[4] = {0, 0, bpf_htonl(0xffff), 0};
	__u32 header;

	if (head + FRAME_IPV4_BYTES > (__u8 *)(long)ctx->data_end || head[0] >> 4 != 4)
		return GUEST_MALFORMED;
	header = (head[0] & 15) * 4;
	if (header < FRAME_IPV4_BYTES)
		return GUEST_MALFORMED;
	from[3] = *(__u32 *)(head + 12);
	if (!may_send_from(vm, from))
		return from[3] ? GUEST_SPOOFED_IP : guest_bare_ipv4(ctx, head, l3 + header);
	if (*(__be16 *)(head + 6) & bpf_htons(0x1fff)) // not the first fragment: no header follows
		return head[9] == CONTROL_PROTOCOL ? GUEST_CONTROL : GUEST_PASSES;
	return guest_protocol(ctx, head[9], l3 + header);
}

static __always_inline enum guest_verdict guest_ipv6(struct __sk_buff *ctx, const struct host_vm *vm, __u32 l3)
{
	__u8 *head = (__u8 *)(long)ctx->data + l3;
	__u32 l4 = l3 + FRAME_IPV6_BYTES, from[4];
	__u8 protocol, next[4];
	int bare;

	if (head + FRAME_IPV6_BYTES > (__u8 *)(long)ctx->data_end || head[0] >> 4 != 6)
		return GUEST_MALFORMED;
	protocol = head[6];
	for (int i = 0; i < 4; i++)
		from[i] = ((__u32 *)(head + 8))[i];
	bare = !may_send_from(vm, from);
	if (bare && (from[0] | from[1] | from[2] | from[3]))
		return GUEST_SPOOFED_IP;
	for (int i = 0; i <= GUEST_EXTENSIONS; i++) {
		if (protocol != IP_HOP_BY_HOP && protocol != IP_ROUTING && protocol != IP_DESTINATION && protocol != IP_FRAGMENT)
			return bare ? guest_bare_ipv6(ctx, head, protocol, l4) : guest_protocol(ctx, protocol, l4);
		if (bare && protocol == IP_FRAGMENT)
			return GUEST_SPOOFED_IP;
		if (bpf_skb_load_bytes(ctx, l4, next, sizeof(next)))
			return GUEST_MALFORMED;
		if (protocol == IP_FRAGMENT && (next[2] | (next[3] & 0xf8))) // not the first fragment
			return next[0] == CONTROL_PROTOCOL ? GUEST_CONTROL : GUEST_PASSES;
		l4 += protocol == IP_FRAGMENT ? 8 : ((__u32)next[1] + 1) * 8;
		protocol = next[0];
	}
	return GUEST_MALFORMED; // a chain so long only hides what follows
}

static __always_inline enum guest_verdict guest_arp(struct __sk_buff *ctx, const struct host_vm *vm, __u32 l3)
{
	__u8 *head = (__u8 *)(long)ctx->data + l3;
	__u32 from[4] = {0, 0, bpf_htonl(0xffff), 0};

	if (head + ARP_BYTES > (__u8 *)(long)ctx->data_end || head[4] != 6 || head[5] != 4)
		return GUEST_MALFORMED;
	if (!same_mac(vm, (__u16 *)(head + 8)))
		return GUEST_SPOOFED_MAC;
	__builtin_memcpy(&from[3], head + 14, 4);
	return !from[3] || may_send_from(vm, from) ? GUEST_PASSES : GUEST_SPOOFED_IP;
}

// Judges the packet behind the EtherType. A function of its own, so that the verifier checks it once.
__noinline int guest_network(struct __sk_buff *ctx, const struct host_vm *vm, __u32 l3, __u32 ethertype)
{
	if (!vm || l3 > FRAME_HEAD_BYTES)
		return GUEST_MALFORMED;
	switch (ethertype) {
	case bpf_htons(FRAME_ETH_P_IPV4):
		return guest_ipv4(ctx, vm, l3);
	case bpf_htons(FRAME_ETH_P_IPV6):
		return guest_ipv6(ctx, vm, l3);
	case bpf_htons(ETH_P_ARP):
		return guest_arp(ctx, vm, l3);
	}
	return GUEST_PASSES;
}

static __always_inline enum guest_verdict guest_judge(struct __sk_buff *ctx, const struct host_vm *vm)
{
	const __u32 one = FRAME_ETH_BYTES + FRAME_TAG_BYTES, two = one + FRAME_TAG_BYTES;
	__u32 l3 = FRAME_ETH_BYTES;
	__be16 ethertype;
	__u8 *head, *end;

	frame_make_linear(ctx);
	head = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (head + FRAME_ETH_BYTES > end)
		return GUEST_MALFORMED;
	ethertype = *(__be16 *)(head + FRAME_ETH_BYTES - 2);
	if (frame_is_tag(ethertype)) {
		if (head + one > end)
			return GUEST_MALFORMED;
		l3 = one;
		ethertype = *(__be16 *)(head + one - 2);
	}
	if (l3 == one && frame_is_tag(ethertype)) {
		if (head + two > end)
			return GUEST_MALFORMED;
		l3 = two;
		ethertype = *(__be16 *)(head + two - 2);
		if (frame_is_tag(ethertype))
			return GUEST_MALFORMED;
	}
	if (is_control(ethertype))
		return GUEST_CONTROL;
	if (!same_mac(vm, (__u16 *)(head + 6)))
		return GUEST_SPOOFED_MAC;
	return guest_network(ctx, vm, l3, ethertype);
}

// Counts a packet that is dropped, and reports whether it is.
static __always_inline int guest_dropped(struct host_counts *stats, enum guest_verdict verdict, __u64 packets)
{
	switch (verdict) {
	case GUEST_CONTROL:
		stats->control += packets;
		return 1;
	case GUEST_SPOOFED_MAC:
		stats->spoofed_mac += packets;
		return 1;
	case GUEST_SPOOFED_IP:
		stats->spoofed_ip += packets;
		return 1;
	case GUEST_MALFORMED:
		stats->malformed += packets;
		return 1;
	default:
		return 0;
	}
}

// Finds the VM that sent a packet; 0: none did.
static __always_inline struct host_vm *guest_of(struct __sk_buff *ctx, __u32 *id)
{
	__u32 ifindex = ctx->ingress_ifindex, found;

	if (!ifindex || ifindex == uplink_ifindex)
		return 0;
	found = vm_behind(ifindex);
	if (!found)
		return 0;
	*id = found - 1;
	return bpf_map_lookup_elem(&vms, id);
}

// Checks a packet that came in by a VM's port. Returns GUEST_DROP if it must be dropped, and GUEST_NO_ECN if its ECN field must
// stay Not-ECT. *from and *stats are the VM's.
static __always_inline enum guest_fate guest_check(struct __sk_buff *ctx, __u32 *from, struct host_vm **vm, struct host_counts **stats)
{
	enum guest_verdict verdict;
	struct segment s = {};

	*stats = 0;
	*vm = guest_of(ctx, from);
	if (!*vm)
		return GUEST_PASS;
	*stats = bpf_map_lookup_elem(&counts, from);
	if (!*stats)
		return GUEST_PASS;
	(*stats)->sent += packets_of(ctx);
	verdict = guest_judge(ctx, *vm);
	if (guest_dropped(*stats, verdict, packets_of(ctx)))
		return GUEST_DROP;
	if (verdict == GUEST_PASSES_SYN && segment_read(ctx, &s) == SEGMENT_TCP && s.flags & TCP_SYN)
		host_learn(ctx, &s, *from);
	return verdict == GUEST_PASSES_BARE ? GUEST_NO_ECN : GUEST_PASS;
}

#endif
