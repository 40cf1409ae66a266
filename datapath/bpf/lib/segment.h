// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads the TCP segment in an Ethernet frame, for tcx programs.
//
//   0  Ethernet, 14 B; up to two VLAN tags of 4 B in the data, and one in the skb's metadata, where
//      the kernel puts the outer tag that it received
//      IPv4: 20 B and options                 IPv6: 40 B and extension headers
//      TCP:   0 ports 4 B    4 sequence 4 B    8 acknowledgement 4 B
//            12 data offset 4 bits, reserved 4 bits (the lowest is AccECN's AE)
//            13 flags: CWR ECE URG ACK PSH RST SYN FIN
//            14 window 2 B  16 checksum 2 B   18 urgent 2 B    20 options
//
// IPsec AH signs the window, so it counts as a tunnel and not as TCP. Fragments are not read: only the first has a TCP
// header. Lengths come from the IP header, because a frame may be padded. If a GSO packet is too long for the IP length
// field, its length is the frame's.
#ifndef WEIR_BPF_SEGMENT_H
#define WEIR_BPF_SEGMENT_H

#include "frame.h"

#define TCP_BYTES 20
#define TCP_RESERVED 12 // offset of data offset and reserved bits
#define TCP_WINDOW 14
#define TCP_CHECK 16

enum {
	TCP_FIN = 0x01,
	TCP_PSH = 0x08,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_ACK = 0x10,
	TCP_ECE = 0x40,
	TCP_CWR = 0x80,
};

#define TCP_AE 0x01 // in the reserved bits

// The ends of a connection, sorted, so that both directions have the same value. IPv4 addresses are stored as
// ::ffff:a.b.c.d. The VLAN tags are part of it, because addresses of tenants may overlap, unless vlans_ignored.
struct flow_ends {
	__u32 address[2][4]; // as on the wire
	__be16 port[2];
	__u32 vlans; // tags from the outer to the inner, 12 bits each; 0: none, or vlans_ignored
};

// 1: VLAN tags are no part of the ends. A bridge that filters VLANs tags the packets of some ports only. If the directions of a connection
// leave by a port with tags and one without, they would be two connections. User space sets it, or the compiler (-D) for programs that never use tags.
#ifndef VLANS_IGNORED
const volatile __u8 vlans_ignored;
#define VLANS_IGNORED vlans_ignored
#endif

// The ends in 16 bytes, as key of tables: a lookup takes half the time of one with all 40. IPv4: the ends themselves.
// IPv6: a digest under a key that no sender knows (segment_digest).
struct flow_key {
	__u64 word[2];
};

struct segment {
	struct flow_key key;
	__u32 ports;   // as on the wire: the sender's, the receiver's
	__u32 vlans;   // as in flow_ends
	__u32 l3;      // offset of the IP header from skb->data
	__u32 l4;      // offset of the TCP header from skb->data
	__u32 payload; // bytes; of a GSO packet: of all its segments
	__u32 seq;
	__u32 ack;
	__u16 window;  // the window field, host order
	__sum16 check; // as on the wire
	__u8 header;   // bytes, options included
	__u8 reserved; // the 4 bits
	__u8 flags;
	__u8 side;     // which end of the key sent it: 0 or 1
	__u8 is_ipv6;
	__u8 is_signed; // 1: its signature counts (set by signed.h)
	__u8 is_stranger; // with promises and credits: 1: it does not belong to its connection (set by the program)
};

enum segment_kind {
	SEGMENT_TCP,
	SEGMENT_OTHER,    // not IP, or IP without TCP
	SEGMENT_TUNNEL,   // encapsulated, encrypted or signed, also over UDP: the inner packet is out of reach
	SEGMENT_FRAGMENT,
	SEGMENT_SHORT,    // ended before its headers did, or they contradict themselves
};

enum {
	IP_HOP_BY_HOP = 0,
	IP_IPIP = 4,
	IP_TCP = 6,
	IP_UDP = 17,
	IP_IPV6 = 41,
	IP_ROUTING = 43,
	IP_FRAGMENT = 44,
	IP_GRE = 47,
	IP_ESP = 50,
	IP_AH = 51,
	IP_DESTINATION = 60,
};

#define SEGMENT_EXTENSIONS_MAX 6
#define SEGMENT_PULL_BYTES 128

