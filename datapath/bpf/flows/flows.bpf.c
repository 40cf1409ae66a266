// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The flows of a port: how far the data of each has come. A tcx egress program at the tail of the chain. It changes no packet, and always
// returns TCX_NEXT.
//
// A flow enters the table with its first data, so a flood of SYNs enters nothing. The table evicts the flow whose data was seen least
// recently. Sent again data does not count: only what is behind the furthest data so far. Two CPUs may see a flow at once, so each claims
// the bytes between two values of `behind` with one exchange.
#include "flows.h"
#include <bpf/bpf_helpers.h>
#include "../lib/segment.h"

char _license[] SEC("license") = WEIR_LICENSE;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS_MOST);
	__type(key, struct sent_key);
	__type(value, struct sent_flow);
} sent SEC(".maps");

const volatile __u32 port_number = 0;

#define FLOWS_ENDS (TCP_FIN | TCP_RST)
#define FLOWS_WINDOW_MAX (1u << 30) // the largest window (RFC 7323 2.3)

// Counts the bytes of a segment that are behind all before it.
static __always_inline void flows_advance(struct sent_flow *f, __u32 behind)
{
	for (int i = 0; i < 8; i++) { // each failed try means that another CPU has advanced it
		__u32 old = *(volatile __u32 *)&f->behind, more = behind - old;

		if (!more || more > FLOWS_WINDOW_MAX)
			return;
		if (__sync_val_compare_and_swap(&f->behind, old, behind) == old) {
			__sync_fetch_and_add(&f->bytes, more);
			return;
		}
	}
}

// Notes a segment. A function of its own, so that the verifier checks it once.
__noinline int flows_note(struct __sk_buff *ctx, const struct segment *s)
{
	struct sent_key key = {};
	struct sent_flow *f, fresh = {};

	if (!s)
		return 0;
	key.port = port_number;
	key.ports = s->ports;
	if (!frame_addresses(ctx, s->l3, s->is_ipv6, key.source, key.destination))
		return 0;
	f = bpf_map_lookup_elem(&sent, &key);
	if (!f) {
		if (!s->payload || s->flags & TCP_RST)
			return 0;
		fresh.bytes = s->payload;
		fresh.behind = s->seq + s->payload + !!(s->flags & TCP_SYN);
		fresh.ended = !!(s->flags & FLOWS_ENDS);
		bpf_map_update_elem(&sent, &key, &fresh, BPF_NOEXIST);
		return 0;
	}
	if (s->flags & TCP_SYN) {
		// The flow has sent data, so this is a new connection of the same ends. The end of the one before may have left by
		// another port.
		f->bytes = s->payload;
		f->behind = s->seq + 1 + s->payload;
		f->connection++;
		f->ended = 0;
		return 0;
	}
	if (s->payload)
		flows_advance(f, s->seq + s->payload);
	if (s->flags & FLOWS_ENDS)
		f->ended = 1;
	return 0;
}

SEC("tcx/egress")
int weir_flows(struct __sk_buff *ctx)
{
	struct segment s = {};

	if (segment_read(ctx, &s) != SEGMENT_TCP || !(s.payload || s.flags & (TCP_SYN | FLOWS_ENDS)))
		return TCX_NEXT;
	flows_note(ctx, &s);
	return TCX_NEXT;
}
