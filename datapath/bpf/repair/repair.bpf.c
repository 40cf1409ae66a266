// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The repair of losses at a port: a tcx egress program around core/repair.h. It keeps TCP segments that the queue would lose in
// the parking (lib/park.h), which returns them in order at the port's rate.
//
// Each port has its own instance of the program; the tables are shared by the ports of a switch. The program should be the first of
// the port's chain, because the others would see a parked packet twice. Without heartbeats of user space packets pass.
//
// A parked packet has the time when it was parked in skb->tc_index, which neither the parking's queue nor its veth changes:
//
//   15                              1  0
//   | time, units of 8.192 us        | over: the queue had no room; 0: it went behind its flow |
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../core/lease.h"
#include "../../core/repair.h"
#include "../lib/backlog.h"
#include "../lib/counts.h"
#include "../lib/park.h"
#include "../lib/segment.h"

char _license[] SEC("license") = WEIR_LICENSE;

// Tests define NOW() as a time of their own.
#ifndef NOW
#define NOW() bpf_ktime_get_ns()
#endif

#define STAMP_SHIFT 12
#define STAMP_OVER 1
#define REPAIR_PORTS PARK_PORTS
#define REPAIR_FLOWS 65536
#define REPAIR_NAME_BYTES 32
#define KIB_SHIFT 10

const volatile __u32 port_id = 0; // the port's id in the tables and in the parking

// The state that all ports share.
struct repair_control {
	__u32 schema;    // version of the tables
	__u32 releasing; // user space is about to leave
	__u64 heartbeat_ns;
	__u64 lease_ns;
	__u64 seed[2]; // of the digest of IPv6 flows
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct repair_control);
} repair_controls SEC(".maps");

// The configuration of a port.
struct repair_port_config {
	__u64 netns_cookie;
	__u64 due_ns; // a repair that takes longer is late
	__u32 ifindex;
	__u32 limit_bytes; // core/repair.h
	__u32 park_bytes;
	__u32 ns_per_kib;  // at the port's rate
	__u32 off;         // 1: packets pass
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
	__u32 bytes;     // in the parking
	__u32 unused;
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

// The entries of the port in the tables.
struct at_port {
	struct repair_port *state;
	const struct repair_port_config *config;
	struct repair_counts *counts;
};

// Finds the entries of the port. Returns 0 if there are none.
static __always_inline int port_read(struct at_port *p)
{
	__u32 id = port_id;

	p->state = bpf_map_lookup_elem(&repair_ports, &id);
	p->config = bpf_map_lookup_elem(&repair_configs, &id);
	p->counts = bpf_map_lookup_elem(&repair_stats, &id);
	return p->state && p->config && p->counts;
}

// Reports whether losses at the port are repaired now.
static __always_inline int is_on(const struct at_port *p, __u64 now)
{
	__u32 zero = 0;
	struct repair_control *c = bpf_map_lookup_elem(&repair_controls, &zero);

	return c && !p->config->off && lease_is_live(c->releasing, c->heartbeat_ns, c->lease_ns, now);
}

// Handles a packet that comes back: it passes.
static __always_inline void returns(struct __sk_buff *ctx, const struct at_port *p, struct repair_flow *flow)
{
	__u64 now = NOW(), packets = packets_of(ctx), wait;
	__u32 stamp = ctx->tc_index, bytes = ctx->wire_len;
	struct repair_port *port = p->state;
	struct repair_counts *counts = p->counts;

	ctx->tc_index = 0;
	wait = (__u64)(((now >> STAMP_SHIFT) - (stamp & ~STAMP_OVER)) & 0xffff) << STAMP_SHIFT;
	counts->back += packets;
	if (flow && flow->waiting)
		__sync_fetch_and_sub(&flow->waiting, 1);
	if (now - wait > port->back_ns)
		port->back_ns = now - wait;
	__sync_fetch_and_sub(&port->bytes, bytes < port->bytes ? bytes : port->bytes);
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

// Parks a packet. Returns the program's verdict.
static __always_inline int parks(struct __sk_buff *ctx, const struct at_port *p, const struct direction *of, struct repair_flow *flow,
				 int over)
{
	__u64 now = NOW();
	__u32 bytes = ctx->wire_len;
	struct repair_flow fresh = {.parked_ns = now, .waiting = 1};
	__s32 debt;
	int verdict;

	ctx->tc_index = (now >> STAMP_SHIFT & ~STAMP_OVER) | over;
	verdict = park_send(ctx, port_id, port_id, 0, &debt);
	if (verdict == PARK_PASS) {
		ctx->tc_index = 0;
		p->counts->refused += packets_of(ctx);
		return TCX_NEXT;
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

SEC("tcx/egress")
int weir_repair(struct __sk_buff *ctx)
{
	struct at_port p = {};
	struct repair_config config;
	struct repair_flow *flow = NULL;
	struct direction of = {};
	struct segment s = {};
	__u64 now, packets = packets_of(ctx);
	int is_tcp, waits;

	if (!port_read(&p))
		return TCX_NEXT;
	is_tcp = segment_read(ctx, &s) == SEGMENT_TCP;
	if (is_tcp) {
		of.key = s.key;
		of.side = s.side;
		of.port = port_id;
		flow = bpf_map_lookup_elem(&repair_flows, &of);
	}
	if (park_is_return(ctx)) {
		returns(ctx, &p, flow);
		return TCX_NEXT;
	}
	p.counts->seen += packets;
	now = NOW();
	if (!is_on(&p, now))
		return TCX_NEXT;
	if (p.state->bytes && now - p.state->parked_ns > REPAIR_FORGET_NS) // packets were lost with the parking's device
		p.state->bytes = 0;
	waits = flow && repair_waits(flow, p.state->back_ns, now);
	config = (struct repair_config){.limit_bytes = p.config->limit_bytes, .park_bytes = p.config->park_bytes};
	switch (repair_decide(&config, BACKLOG(ctx), p.state->bytes, ctx->wire_len, is_tcp, waits)) {
	case REPAIR_PASS:
		return TCX_NEXT;
	case REPAIR_OVER:
		p.counts->over += packets;
		return parks(ctx, &p, &of, flow, STAMP_OVER);
	case REPAIR_BEHIND:
		p.counts->behind += packets;
		return parks(ctx, &p, &of, flow, 0);
	case REPAIR_FULL:
		p.counts->full += packets;
		return TCX_DROP;
	case REPAIR_OTHER:
		p.counts->other += packets;
		return TCX_DROP;
	}
	return TCX_NEXT;
}
