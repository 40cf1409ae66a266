// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The repair of losses at a port: a tcx egress program around core/repair.h and lib/repair.h.
//
// Each port has its own instance of the program; the tables are shared by the ports of a switch. The program should be the first of
// the port's chain, because the others would see a parked packet twice. Without heartbeats of user space packets pass.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../core/lease.h"
#include "../lib/repair.h"

char _license[] SEC("license") = WEIR_LICENSE;

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

// Reports whether losses at the port are repaired now.
static __always_inline int is_on(const struct at_port *p, __u64 now)
{
	__u32 zero = 0;
	struct repair_control *c = bpf_map_lookup_elem(&repair_controls, &zero);

	return c && !p->config->off && lease_is_live(c->releasing, c->heartbeat_ns, c->lease_ns, now);
}

SEC("tcx/egress")
int weir_repair(struct __sk_buff *ctx)
{
	struct at_port p = {};
	struct repair_flow *flow = NULL;
	struct direction of = {};
	struct segment s = {};
	enum repair_verdict verdict;
	int is_tcp, parked;
	__u64 now;

	if (!repair_read(&p, port_id))
		return TCX_NEXT;
	is_tcp = segment_read(ctx, &s) == SEGMENT_TCP;
	if (is_tcp)
		of = direction_of(&s, port_id);
	if (park_is_return(ctx)) {
		repair_returns(ctx, &p, &of);
		return TCX_NEXT;
	}
	p.counts->seen += packets_of(ctx);
	now = NOW();
	if (!is_on(&p, now))
		return TCX_NEXT;
	if (is_tcp)
		flow = repair_flow_of(&p, &of);
	verdict = repair_decides(ctx, &p, flow, is_tcp, now);
	if (verdict == REPAIR_PASS)
		return TCX_NEXT;
	if (verdict != REPAIR_OVER && verdict != REPAIR_BEHIND)
		return TCX_DROP;
	parked = repair_parks(ctx, &p, &of, flow, port_id, 0, verdict == REPAIR_OVER ? STAMP_OVER : 0);
	return parked == PARK_PASS ? TCX_NEXT : parked;
}
