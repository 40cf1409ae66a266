// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The laws `ecn` and `red` on a port: a tcx egress program around core/mark.h.
//
// One instance of the program runs on each port. Its port is a constant of the instance: an index into the two array
// maps, which user space assigns. The key is not (netns cookie, ifindex), for three reasons. An array access with a
// constant index is a few inlined instructions; a hash lookup costs about 28 ns per packet. An ifindex alone collides
// across namespaces. An upgrade replaces the program of a link by one with the same index.
//
// The backlog is that of the device by which the packet leaves. The device needs a queue discipline that keeps its own
// backlog (tbf, htb, bfifo, ...): user space refuses others.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../core/mark.h"
#include "../lib/backlog.h"
#include "../lib/counts.h"
#include "../lib/ecn.h"
#include "../lib/frame.h"
#include "../lib/marked.h"

#define MARK_PORTS 1024

char _license[] SEC("license") = WEIR_LICENSE;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MARK_PORTS);
	__type(key, __u32);
	__type(value, struct mark_config);
} configs SEC(".maps");

// Counts of packets as on the wire: a GSO packet counts as its segments.
struct port_stats {
	__u64 seen;            // all: the sum of those below
	__u64 pass_under;      // queue at or under the threshold
	__u64 pass_ce;         // over it, CE already
	__u64 pass_not_ect;    // over it, Not-ECT, passed
	__u64 marked;          // ECT became CE
	__u64 drop_law;        // over it, action drop
	__u64 drop_not_ect;    // over it, Not-ECT, dropped
	__u64 pass_not_ip;     // neither IPv4 nor IPv6
	__u64 pass_short;      // ended before its headers did
	__u64 pass_unwritable; // not marked: the kernel had no memory to make it writable
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MARK_PORTS);
	__type(key, __u32);
	__type(value, struct port_stats);
} counts SEC(".maps");

const volatile __u32 port_id = 0;

SEC("tcx/egress")
int weir_mark(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct mark_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port_stats *stats = bpf_map_lookup_elem(&counts, &id);
	__u64 packets = packets_of(ctx);
	struct frame f = {};

	if (!config || !stats)
		return TCX_NEXT;
	stats->seen += packets;
	frame_read(ctx, &f);
	if (f.kind == FRAME_NOT_IP) {
		stats->pass_not_ip += packets;
		return TCX_NEXT;
	}
	if (f.kind == FRAME_SHORT) {
		stats->pass_short += packets;
		return TCX_NEXT;
	}
	switch (mark_decide(config, BACKLOG(ctx), f.ecn)) {
	case MARK_PASS_UNDER:
		stats->pass_under += packets;
		return TCX_NEXT;
	case MARK_PASS_CE:
		stats->pass_ce += packets;
		return TCX_NEXT;
	case MARK_PASS_NOT_ECT:
		stats->pass_not_ect += packets;
		return TCX_NEXT;
	case MARK_DROP_LAW:
		stats->drop_law += packets;
		return TCX_DROP;
	case MARK_DROP_NOT_ECT:
		stats->drop_not_ect += packets;
		return TCX_DROP;
	case MARK_SET_CE:
		if (ecn_set_ce(ctx, &f)) {
			stats->pass_unwritable += packets;
			return TCX_NEXT;
		}
		stats->marked += packets;
		marked_here(ctx);
	}
	return TCX_NEXT;
}