// Reports whether UDP to or from this port counts as a tunnel.
static __always_inline int is_tunnel_port(__be16 port)
{
	switch (port) {
	case bpf_htons(4789):  // VXLAN (RFC 7348)
	case bpf_htons(8472):  // VXLAN, Linux's older default
	case bpf_htons(6081):  // Geneve (RFC 8926)
	case bpf_htons(4500):  // ESP through NATs (RFC 3948)
	case bpf_htons(51820): // WireGuard
		return 1;
	}
	return 0;
}

#define SEGMENT_DIRECT_MAX 256 // headers that begin further in are read by the helper

// Reads n words of 32 bits of the packet, at the offset `at`. Returns 0, or an error if the packet is too short. Usually
// they are directly accessible, because a helper takes longer than the rest of the parser. It copies words, because the
// compiler would copy an array of bytes one by one.
static __always_inline long segment_words(struct __sk_buff *ctx, __u32 at, __u32 *word, __u32 n)
{
	__u8 *head = (__u8 *)(long)ctx->data;

	if (unlikely(at >= SEGMENT_DIRECT_MAX || head + at + 4 * n > (__u8 *)(long)ctx->data_end))
		return bpf_skb_load_bytes(ctx, at, word, 4 * n);
	for (__u32 i = 0; i < n; i++)
		word[i] = ((__u32 *)(head + at))[i];
	return 0;
}

static __always_inline enum segment_kind segment_not_tcp(struct __sk_buff *ctx, __u8 protocol, __u32 l4)
{
	__u32 ports;

	switch (protocol) {
	case IP_IPIP:
	case IP_IPV6:
	case IP_GRE:
	case IP_ESP:
	case IP_AH:
		return SEGMENT_TUNNEL;
	case IP_UDP:
		if (!segment_words(ctx, l4, &ports, 1) && (is_tunnel_port(ports >> 16) || is_tunnel_port(ports & 0xffff)))
			return SEGMENT_TUNNEL;
	}
	return SEGMENT_OTHER;
}

// Reads the TCP header at l4. end: the offset behind the IP packet.
static __always_inline enum segment_kind segment_read_tcp(struct __sk_buff *ctx, struct segment *s, __u32 l4, __u32 end)
{
	__u32 word[TCP_BYTES / 4];

	if (unlikely(segment_words(ctx, l4, word, TCP_BYTES / 4)))
		return SEGMENT_SHORT;
	s->l4 = l4;
	s->ports = word[0];
	s->seq = bpf_ntohl(word[1]);
	s->ack = bpf_ntohl(word[2]);
	word[3] = bpf_ntohl(word[3]);
	s->header = (word[3] >> 28) * 4;
	s->reserved = word[3] >> 24 & 15;
	s->flags = word[3] >> 16;
	s->window = word[3];
	s->check = word[4];
	if (unlikely(s->header < TCP_BYTES || end > ctx->len || l4 + s->header > end))
		return SEGMENT_SHORT;
	s->payload = end - l4 - s->header;
	return SEGMENT_TCP;
}

static __always_inline __u32 ports_swapped(__u32 ports) { return ports << 16 | ports >> 16; }

static __always_inline enum segment_kind segment_read_ipv4(struct __sk_buff *ctx, struct segment *s, __u8 *head, __u32 l3)
{
	enum segment_kind kind;
	const __u32 *word = (const __u32 *)(head + l3);
	__u32 header, bytes;

	if (unlikely(head + l3 + FRAME_IPV4_BYTES > (__u8 *)(long)ctx->data_end))
		return SEGMENT_SHORT;
	header = (word[0] & 15) * 4;
	bytes = bpf_ntohs(word[0] >> 16);
	if (unlikely((word[0] >> 4 & 15) != 4 || header < FRAME_IPV4_BYTES))
		return SEGMENT_SHORT;
	if (unlikely(word[1] & bpf_htonl(0x3fff))) // more fragments, or an offset
		return SEGMENT_FRAGMENT;
	if (unlikely((word[2] >> 8 & 0xff) != IP_TCP))
		return segment_not_tcp(ctx, word[2] >> 8, l3 + header);
	s->l3 = l3;
	kind = segment_read_tcp(ctx, s, l3 + header, bytes ? l3 + bytes : ctx->len);
	s->side = word[3] > word[4] || (word[3] == word[4] && (s->ports & 0xffff) > s->ports >> 16);
	if (s->side) {
		s->key.word[0] = word[4] | (__u64)word[3] << 32;
		s->key.word[1] = ports_swapped(s->ports) | (__u64)s->vlans << 32;
	} else {
		s->key.word[0] = word[3] | (__u64)word[4] << 32;
		s->key.word[1] = s->ports | (__u64)s->vlans << 32;
	}
	return kind;
}

