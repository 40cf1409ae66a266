// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The switch program and the baselines of its benchmark.
#include "../../../bpf/fairq/fairq.bpf.c"
#include "../../bpftest/baselines.h"

// A lookup of the size of the flow table's key.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u64);
} long_lookups SEC(".maps");

SEC("tcx/egress")
int long_lookup(struct __sk_buff *ctx)
{
	struct flow_key key = {.word = {ctx->ifindex}};
	__u64 *v = bpf_map_lookup_elem(&long_lookups, &key);

	return v ? TCX_DROP : TCX_NEXT;
}

// Parts of the program, by themselves.
SEC("tcx/egress")
int clock(struct __sk_buff *ctx)
{
	return bpf_ktime_get_ns() ? TCX_NEXT : TCX_DROP;
}

SEC("tcx/egress")
int parse(struct __sk_buff *ctx)
{
	struct segment s = {};

	return segment_read(ctx, &s) == SEGMENT_TCP && s.key.word[1] != 1 ? TCX_NEXT : TCX_DROP;
}

const volatile __u16 wide_window = 0;
const volatile __u32 tcp_at = 0;

// Puts the wide window back that the packet came with; from, host order, stands there.
static __always_inline void widen(struct __sk_buff *ctx, __be16 from)
{
	__be16 to = bpf_htons(wide_window);

	bpf_l4_csum_replace(ctx, tcp_at + TCP_CHECK, from, to, sizeof(to));
	bpf_skb_store_bytes(ctx, tcp_at + TCP_WINDOW, &to, sizeof(to), 0);
}

SEC("tcx/egress")
int undo(struct __sk_buff *ctx)
{
	__be16 from;

	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_WINDOW, &from, sizeof(from)))
		return TCX_DROP;
	widen(ctx, from);
	return TCX_NEXT;
}

// ---- promises and credits (credit_bench_test.go) ----

// Each packet of a row finds this connection and these credits of both ports. A row that cannot be repeated as it is, because
// the packet before it changed them, has its baseline put them back, too.
struct flow_key again_key = {};
struct connection again_connection = {};
__u32 again_ahead_ns = 0; // the clock of both ports, from now; 0: it does not run
__u32 again_queue_ns = 0; // the parking queue is free

static __always_inline void again_credits(__u32 id, __u64 now)
{
	struct port_credit *p = bpf_map_lookup_elem(&credits, &id);

	if (!p)
		return;
	p->state.clock_ns = again_ahead_ns ? now + again_ahead_ns : 0;
	p->state.queue_ns = again_queue_ns ? now + again_queue_ns : 0;
	p->state.corrected_ns = 0;
	p->state.handshakes_less = 0;
}

// Undoes what a packet left: the wide window, the mark and the padding of a packet that was parked.
static __always_inline void again(struct __sk_buff *ctx)
{
	struct connection *c = flow_find(&again_key);
	__u64 now = bpf_ktime_get_ns();
	__be16 from;

	again_credits(0, now);
	again_credits(1, now);
	if (c) {
		c->turn = again_connection.turn;
		for (int i = 0; i < 2; i++) {
			c->acks[i].sent = again_connection.acks[i].sent;
			c->acks[i].una = again_connection.acks[i].una;
			c->end[i].promise = again_connection.end[i].promise;
			c->end[i].allowed = again_connection.end[i].allowed;
			c->end[i].waits_until = 0;
		}
	}
	if (ctx->mark) {
		ctx->mark = 0;
		ctx->priority = 0;
	}
	if (!bpf_skb_load_bytes(ctx, tcp_at + TCP_WINDOW, &from, sizeof(from)) && from != bpf_htons(wide_window))
		widen(ctx, from);
}

SEC("tcx/egress")
int again_only(struct __sk_buff *ctx)
{
	again(ctx);
	return TCX_NEXT;
}

SEC("tcx/egress")
int again_off(struct __sk_buff *ctx)
{
	again(ctx);
	return fairq_packet(ctx, 0);
}

SEC("tcx/egress")
int again_credit(struct __sk_buff *ctx)
{
	again(ctx);
	return fairq_packet(ctx, 1);
}

// The part of a row that pads a packet to the length of a segment, and trims it again.
SEC("tcx/egress")
int pad_and_trim(struct __sk_buff *ctx)
{
	__u32 length = ctx->len;

	bpf_skb_change_tail(ctx, 1641, 0);
	bpf_skb_change_tail(ctx, length, 0);
	return TCX_NEXT;
}

SEC("tcx/egress")
int rewrite_and_undo(struct __sk_buff *ctx)
{
	__be16 from;

	fairq_packet(ctx, 0);
	if (bpf_skb_load_bytes(ctx, tcp_at + TCP_WINDOW, &from, sizeof(from)))
		return TCX_DROP;
	widen(ctx, from);
	return TCX_NEXT;
}

static __u32 number;

// Another SYN each time, from a port and a sequence number that were not seen lately.
static __always_inline void renumber(struct __sk_buff *ctx)
{
	__u32 n = ++number;

	bpf_skb_store_bytes(ctx, tcp_at, &n, 2, 0);
	bpf_skb_store_bytes(ctx, tcp_at + 4, &n, 4, 0);
}

SEC("tcx/egress")
int renumber_only(struct __sk_buff *ctx)
{
	renumber(ctx);
	return TCX_NEXT;
}

SEC("tcx/egress")
int new_syn(struct __sk_buff *ctx)
{
	renumber(ctx);
	return fairq_packet(ctx, 0);
}

// ---- two processors at one place of the flow table (places_test.go) ----

__u64 race_came = 0; // how many processors have come, in all rounds
__u64 race_goes = 0; // with so many a round begins
struct flow_key race_keys[2] = {}; // the connection that leaves, and the one that both enter
struct connection race_connection = {};
__s64 race_results[2] = {}; // of flow_add

static long race_waits(__u32 i, void *nothing) { return *(volatile __u64 *)&race_came >= race_goes; }

// Waits for the other processor. Then mark 1 removes the first connection, and both enter the second one.
SEC("tcx/egress")
int race(struct __sk_buff *ctx)
{
	__u32 side = ctx->mark & 1;
	struct connection *old;

	__sync_fetch_and_add(&race_came, 1);
	bpf_loop(1 << 20, race_waits, NULL, 0);
	if (side) {
		old = flow_find(&race_keys[0]);
		if (old)
			flow_remove(&race_keys[0], old);
	}
	race_results[side] = flow_add(&race_keys[1], &race_connection);
	return TCX_NEXT;
}
