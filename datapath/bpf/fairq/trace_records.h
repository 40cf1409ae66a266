// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The records of a trace, and the maps that pass them to user space (trace.h).
#ifndef WEIR_BPF_TRACE_RECORDS_H
#define WEIR_BPF_TRACE_RECORDS_H

#include "flows.h"
#include "../../core/fairq/edge.h"
#include "../../core/fairq/groups.h"

enum law_record {
	RECORD_TURN = 1,
	RECORD_LOOK = 2,
	RECORD_ACK = 3,
	RECORD_COUNT = 4,
};

enum law_turn_event {
	TURN_TICKED = 1,    // value: backlog, bytes
	TURN_RECOUNTED = 2,
	TURN_LIMITED = 3,   // now_ns: the gap
	TURN_SAW_MSS = 4,   // value: bytes
	TURN_STOPPED = 5,
	TURN_REUSED = 6,    // recorded after the change
};

enum law_count_event {
	COUNT_SLOT_TAKEN = 1,     // old, new; counted: the old slot still counted; answer: the port has one more flow
	COUNT_SLOT_GOES = 2,      // old; answer: it still counted
	COUNT_OPENING_COMES = 3,  // now_ns; answer: the registration
	COUNT_OPENING_GOES = 4,   // new: the registration; answer: it still counted
	COUNT_REGISTER_COMES = 5, // answer: the registration
	COUNT_REGISTER_GOES = 6,  // answer: the registration that leaves
};

struct law_head {
	__u64 number; // in the order of the port, from 1
	__u32 port;
	__u32 record; // enum law_record
};

struct law_turn {
	struct law_head head;
	struct port_config config; // without the name
	__u64 now_ns;
	__u16 event; // enum law_turn_event
	__u8 torn;   // 1: user space, which takes no lock, changed the configuration meanwhile
	__u8 zero;
	__u32 value;
	__u8 live;
	__u8 readable;
	__u8 data_seen; // as the tick found it
	__u8 count;     // enum count_mode
	__u32 running;  // after it
	__u64 after[51]; // the port from grant_q8 up to rtt_ns
};

_Static_assert(offsetof(struct port, rtt_ns) - offsetof(struct port, grant_q8) ==
	       sizeof(((struct law_turn *)0)->after), "the part of a port that is recorded");

struct law_count {
	struct law_head head;
	__u64 old;
	__u64 new;
	__u64 now_ns;
	__u64 epoch_ns; // of the port's configuration; 0: without effect
	__u64 answer;
	__u32 flows;    // number of flows at the port after it, in this count mode
	__u16 event;    // enum law_count_event
	__u8 counted;
	__u8 count;     // enum count_mode
};

struct law_look {
	struct law_head head;
	struct fairq_config config;
	__u64 now_ns;
	__u64 answer;
};

// State of the end that sends an ACK, as far as decisions use it.
struct law_end {
	__u32 edge_advertised;
	__u32 edge_advertised_at;
	__u32 upstream_at;
	__u16 upstream;
	__u16 mss;
	__u8 shift; // of its windows
	__u8 announced;
	__u8 flags;
	__u8 zero;
};

struct law_ack {
	struct law_head head;
	struct port_config config; // without the name
	struct edge_config edge_config;
	__u64 now_ns;
	struct granted granted;
	struct law_end end, end_after;
	struct window_edge before, after;
	__u32 clock;  // of edge mode
	__u32 ack;
	__u32 bucket;
	__u32 packets;
	__u32 floor;  // the least window of the flow
	__u16 own;    // the window field as it came
	__u16 gso;    // input of the floor
	__u16 law;    // the field under the port's window
	__u16 left;   // the field that the program reports
	__u16 wire;   // the field in the packet
	__u8 syn;
	__u8 shrink;
	__u8 apart;   // its data takes another of the port's equal paths
	__u8 flagged; // a switch before this one advertised
	__u8 advertises; // it advertises
	__u8 leaves;  // enum law_left
	__u8 live;    // the lease is valid; of a SYN-ACK with count: opening
	__u8 count;
	__u8 called;  // window_rewrite was called
	__u8 zero[5];
};

struct law_order {
	__u64 number; // under the port's lock
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12); // user space sets the size
} law_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct law_order);
} law_orders SEC(".maps");

static __always_inline struct law_order *order_of(__u32 id) { return bpf_map_lookup_elem(&law_orders, &id); }

static __always_inline void law_lost(struct law_order *order)
{
	if (order)
		__sync_fetch_and_add(&order->lost, 1);
}

static __always_inline void config_copy(struct port_config *to, const struct port_config *from)
{
	__builtin_memcpy(to, from, offsetof(struct port_config, name));
}

static __always_inline int config_differs(const struct port_config *a, const struct port_config *b)
{
	const volatile __u64 *x = (const volatile __u64 *)a, *y = (const volatile __u64 *)b;

	for (__u32 i = 0; i < offsetof(struct port_config, name) / 8; i++)
		if (x[i] != y[i])
			return 1;
	return 0;
}

#endif
