// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The flow table of a switch: connections, the ports that their data leaves by, and how many flows
// of a port are to be counted.
//
// Two tables. `pending` holds what only one end was heard of: half-open connections, and segments of
// connections older than Weir. It forgets the oldest by itself, so a flood of SYNs costs nothing but
// itself. A connection moves to `flows` when its other end has answered with the right number, which
// who forges its address cannot know. `flows` never forgets a live one: when it is full, or the port that
// opens connections has its share, new ones pass unmanaged.
#ifndef WEIR_BPF_FLOWS_H
#define WEIR_BPF_FLOWS_H

#include "../lib/kernel.h"
#include "../lib/segment.h"

// core's world (core/fairq/switch.h): a port's lock, and atomics. Its ports are below.
#define WEIR_PORT_LOCK struct bpf_spin_lock
#define WEIR_ADD(p, n) __sync_fetch_and_add(p, n)
#define WEIR_SWAP(p, v) __sync_lock_test_and_set(p, v)
#define WEIR_CAS(p, old, v) __sync_val_compare_and_swap(p, old, v)
#define WEIR_PORT(world, id) port_of(id)
#define THE_MAPS ((struct weir_world *)0) // there is one world: the maps of this object

#include "../../core/fairq/fairq.h"
#include "../../core/fairq/switch.h"
#include "../../core/window.h"

#define FAIRQ_PORTS 1024
#define LATELY 4          // sweeps
#define RTT_SPAN_LOG2_NS 33 // 8.6 s: a round-trip time counts for this span and the next

#define SYN_REACH (1u << 20)      // bytes an end may have sent before the other's first acknowledgement
#define ACK_ADOPT_MAX (1u << 30)  // the largest window: how far off one of an older connection may be

enum scale_mode {
	SCALE_LEARN = 0, // from the SYNs
	SCALE_SHIM = 1,  // the same; of connections whose SYNs nobody saw, from the bits that a shim wrote
	SCALE_UNIFY = 2, // every SYN is made to announce the same one (unify.h)
};

enum connection_flags {
	CONNECTION_SIGNED = 1,  // both SYNs were: TCP-MD5 or TCP-AO (signed.h)
	CONNECTION_ADOPTED = 2, // began before Weir saw it
	CONNECTION_RESET = 4,   // not counted until data flows again
	CONNECTION_OPENED_BY_1 = 8, // by end 1 of the key; of an adopted one: that is who was heard of first
	CONNECTION_BARE = 16, // both SYNs were seen, and not both were signed
};

// The data of one end, as the acknowledgements of the other tell of it.
struct acks {
	struct window_edge edge; // that they granted
	__u32 una;               // behind the furthest data that was acknowledged here
	__u32 round;             // what had been sent when it was last looked at: past it, a round trip is over
	__u32 flight;            // the most bytes that were found on their way in this sweep
	__u32 flight_before;     // in the sweep before
	__u32 offered;           // window of the last one as it came, in bytes
	__u32 granted;           // the same as it left; of a free flow: as it would have
};

// Data and its acknowledgements pass on two CPUs: what each writes with every packet is far from what the
// other does.
struct connection {
	__u32 sent[2]; // behind the furthest data that each end sent here
	struct end end[2];
	__u32 seen;  // the sweep in which it was last seen
	__u16 owner; // id + 1 of the port in whose share it is; 0: not in the table
	__u8 flags;  // enum connection_flags
	__u8 zero;
	__u64 syn_ns; // when its SYN passed; 0: was sent again, or is over
	__u16 lot;    // below LOTS: which arm of a port it is in
	__u8 data_lately[2]; // by the end that sent it: LATELY when new data left, 1 less with each sweep
	__u8 acks_lately[2]; // by the end that sent the data: the same of its acknowledgements
	__u8 signs[2]; // by the end that sends: enum signs
	struct acks acks[2]; // by the end that sends them
	struct flow_ends ends; // which connection it is
};

// Packets as they are on the wire (a GSO packet counts its segments) of the port that they leave by, or would.
// Each is in seen and in exactly one of the others up to data.
struct port_counts {
	__u64 seen;
	__u64 not_tcp;
	__u64 tunnel;      // encapsulated, encrypted (both over UDP too) or signed (AH)
	__u64 fragment;
	__u64 short_;      // ended before its headers did
	__u64 no_ack;      // SYN and RST: they grant nothing
	__u64 rewritten;
	__u64 smaller;     // its window was small enough already
	__u64 unknown;     // of no connection in the table
	__u64 ungoverned;  // the data's port has no flows, no Weir, or Weir has let go
	__u64 free_;       // of a flow that is not among the held ones
	__u64 signed_;     // TCP-MD5, TCP-AO: left as they are
	__u64 out_of_scope;
	__u64 unwritable;  // the kernel had no memory to make it writable
	__u64 untold;      // edge mode: left to the edge, which knows the window
	__u64 dropped;     // signed segments that signed_mode drops
	__u64 data;        // segments with payload, whatever else they are
	__u64 opened;      // connections entered from this port
	__u64 adopted;     // of them, those that began before Weir
	__u64 table_full;  // not entered: the table or the port's share was full
	__u64 told;        // edge mode: ACKs that told the edge a window
	__u64 assumed;     // ACKs whose data passes another switch, held to a part of the window of its twin here
};

struct control {
	__u32 schema; // layout of all maps: another one is another Weir
	__u32 sweep;  // number of the last sweep over the table
	__u64 heartbeat_ns; // CLOCK_MONOTONIC
	__u64 lease_ns;     // a heartbeat holds for so long
	__u32 releasing;    // 1: user space is about to leave
	__u32 idle_sweeps;  // a connection not seen for so many is forgotten
	__u64 seed[2];      // of the connections' lots
	__u32 swept;        // the last sweep that is complete
	__u32 watched;      // 1: somebody wants to know what flows do (observe.h)
};

struct scope_key {
	__u32 prefix_length; // of the address as in flow_ends: IPv4 is + 96
	__u32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct port_config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct port_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct flow_key);
	__type(value, struct connection);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct connection);
} pending SEC(".maps");

// 1: in the scope; 0: not, though a shorter prefix is.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct scope_key);
	__type(value, __u32);
} scope SEC(".maps");

static __always_inline struct port *port_of(__u32 id) { return bpf_map_lookup_elem(&ports, &id); }

static __always_inline struct control *control_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&controls, &zero);
}

// ---- constants of an instance ----

const volatile __u32 port_id = 0;
const volatile __u8 count = COUNT_ACTIVE;
const volatile __u8 scale = SCALE_LEARN;
const volatile __u8 unify_shift = 0;
const volatile __u8 shrink = WINDOW_SHRINK_ALLOW;
const volatile __u32 edge_interval = 0; // of edge_clock; 0: every ACK is rewritten (full mode)
const volatile __u32 edge_lease = 0;    // how long the edge remembers
const volatile __u16 edge_change = 0;   // of 256
const volatile __u8 scoped = 0; // 1: only flows with both ends in a prefix of `scope`

#endif
