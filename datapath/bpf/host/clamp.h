// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The clamp: an ACK towards a VM grants no larger window than the smallest of the valid grants for the VM, for the pair of VM
// and peer, and for the flow. The sender of the ACK is the peer, and the flow is the data that the VM sends to it.
#ifndef WEIR_BPF_HOST_CLAMP_H
#define WEIR_BPF_HOST_CLAMP_H

#include "learn.h"
#include "../lib/rewrite.h"

// Adds the grants of one key to the minimum.
static __always_inline void grants_add(struct grant_least *least, const struct grants *g, __u64 now)
{
	for (__u32 i = 0; i < GRANTS_A_KEY; i++) {
		__u32 slot = g->grant[i].owner & (GRANT_OWNERS - 1);
		struct grant_owner *owner;

		if (!(g->grant[i].flags & GRANT_SET))
			return; // they are stored without gaps
		owner = bpf_map_lookup_elem(&owners, &slot);
		if (owner)
			grant_add(least, &g->grant[i], owner, now);
	}
}

static __always_inline int filter_has(const __u64 *filter, __u32 bit) { return filter[bit >> 6 & 3] >> (bit & 63) & 1; }

// Reads the addresses of an ACK: the peer's, and the VM's. Returns 0 if the packet is too short.
static __always_inline int read_addresses(struct __sk_buff *ctx, const struct segment *s, __u32 *peer, __u32 *own)
{
	__u32 word[8];

	if (!s->is_ipv6) {
		if (segment_words(ctx, s->l3 + 12, word, 2))
			return 0;
		peer[0] = peer[1] = own[0] = own[1] = 0;
		peer[2] = own[2] = bpf_htonl(0xffff);
		peer[3] = word[0];
		own[3] = word[1];
		return 1;
	}
	if (segment_words(ctx, s->l3 + 8, word, 8))
		return 0;
	for (int i = 0; i < 4; i++) {
		peer[i] = word[i];
		own[i] = word[4 + i];
	}
	return 1;
}

// Finds the grants of an ACK's pair and flow: two lookups, so a connection keeps what they gave.
static __always_inline __u64 refs_find(struct __sk_buff *ctx, const struct segment *s, const struct host_grants *g,
				       __u32 vm)
{
	struct host_flow key = {.vm = vm, .ports = s->ports};
	struct host_pair pair = {.vm = vm};
	__u64 refs = g->generation << 2 * REFS_INDEX_BITS;
	__u32 *index;

	if (!read_addresses(ctx, s, key.peer, key.own))
		return refs;
	__builtin_memcpy(pair.peer, key.peer, sizeof(pair.peer));
	index = bpf_map_lookup_elem(&pairs, &pair);
	if (index)
		refs |= *index & REFS_INDEX_MASK;
	index = bpf_map_lookup_elem(&flow_grants, &key);
	if (index)
		refs |= (__u64)(*index & REFS_INDEX_MASK) << REFS_INDEX_BITS;
	return refs;
}

// Reports whether an ACK may have a grant. Most of those that have none need no lookup.
static __always_inline int may_be_granted(struct __sk_buff *ctx, const struct segment *s, const struct host_grants *g)
{
	__u32 word;

	if (g->windows & WINDOWS_VM)
		return 1;
	if (segment_words(ctx, s->l3 + (s->is_ipv6 ? 20 : 12), &word, 1))
		return 0;
	if (g->windows & WINDOWS_PAIRS && filter_has(g->peers, grant_bit(word, 0)))
		return 1;
	return g->windows & WINDOWS_FLOWS && filter_has(g->flows, grant_bit(word, s->ports));
}

static __always_inline void grants_at(struct grant_least *least, __u32 index, __u64 now)
{
	struct grants *g;

	if (!index)
		return;
	g = bpf_map_lookup_elem(&keyed, &index);
	if (g)
		grants_add(least, g, now);
}

// Limits an ACK of a VM that has grants. Returns the counter that it belongs to.
static __always_inline __u64 *ack_clamp(struct __sk_buff *ctx, const struct segment *s, const struct host_grants *g,
					struct host_counts *stats, __u32 vm)
{
	struct flow_key key = key_of(s, vm);
	struct grant_least least = {};
	struct host_connection *c;
	struct window_ack a = {};
	__u32 side = s->side & 1;
	__u64 refs, now;
	__u16 field;

	if (!may_be_granted(ctx, s, g))
		return &stats->ungranted;
	c = bpf_map_lookup_elem(&connections, &key);
	now = bpf_ktime_get_coarse_ns();
	least.zero = g->zero;
	if (g->windows & WINDOWS_VM)
		grants_add(&least, &g->window, now);
	if (g->windows & (WINDOWS_PAIRS | WINDOWS_FLOWS)) {
		refs = c ? c->refs : 0;
		if (refs >> 2 * REFS_INDEX_BITS != (g->generation & 0xffffff)) {
			refs = refs_find(ctx, s, g, vm);
			if (c)
				c->refs = refs;
		}
		grants_at(&least, refs & REFS_INDEX_MASK, now);
		grants_at(&least, refs >> REFS_INDEX_BITS & REFS_INDEX_MASK, now);
	}
	if (!least.window_q8)
		return &stats->ungranted;
	if (!c)
		return &stats->unknown;
	// Only a SYN of both ends with a signature makes a connection signed. In any other an end ignores the option.
	if (c->is_signed)
		return &stats->is_signed;
	a.ack = s->ack;
	a.field = s->window;
	a.shift = c->seen.shift[side];
	a.syn = !!(s->flags & TCP_SYN);
	field = grant_field(&least, &a, c->seen.mss[side], g->mss_max);
	if (field == s->window)
		return &stats->smaller;
	return window_write(ctx, s, field) ? &stats->unwritable : &stats->limited;
}

static __always_inline int same_mac(const struct host_vm *vm, const __u16 *mac)
{
	return vm->mac[0] == mac[0] && vm->mac[1] == mac[1] && vm->mac[2] == mac[2];
}

// Records a SYN or SYN-ACK towards the VM if the frame is for it. A bridge also floods frames for others to all its ports. A function of
// its own, so that the verifier checks it once.
__noinline int host_hears(struct __sk_buff *ctx, const struct segment *s, __u32 id)
{
	const struct host_vm *vm = bpf_map_lookup_elem(&vms, &id);
	__u16 mac[3];

	if (vm && !bpf_skb_load_bytes(ctx, 0, mac, sizeof(mac)) && same_mac(vm, mac))
		host_learn(ctx, s, id);
	return 0;
}

// Limits a segment towards the VM. Returns what ecn_agreed does.
static __always_inline __u32 segment_clamp(struct __sk_buff *ctx, struct host_counts *stats, __u32 id)
{
	struct host_grants *g = bpf_map_lookup_elem(&vm_grants, &id);
	__u64 packets = packets_of(ctx), *said = &stats->no_ack;
	struct segment s = {};
	enum segment_kind kind;

	stats->seen += packets;
	kind = segment_read(ctx, &s);
	if (kind != SEGMENT_TCP) {
		count_not_tcp(&stats->not_tcp, kind, packets);
		return ECN_DATA;
	}
	if (s.flags & TCP_SYN)
		host_hears(ctx, &s, id);
	if ((s.flags & (TCP_ACK | TCP_RST)) == TCP_ACK) {
		said = &stats->ungranted;
		if (g && g->windows)
			said = ack_clamp(ctx, &s, g, stats, id);
	}
	*said += packets;
	return ecn_mode == VMECN_NOT_NEGOTIATED ? ecn_agreed(&s, id) : 0;
}

#endif
