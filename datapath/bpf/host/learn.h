// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads what the handshakes of a VM announce: window scales, MSS, signatures, ECN. A SYN enters `pending`, and a SYN-ACK that answers it
// moves the connection to `connections`. So a flood of SYNs evicts no connection. A connection whose ACKs are limited is
// looked up often, and LRU evicts those first that are not. Each VM has a share of new handshakes a second. So the flood of one VM, or to
// one, takes seconds to evict its neighbours' entries. SYNs beyond the share pass, and windows do not limit their connections.
#ifndef WEIR_BPF_HOST_LEARN_H
#define WEIR_BPF_HOST_LEARN_H

#include "tables.h"
#include "../lib/handshake.h"

#define SECOND_NS 1000000000ull

// Takes one handshake from the VM's share. Returns 0 if it is used up.
static __always_inline int handshake_has_room(__u32 vm)
{
	__u64 *until = bpf_map_lookup_elem(&handshakes, &vm), now = bpf_ktime_get_coarse_ns(), from;

	if (!until)
		return 0;
	from = (__s64)(*until - now) > 0 ? *until : now;
	if (from - now > SECOND_NS)
		return 0;
	*until = from + handshake_ns; // two CPUs may take the same part of the share
	return 1;
}

// Records a SYN or SYN-ACK from or to a VM.
__noinline int host_learn(struct __sk_buff *ctx, const struct segment *s, __u32 vm)
{
	struct flow_key key;
	struct host_connection *known, c = {};
	struct host_counts *stats;
	struct tcp_options o = {};

	if (!s || s->flags & (TCP_RST | TCP_FIN))
		return 0;
	key = key_of(s, vm);
	known = bpf_map_lookup_elem(&pending, &key);
	segment_read_options(ctx, s, &o);
	if (!(s->flags & TCP_ACK)) {
		stats = bpf_map_lookup_elem(&counts, &vm);
		if (!known && !handshake_has_room(vm)) {
			if (stats)
				stats->unlearnt++;
			return 0;
		}
		if (known)
			c = *known;
		c.ecn = vmecn_handshake(c.ecn, 0, !!(s->flags & TCP_ECE), !!(s->flags & TCP_CWR), 0);
		if (handshake_asks(&c.seen, s, &o))
			bpf_map_update_elem(&pending, &key, &c, BPF_ANY);
		return 0;
	}
	// The answer is written into the table's entry: the verifier refuses a variable index into the stack.
	if (!known || !handshake_answered(&known->seen, s, &o))
		return 0;
	c = *known;
	c.ecn = vmecn_handshake(c.ecn, 1, !!(s->flags & TCP_ECE), !!(s->flags & TCP_CWR), segment_answers_accecn(s));
	c.is_signed = c.seen.flags & HANDSHAKE_SIGNED && o.is_signed;
	bpf_map_update_elem(&connections, &key, &c, BPF_ANY);
	bpf_map_delete_elem(&pending, &key);
	stats = bpf_map_lookup_elem(&counts, &vm);
	if (stats)
		stats->learnt++;
	return 0;
}

// The answer of ecn_agreed, in bits.
enum ecn_state {
	ECN_IS_AGREED = 1, // the packet's connection agreed on ECN
	ECN_DATA = 2,      // it has data, or is no TCP segment
};

// Reports whether a segment from or towards a VM belongs to a connection that agreed on ECN, behind its handshake.
static __always_inline __u32 ecn_agreed(const struct segment *s, __u32 vm)
{
	__u32 data = s->payload ? ECN_DATA : 0;
	struct host_connection *c;
	struct flow_key key;

	if (s->flags & TCP_SYN)
		return data;
	key = key_of(s, vm);
	c = bpf_map_lookup_elem(&connections, &key);
	return data | (c && c->ecn == VMECN_AGREED ? ECN_IS_AGREED : 0);
}

#endif
