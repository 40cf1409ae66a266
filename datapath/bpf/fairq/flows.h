// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The flow table of a switch: its connections, and the ports that their data leaves by. All maps of the programs on
// ports, and the constants of an instance.
//
// Two tables hold connections. `pending` has those of which one end was seen only: half-open connections, and
// connections older than Weir. It evicts its least recently used entry, so a flood of SYNs evicts only pending
// connections. A connection moves to the flow table when its other end has acknowledged the right sequence number, which a
// sender with a forged address cannot know. The flow table, of the maps `near` and `flows` (table.h), never evicts an active
// connection. If it is full, or the port's share is, new connections pass unmanaged.
#ifndef WEIR_BPF_FLOWS_H
#define WEIR_BPF_FLOWS_H

#include "../lib/kernel.h"
#include "../lib/segment.h"

// The macros that core/fairq/switch.h expects of its world: a port's lock, atomics, and the lookup of a port.
#define WEIR_PORT_LOCK struct bpf_spin_lock
#define WEIR_ADD(p, n) __sync_fetch_and_add(p, n)
#define WEIR_SWAP(p, v) __sync_lock_test_and_set(p, v)
#define WEIR_CAS(p, old, v) __sync_val_compare_and_swap(p, old, v)
#define WEIR_PORT(world, id) port_of(id)
#define THE_MAPS ((struct weir_world *)0) // there is one world: the maps of this object

#include "../../core/fairq/credit_fits.h"
#include "../../core/fairq/fairq.h"
#include "../../core/fairq/switch.h"
#include "../../core/window.h"

#define FAIRQ_PORTS 1024
#define LATELY 4          // sweeps
#define RTT_SPAN_LOG2_NS 33 // 8.6 s: a round-trip time counts for this span and the next

#define SYN_REACH (1u << 20)      // bytes that an end may have sent before the other's first acknowledgement
#define ACK_ADOPT_MAX (1u << 30)  // bytes, the largest window: how far an older connection's ACK may be off

enum scale_mode {
	SCALE_LEARN = 0, // from the SYNs
	SCALE_SHIM = 1,  // the same; if no SYN was seen, from the reserved bits that a shim wrote
	SCALE_UNIFY = 2, // every SYN is rewritten to announce the same one (unify.h)
};

enum connection_flags {
	CONNECTION_SIGNED = 1,  // both SYNs were signed: TCP-MD5 or TCP-AO (signed.h)
	CONNECTION_ADOPTED = 2, // began before Weir saw it
	CONNECTION_RESET = 4,   // not counted until data flows again
	CONNECTION_OPENED_BY_1 = 8, // end 1 of the key opened it; of an adopted one: end 1 was seen first
	CONNECTION_BARE = 16, // both SYNs were seen, and not both were signed
};

// The fields that change with nearly every segment of an end: how far its data has come, and how far it has acknowledged
// the other end's.
struct acks {
	struct window_edge edge; // the right edge that they granted
	__u32 una;               // sequence number behind the furthest acknowledged data
	__u32 round;             // `sent` at the last look: an ACK above it ends a round trip
	__u32 flight;            // most bytes in flight in this sweep
	__u32 flight_before;     // and in the sweep before
	__u32 offered;           // window of the last ACK as it came, in bytes
	__u32 granted;           // the same as it left; of an unlimited flow: as it would have under the limit
	__u32 sent;              // sequence number behind the furthest data
	struct credit_run stray; // with promises and credits: its data that is far from sent
	__u32 zero[1];
};

#define CACHE_LINE_BYTES 64

// Data and its acknowledgements may pass on two CPUs. Each writes into a cache line of its own: acks[0] ends where the
// fourth line ends, and acks[1] begins the fifth. The first two lines have the fields that packets only read. The
// kernel's table has 64 bytes before each value, so a connection begins with a line if its size is a multiple of it.
struct connection {
	__u32 seen;  // the sweep in which it was last seen
	__u16 owner; // id + 1 of the port whose share it counts in; 0: not in the table
	__u8 flags;  // enum connection_flags
	__u8 turn;  // promises and credits: whose turn it is to send data (credit.h)
	__u64 syn_ns; // when its SYN passed; 0: it was sent again, or the handshake is over
	__u16 bucket; // its bucket, 0 .. 65535: decides its group
	__u8 data_lately[2]; // by the end that sent it: LATELY when new data left, 1 less with each sweep
	__u8 acks_lately[2]; // by the end that sent the data: the same of its acknowledgements
	__u8 signs[2]; // by the end that sends: enum signs
	struct end end[2];
	struct flow_ends ends;
	struct acks acks[2]; // by the end that sends them
	__u32 released[2]; // promises and credits: what an end remembers of its request (core/fairq/credit_flight.h)
	__u32 request[2];  // sequence number of the latest request of an end that waited
};

