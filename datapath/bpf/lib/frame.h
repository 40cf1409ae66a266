// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Finds the IP header of an Ethernet frame and reads its ECN field, for tcx programs.
//
//   0  destination address  6 B
//   6  source address       6 B
//  12  [0x8100|0x88a8, TCI] 4 B   up to two tags in the data; one more may be in the skb's
//                                 metadata, where the kernel puts the outer tag it received
//  12+ EtherType            2 B   0x0800 IPv4, 0x86dd IPv6; anything else is not IP
//  14+ IPv4 header         20 B   and options: version and header length 1 B, TOS 1 B, ... checksum at 10
//  14+ IPv6 header         40 B   version 4 bits, traffic class 8 bits, flow label 20 bits, ...
//
// Every fragment has its own ECN field, so fragments need no special treatment.
#ifndef WEIR_BPF_FRAME_H
#define WEIR_BPF_FRAME_H

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FRAME_ETH_BYTES 14
#define FRAME_TAG_BYTES 4
#define FRAME_TAGS 2
#define FRAME_IPV4_BYTES 20
#define FRAME_IPV4_CHECK 10 // offset of the header checksum
#define FRAME_IPV6_BYTES 40
#define FRAME_ETH_P_IPV4 0x0800
#define FRAME_ETH_P_IPV6 0x86dd
#define FRAME_ETH_P_8021Q 0x8100
#define FRAME_ETH_P_8021AD 0x88a8

enum frame_kind {
	FRAME_IPV4,
	FRAME_IPV6,
	FRAME_NOT_IP,
	FRAME_SHORT, // tagged or IP by its EtherType, but it ends before the header does or contradicts itself
};

struct frame {
	enum frame_kind kind;
	__u32 l3;    // offset of the IP header from skb->data
	__u16 word;  // the header's first 16 bits, host order: they have the ECN field in both versions
	__u8 ecn;    // the ECN field, 0..3
};

// The ECN field within the header's first 16 bits: in IPv4 the low bits of the second byte, in IPv6 the low bits of the
// traffic class, which starts half a byte earlier.
#define FRAME_ECN_CE 3
#define FRAME_IPV4_ECN_SHIFT 0
#define FRAME_IPV6_ECN_SHIFT 4

// Bytes of a frame that this file may read.
#define FRAME_HEAD_BYTES (FRAME_ETH_BYTES + FRAME_TAGS * FRAME_TAG_BYTES + FRAME_IPV6_BYTES)

// Makes the head of the frame directly accessible. It almost always is already. After a pull, packet pointers must be
// loaded again.
static __always_inline void frame_make_linear(struct __sk_buff *ctx)
{
	__u32 bytes = ctx->len < FRAME_HEAD_BYTES ? ctx->len : FRAME_HEAD_BYTES;

	if ((void *)(long)ctx->data + bytes > (void *)(long)ctx->data_end)
		bpf_skb_pull_data(ctx, bytes);
}

static __always_inline int frame_is_tag(__be16 ethertype)
{
	return ethertype == bpf_htons(FRAME_ETH_P_8021Q) || ethertype == bpf_htons(FRAME_ETH_P_8021AD);
}

// Reads the IP header at offset l3, a constant, of a frame whose EtherType is known.
static __always_inline void frame_read_ip(struct __sk_buff *ctx, struct frame *f, __u8 *head, __be16 ethertype, __u32 l3)
{
	__u32 ipv6 = ethertype == bpf_htons(FRAME_ETH_P_IPV6);
	__u32 options_end;

	if (!ipv6 && ethertype != bpf_htons(FRAME_ETH_P_IPV4)) {
		f->kind = FRAME_NOT_IP;
		return;
	}
	f->l3 = l3;
	if (ipv6) {
		if (head + l3 + FRAME_IPV6_BYTES > (__u8 *)(long)ctx->data_end)
			return;
		f->word = bpf_ntohs(*(__be16 *)(head + l3));
		if (f->word >> 12 != 6)
			return;
		f->kind = FRAME_IPV6;
		f->ecn = f->word >> FRAME_IPV6_ECN_SHIFT & 3;
		return;
	}
	if (head + l3 + FRAME_IPV4_BYTES > (__u8 *)(long)ctx->data_end)
		return;
	f->word = bpf_ntohs(*(__be16 *)(head + l3));
	options_end = l3 + (f->word >> 8 & 15) * 4;
	// Options are not read, so they need not be in the linear part; but they must be in the frame.
	if (f->word >> 12 != 4 || options_end < l3 + FRAME_IPV4_BYTES || options_end > ctx->len)
		return;
	f->kind = FRAME_IPV4;
	f->ecn = f->word >> FRAME_IPV4_ECN_SHIFT & 3;
}

// Reads the headers of ctx into f. The code has no loop over the tags, because the verifier requires packet pointers with
// constant offsets.
static __always_inline void frame_read(struct __sk_buff *ctx, struct frame *f)
{
	const __u32 one = FRAME_ETH_BYTES + FRAME_TAG_BYTES, two = one + FRAME_TAG_BYTES;
	__u8 *head, *end;
	__be16 ethertype;

	f->kind = FRAME_SHORT;
	frame_make_linear(ctx);
	head = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (head + FRAME_ETH_BYTES > end)
		return;
	ethertype = *(__be16 *)(head + FRAME_ETH_BYTES - 2);
	if (!frame_is_tag(ethertype)) {
		frame_read_ip(ctx, f, head, ethertype, FRAME_ETH_BYTES);
		return;
	}
	if (head + one > end)
		return;
	ethertype = *(__be16 *)(head + one - 2);
	if (!frame_is_tag(ethertype)) {
		frame_read_ip(ctx, f, head, ethertype, one);
		return;
	}
	if (head + two > end)
		return;
	frame_read_ip(ctx, f, head, *(__be16 *)(head + two - 2), two);
}

// Reads the addresses of the IP packet whose header begins at l3, one of IPv4 as ::ffff:a.b.c.d (RFC 4291 2.5.5.2). Returns 0 if the packet
// is too short.
static __always_inline int frame_addresses(struct __sk_buff *ctx, __u32 l3, int is_ipv6, __u32 *source, __u32 *destination)
{
	__u32 word[8];

	if (is_ipv6) {
		if (bpf_skb_load_bytes(ctx, l3 + 8, word, 32))
			return 0;
		for (int i = 0; i < 4; i++) {
			source[i] = word[i];
			destination[i] = word[4 + i];
		}
		return 1;
	}
	if (bpf_skb_load_bytes(ctx, l3 + 12, word, 8))
		return 0;
	source[0] = source[1] = destination[0] = destination[1] = 0;
	source[2] = destination[2] = bpf_htonl(0xffff);
	source[3] = word[0];
	destination[3] = word[1];
	return 1;
}

#endif
