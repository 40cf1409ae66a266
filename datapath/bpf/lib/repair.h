// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The repair of losses at a port (core/repair.h), for tcx egress programs: a TCP segment that the queue would lose is kept in the
// parking (park.h), which returns it in order at the port's rate.
//
// Each port has its own instance of the program; the tables are shared by the ports of a switch.
//
// A packet that repair_parks parked has the time when it was parked in skb->tc_index, which neither the parking's queue nor its
// veth changes:
//
//   15                        3       2      1      0
//   | time, units of 65.536 us | again | kept | over |
//
//   again  1: it came back when the queue still had no room, or behind one that did, and waits once more
//   kept   1: repair_parks parked it. A program that parks other packets, too, tells them apart by it
//   over   1: the queue had no room; 0: it went behind its flow
#ifndef WEIR_BPF_REPAIR_H
#define WEIR_BPF_REPAIR_H

#include "../../core/repair.h"
#include "backlog.h"
#include "counts.h"
#include "park.h"
#include "segment.h"

// Tests define NOW() as a time of their own.
#ifndef NOW
#define NOW() bpf_ktime_get_ns()
#endif

// The most flows of which packets wait.
#ifndef REPAIR_FLOWS
#define REPAIR_FLOWS 65536
#endif

#define STAMP_SHIFT 13
#define STAMP_OVER 1
#define STAMP_KEPT 2
#define STAMP_AGAIN 4
#define STAMP_FLAGS 7
#define REPAIR_PORTS PARK_PORTS
#define REPAIR_NAME_BYTES 32
#define KIB_SHIFT 10

// The configuration of a port.
struct repair_port_config {
	__u64 netns_cookie;
	__u64 due_ns; // a repair that takes longer is late
	__u32 ifindex;
	__u32 limit_bytes; // core/repair.h
	__u32 park_bytes;  // 0: nothing is kept
	__u32 ns_per_kib;  // at the port's rate
	__u32 off;         // 1: packets pass
	__u32 full_bytes;  // a packet that comes back waits once more above it; 0: it never does
	__u32 zero;
	char name[REPAIR_NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REPAIR_PORTS);
	__type(key, __u32);
	__type(value, struct repair_port_config);
} repair_configs SEC(".maps");

// One direction of a connection at a port.
struct direction {
	struct flow_key key;
	__u32 side;
	__u32 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, REPAIR_FLOWS);
	__type(key, struct direction);
	__type(value, struct repair_flow);
} repair_flows SEC(".maps");

// The state of the port.
struct repair_port {
	__u64 parked_ns; // when the last packet was parked
	__u64 back_ns;   // when the packet that came back last was parked
	__u32 bytes;     // in the parking: repair_waiting
	__u32 again;     // packets that wait once more; below 0 as `bytes`, and too many if one was lost in the parking
	__u64 again_ns;  // when one began to, because the queue had no room for it
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REPAIR_PORTS);
	__type(key, __u32);
	__type(value, struct repair_port);
} repair_ports SEC(".maps");

// Packets, as on the wire.
struct repair_counts {
	__u64 seen; // without those that come back
	__u64 over; // the next four: verdicts of core/repair.h
	__u64 behind;
	__u64 full;
	__u64 other;
	__u64 refused;   // passed to the queue, because the parking did not take them
	__u64 back;
	__u64 repaired;  // of those: the queue had no room for them at first
	__u64 in_time;   // of the repaired: after due_ns at most
	__u64 sent_in_time; // of the repaired: also at the head of the queue before due_ns
	__u64 waited_ns; // of the repaired, the sum
	__u64 longest_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REPAIR_PORTS);
	__type(key, __u32);
	__type(value, struct repair_counts);
} repair_stats SEC(".maps");

// The entries of a port in the tables.
struct at_port {
	struct repair_port *state;
	const struct repair_port_config *config;
	struct repair_counts *counts;
};

// Finds the entries of a port. Returns 0 if there are none.
static __always_inline int repair_read(struct at_port *p, __u32 id)
{
	p->state = bpf_map_lookup_elem(&repair_ports, &id);
	p->config = bpf_map_lookup_elem(&repair_configs, &id);
	p->counts = bpf_map_lookup_elem(&repair_stats, &id);
	return p->state && p->config && p->counts;
}

static __always_inline struct direction direction_of(const struct segment *s, __u32 id)
{
	return (struct direction){.key = s->key, .side = s->side, .port = id};
}

// Reports whether nothing that was parked at a port can wait any more: packets were lost with the parking's device.
static __always_inline int repair_is_over(const struct repair_port *port, __u64 now)
{
	return (__s64)(now - port->parked_ns) > (__s64)REPAIR_FORGET_NS; // another processor may have parked one since `now`
}

// Returns the bytes that wait at a port. Packets that come back after repair_forgets can make the count less than 0.
static __always_inline __u32 repair_waiting(const struct repair_port *port, __u64 now)
{
	__s32 bytes = port->bytes;

	return bytes > 0 && !repair_is_over(port, now) ? bytes : 0;
}

// Begins the counts of what waits afresh if nothing can.
static __always_inline void repair_forgets(struct repair_port *port, __u64 now)
{
	if ((port->bytes || port->again) && repair_is_over(port, now)) {
		port->bytes = 0;
		port->again = 0;
	}
}