#define NEAR_PLACES 16384 // by default

// A place of the array `near` (table.h).
struct near_place {
	__u64 zero; // `c` begins with a cache line
	struct connection c;
	struct flow_key key;
	__u64 holder; // whose place it is; 0: nobody's
	__u64 zeros[4];
};

// The kernel's array begins its values 8 bytes before a cache line.
_Static_assert(sizeof(struct near_place) % CACHE_LINE_BYTES == 0, "places share cache lines");
_Static_assert(sizeof(struct port) % CACHE_LINE_BYTES == 0, "what packets read of a port is in two cache lines");
_Static_assert(__builtin_offsetof(struct connection, acks[1]) == 4 * CACHE_LINE_BYTES, "data and acknowledgements share a cache line");
_Static_assert(__builtin_offsetof(struct connection, end[1].field) == 2 * CACHE_LINE_BYTES, "packets read three cache lines");
_Static_assert(sizeof(struct connection) % CACHE_LINE_BYTES == 0, "connections share cache lines");

// Counts of packets as on the wire (a GSO packet counts as its segments), by the port that they leave by, or would
// leave by. Each is counted in seen and in exactly one of those from smaller to dropped. Those that long flows need come
// first: they share cache lines.
struct port_counts {
	__u64 seen;
	__u64 data;        // segments with payload; each is counted below, too
	__u64 smaller;     // its window was small enough already
	__u64 rewritten;
	__u64 ungoverned;  // nothing is granted: the data's port has no flows, no Weir, or the lease has expired
	__u64 free_;       // of an unlimited flow
	__u64 no_ack;      // no ACK, or RST: it grants nothing
	__u64 not_tcp;
	__u64 tunnel;      // encapsulated, encrypted (both over UDP too) or signed (AH)
	__u64 fragment;
	__u64 short_;      // ended before its headers did
	__u64 unknown;     // of no connection in the table
	__u64 signed_;     // TCP-MD5, TCP-AO: left unchanged
	__u64 out_of_scope;
	__u64 unwritable;  // the kernel had no memory to make it writable
	__u64 left_to_edge; // edge mode: left to the edge, to which the window was advertised
	__u64 dropped;     // signed segments that signed_mode drops
	__u64 opened;      // connections entered from this port
	__u64 adopted;     // those of `opened` that began before Weir
	__u64 table_full;  // not entered: the table or the port's share was full
	__u64 advertised;  // edge mode: ACKs that advertised a window
	__u64 assumed;     // ACKs whose data takes another switch, limited to a part of the twin port's window (ecmp.h)
};

struct control {
	__u32 schema; // number of the layout of all maps: programs of another number cannot use them
	__u32 swept;  // number of the latest complete sweep
	__u64 heartbeat_ns; // CLOCK_MONOTONIC
	__u64 lease_ns;     // how long a heartbeat is valid
	__u32 releasing;    // 1: user space is about to leave
	__u32 idle_sweeps;  // a connection that was not seen for this many sweeps is removed
	__u64 seed[2];      // key of the hash that gives the buckets
	__u32 sweep;        // number of the latest sweep over the table. Every packet reads it, and the next one
	__u32 watched;      // 1: a canary, a rollback or an observer reads the counts (observe.h)
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
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NEAR_PLACES);
	__type(key, __u32);
	__type(value, struct near_place);
} near SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct connection);
} pending SEC(".maps");

// Prefixes of the scope. 1: in the scope; 0: not, although a shorter prefix is.
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

static __always_inline int acknowledges(const struct segment *s)
{
	return (s->flags & (TCP_ACK | TCP_RST)) == TCP_ACK;
}

// ---- constants of an instance ----

const volatile __u32 port_id = 0;
const volatile __u8 count = COUNT_ACTIVE;
const volatile __u8 scale = SCALE_LEARN;
const volatile __u8 unify_shift = 0;
const volatile __u8 shrink = WINDOW_SHRINK_ALLOW;
const volatile __u32 edge_interval = 0; // units of edge_clock; 0: every ACK is rewritten (full mode)
const volatile __u32 edge_lease = 0;    // units of edge_clock: how long an advertised window is valid at the edge
const volatile __u16 edge_change = 0;   // in 256ths
const volatile __u8 scoped = 0; // 1: only flows with both ends in a prefix of `scope`

#endif