// Reports whether the sender of an IPv6 segment is end 1.
static __always_inline int segment_side(const __u32 *from, const __u32 *to, __u32 ports)
{
	for (int i = 0; i < 4; i++)
		if (from[i] != to[i])
			return from[i] > to[i];
	return (ports & 0xffff) > ports >> 16;
}

#define DIGEST_WORDS 10

// The key of segment_digest: random, and the same for all programs that share a table. User space sets it.
const volatile __u32 flow_digest_key[2 * DIGEST_WORDS] = {
	0x243f6a89, 0x85a308d3, 0x13198a2f, 0x03707345, 0xa4093823, 0x299f31d1, 0x082efa99, 0xec4e6c89, 0x452821e7, 0x38d01377,
	0xbe5466cf, 0x34e90c6d, 0xc0ac29b7, 0xc97c50dd, 0x3f84d5b5, 0xb5470917, 0x9216d5d9, 0x8979fb1b, 0xd1310ba7, 0x98dfb5ad,
};

// Calculates the digest: two words of NH (Black et al., UMAC, 1999) over the ends. Any two connections have the same
// digest with a probability of 2^-64, as long as the key is secret.
static __always_inline void segment_digest(struct flow_key *key, const __u32 *first, const __u32 *second, __u32 ports,
					   __u32 vlans)
{
	const volatile __u32 *k = flow_digest_key;

	for (int n = 0; n < 2; n++, k += DIGEST_WORDS)
		key->word[n] = (__u64)(first[0] + k[0]) * (first[1] + k[1]) + (__u64)(first[2] + k[2]) * (first[3] + k[3]) +
			       (__u64)(second[0] + k[4]) * (second[1] + k[5]) + (__u64)(second[2] + k[6]) * (second[3] + k[7]) +
			       (__u64)(ports + k[8]) * (vlans + k[9]);
}

// A function of its own, so that the verifier checks it once, and it has its own stack.
__noinline int segment_read_ipv6(struct __sk_buff *ctx, struct segment *s, __u32 l3)
{
	__u8 *ip;
	__u32 l4 = l3 + FRAME_IPV6_BYTES, bytes;
	const __u32 *from, *to;
	enum segment_kind kind;
	__u8 protocol;

	if (!s || l3 > FRAME_HEAD_BYTES)
		return SEGMENT_SHORT;
	ip = (__u8 *)(long)ctx->data + l3;
	if (ip + FRAME_IPV6_BYTES > (__u8 *)(long)ctx->data_end || ip[0] >> 4 != 6)
		return SEGMENT_SHORT;
	bytes = bpf_ntohs(*(__be16 *)(ip + 4));
	protocol = ip[6];
	from = (const __u32 *)(ip + 8);
	to = from + 4;
	for (int i = 0; i < SEGMENT_EXTENSIONS_MAX && protocol != IP_TCP; i++) {
		__u8 next[2];

		if (protocol == IP_FRAGMENT)
			return SEGMENT_FRAGMENT;
		if (protocol != IP_HOP_BY_HOP && protocol != IP_ROUTING && protocol != IP_DESTINATION)
			return segment_not_tcp(ctx, protocol, l4);
		if (bpf_skb_load_bytes(ctx, l4, next, sizeof(next)))
			return SEGMENT_SHORT;
		protocol = next[0];
		l4 += ((__u32)next[1] + 1) * 8;
	}
	if (protocol != IP_TCP)
		return SEGMENT_OTHER;
	s->l3 = l3;
	s->is_ipv6 = 1;
	kind = segment_read_tcp(ctx, s, l4, bytes ? l3 + FRAME_IPV6_BYTES + bytes : ctx->len);
	if (kind != SEGMENT_TCP)
		return kind;
	s->side = segment_side(from, to, s->ports);
	if (s->side)
		segment_digest(&s->key, to, from, ports_swapped(s->ports), s->vlans);
	else
		segment_digest(&s->key, from, to, s->ports, s->vlans);
	return kind;
}