// Returns the flow of a segment if packets may wait at the port.
static __always_inline struct repair_flow *repair_flow_of(const struct at_port *p, const struct direction *of)
{
	return p->state->bytes ? bpf_map_lookup_elem(&repair_flows, of) : NULL;
}

// Returns for how long a packet has waited.
static __always_inline __u64 stamp_age(__u32 stamp, __u64 now)
{
	return (__u64)(((now >> STAMP_SHIFT) - (stamp & ~STAMP_FLAGS)) & 0xffff) << STAMP_SHIFT;
}

// Reports whether a packet that comes back must wait once more, because the machine delayed the port or the parking was early. Those that
// come back behind it wait, too. They can change places then.
static __always_inline int repair_is_early(struct __sk_buff *ctx, const struct at_port *p)
{
	struct repair_config config = {.full_bytes = p->config->full_bytes};
	__u32 stamp = ctx->tc_index, bytes = ctx->wire_len, backlog = BACKLOG(ctx);
	__u64 now = NOW(), age = stamp_age(stamp, now);
	int behind = !(stamp & STAMP_AGAIN) && (__s32)p->state->again > 0 &&
		     (__s64)(now - p->state->again_ns) < (__s64)REPAIR_FORGET_NS;

	if (repair_again(&config, backlog, bytes, 0, age)) {
		p->state->again_ns = now;
		return 1;
	}
	return repair_again(&config, backlog, bytes, behind, age);
}

// Counts a packet that comes back: it leaves the port.
static __always_inline void repair_returns(struct __sk_buff *ctx, const struct at_port *p, const struct direction *of)
{
	__u64 now = NOW(), packets = packets_of(ctx), wait;
	__u32 stamp = ctx->tc_index, bytes = ctx->wire_len;
	struct repair_flow *flow = repair_flow_of(p, of);
	struct repair_port *port = p->state;
	struct repair_counts *counts = p->counts;

	if (stamp & STAMP_AGAIN)
		__sync_fetch_and_sub(&port->again, 1);
	ctx->tc_index = 0;
	wait = stamp_age(stamp, now);
	counts->back += packets;
	if (flow && flow->waiting)
		__sync_fetch_and_sub(&flow->waiting, 1);
	if (now - wait > port->back_ns)
		port->back_ns = now - wait;
	__sync_fetch_and_sub(&port->bytes, bytes);
	if (!(stamp & STAMP_OVER))
		return;
	counts->repaired += packets;
	counts->waited_ns += wait * packets;
	if (wait > counts->longest_ns)
		counts->longest_ns = wait;
	if (wait > p->config->due_ns)
		return;
	counts->in_time += packets;
	if (wait + ((__u64)BACKLOG(ctx) * p->config->ns_per_kib >> KIB_SHIFT) <= p->config->due_ns)
		counts->sent_in_time += packets;
}

// Parks a packet in the queue `class` of the parking, where it counts for `cost` bytes, or for its own if these are more. over: the
// queue of the port had no room for it. Returns PARK_REDIRECT, or PARK_PASS: the packet is unchanged.
static __always_inline int repair_parks(struct __sk_buff *ctx, const struct at_port *p, const struct direction *of,
					struct repair_flow *flow, __u32 class, __u32 cost, int over)
{
	__u64 now = NOW();
	__u32 bytes = ctx->wire_len;
	struct repair_flow fresh = {.parked_ns = now, .waiting = 1};
	__s32 debt;
	int verdict;

	ctx->tc_index = (now >> STAMP_SHIFT & ~STAMP_FLAGS) | STAMP_KEPT | over;
	verdict = park_send(ctx, of->port, class, cost, &debt);
	if (verdict == PARK_PASS) {
		ctx->tc_index = 0;
		p->counts->refused += packets_of(ctx);
		return PARK_PASS;
	}
	p->state->parked_ns = now;
	__sync_fetch_and_add(&p->state->bytes, bytes);
	if (!flow) {
		bpf_map_update_elem(&repair_flows, of, &fresh, BPF_ANY);
		return verdict;
	}
	if (!repair_waits(flow, p->state->back_ns, now))
		flow->waiting = 0;
	flow->parked_ns = now;
	__sync_fetch_and_add(&flow->waiting, 1);
	return verdict;
}

// Decides about a packet, which came now, and counts it. of, flow: if it is TCP.
static __always_inline enum repair_verdict repair_decides(struct __sk_buff *ctx, const struct at_port *p,
							  const struct repair_flow *flow, int is_tcp, __u64 now)
{
	struct repair_config config = {.limit_bytes = p->config->limit_bytes, .park_bytes = p->config->park_bytes};
	int waits = flow && repair_waits(flow, p->state->back_ns, now);
	__u64 packets = packets_of(ctx);
	enum repair_verdict verdict;

	repair_forgets(p->state, now);
	verdict = repair_decide(&config, BACKLOG(ctx), repair_waiting(p->state, now), ctx->wire_len, is_tcp, waits);
	if (verdict == REPAIR_OVER)
		p->counts->over += packets;
	else if (verdict == REPAIR_BEHIND)
		p->counts->behind += packets;
	else if (verdict == REPAIR_FULL)
		p->counts->full += packets;
	else if (verdict == REPAIR_OTHER)
		p->counts->other += packets;
	return verdict;
}

#endif