static __always_inline enum segment_kind segment_read_ip(struct __sk_buff *ctx, struct segment *s, __u8 *head,
							  __be16 ethertype, __u32 l3)
{
	if (likely(ethertype == bpf_htons(FRAME_ETH_P_IPV4)))
		return segment_read_ipv4(ctx, s, head, l3);
	if (ethertype == bpf_htons(FRAME_ETH_P_IPV6))
		return segment_read_ipv6(ctx, s, l3);
	return SEGMENT_OTHER;
}

static __always_inline __u32 vlans_add(__u32 vlans, __u32 tag) { return VLANS_IGNORED ? 0 : vlans << 12 | (tag & 0xfff); }

// Reads the headers of ctx into s. Only for SEGMENT_TCP all of s is set.
static __always_inline enum segment_kind segment_read(struct __sk_buff *ctx, struct segment *s)
{
	const __u32 one = FRAME_ETH_BYTES + FRAME_TAG_BYTES, two = one + FRAME_TAG_BYTES;
	__u32 bytes = ctx->len < SEGMENT_PULL_BYTES ? ctx->len : SEGMENT_PULL_BYTES;
	__be16 ethertype;
	__u8 *head, *end;

	// The headers are almost always directly accessible. 54 bytes cover the most common ones.
	if (unlikely((void *)(long)ctx->data + FRAME_ETH_BYTES + FRAME_IPV4_BYTES + TCP_BYTES > (void *)(long)ctx->data_end))
		bpf_skb_pull_data(ctx, bytes);
	head = (__u8 *)(long)ctx->data;
	end = (__u8 *)(long)ctx->data_end;
	if (unlikely(head + FRAME_ETH_BYTES > end))
		return SEGMENT_SHORT;
	s->is_ipv6 = s->is_signed = 0;
	s->vlans = unlikely(ctx->vlan_present) ? vlans_add(0, ctx->vlan_tci) : 0;
	ethertype = *(__be16 *)(head + FRAME_ETH_BYTES - 2);
	if (likely(!frame_is_tag(ethertype)))
		return segment_read_ip(ctx, s, head, ethertype, FRAME_ETH_BYTES);
	if (head + one > end)
		return SEGMENT_SHORT;
	s->vlans = vlans_add(s->vlans, bpf_ntohs(*(__be16 *)(head + FRAME_ETH_BYTES)));
	ethertype = *(__be16 *)(head + one - 2);
	if (!frame_is_tag(ethertype))
		return segment_read_ip(ctx, s, head, ethertype, one);
	if (head + two > end)
		return SEGMENT_SHORT;
	s->vlans = vlans_add(s->vlans, bpf_ntohs(*(__be16 *)(head + one)));
	return segment_read_ip(ctx, s, head, *(__be16 *)(head + two - 2), two);
}

// Reads the ends in full. Only rare paths need them, so segment_read does not keep them. Returns 0 if the packet is too
// short.
static __always_inline int segment_ends_read(struct __sk_buff *ctx, const struct segment *s, struct flow_ends *ends)
{
	__u32 address[2][4] = {}, ipv4[2], side = s->side & 1;

	if (s->is_ipv6) {
		if (segment_words(ctx, s->l3 + 8, address[0], 8))
			return 0;
	} else {
		if (segment_words(ctx, s->l3 + 12, ipv4, 2))
			return 0;
		address[0][3] = ipv4[0];
		address[1][3] = ipv4[1];
		address[0][2] = address[1][2] = bpf_htonl(0xffff);
	}
	for (int i = 0; i < 4; i++) {
		ends->address[0][i] = side ? address[1][i] : address[0][i];
		ends->address[1][i] = side ? address[0][i] : address[1][i];
	}
	ends->port[side] = (__be16)s->ports;
	ends->port[!side] = (__be16)(s->ports >> 16);
	ends->vlans = s->vlans;
	return 1;
}

// Calls segment_ends_read. A function of its own, so that the verifier checks it once.
__noinline int segment_ends(struct __sk_buff *ctx, const struct segment *s, struct flow_ends *ends)
{
	return s && ends ? segment_ends_read(ctx, s, ends) : 0;
}

// Reports whether a SYN-ACK agrees to AccECN: only AccECN uses these values (RFC 9768, table 2).
static __always_inline int segment_answers_accecn(const struct segment *s)
{
	__u32 bits = (s->reserved & TCP_AE) << 2 | !!(s->flags & TCP_CWR) << 1 | !!(s->flags & TCP_ECE);

	return bits == 2 || bits == 3 || bits == 4 || bits == 6;
}

#endif
