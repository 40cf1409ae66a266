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
//
// Counting (count: active). A direction is counted while it sent data lately. Time is cut into epochs;
// each direction has a seat: the port and the epoch that it last sent in; each port keeps how many
// directions sit in each epoch. A flow counts until FLOWS_LIVE epochs have passed without data. So a
// packet moves its direction only once an epoch, and nobody has to walk the table to count.
#ifndef WEIR_BPF_FLOWS_H
#define WEIR_BPF_FLOWS_H

#include "../../core/fairq.h"
#include "../../core/window.h"
#include "../lib/kernel.h"
#include "../lib/segment.h"

#define FAIRQ_PORTS 1024
#define FLOWS_LIVE 4      // epochs that a seat counts for
#define FLOWS_WHEEL 8     // a power of 2 above FLOWS_LIVE: a late packet finds its slot still there
#define PORT_NAME_BYTES 32
#define LOTS 65536u       // a connection has one of so many (arms.h)
#define LATELY 4          // sweeps
#define RTT_SPAN_LOG2_NS 33 // 8.6 s: a round-trip time counts for this span and the next

#define SYN_REACH (1u << 20)      // bytes an end may have sent before the other's first acknowledgement
#define ACK_ADOPT_MAX (1u << 30)  // the largest window: how far off one of an older connection may be

enum count_mode {
	COUNT_ACTIVE = 0,    // directions that sent data lately
	COUNT_HANDSHAKE = 1, // the paper's register: SYN-ACKs less FINs
	COUNT_OPENING = 2,   // as COUNT_ACTIVE; SYN-ACKs are held to the share beside open handshakes
};

enum scale_mode {
	SCALE_LEARN = 0, // from the SYNs
	SCALE_SHIM = 1,  // the same; of connections whose SYNs nobody saw, from the bits that a shim wrote
	SCALE_UNIFY = 2, // every SYN is made to announce the same one (unify.h)
};

// Which flows of a port are held, and to what.
enum hold_mode {
	HOLD_ALL = 0,  // every one, to the law's window
	HOLD_PART = 1, // a share of them, to the equilibrium window; the others pass
	HOLD_NONE = 2, // none: nothing is rewritten
};

enum end_flags {
	END_SEEN = 1,  // sent something: next is valid
	END_SYN = 2,   // sent a SYN: first is valid
	END_SCALE = 4, // its window scale is known, not inferred
	END_FIN = 8,   // will send no more data
	END_ACKED = 16, // adopted: acked is valid
	END_UNIFIED = 32, // its SYN was made to announce `told`: its windows are converted
	END_SIGNED = 64, // its SYN was signed
};

enum connection_flags {
	CONNECTION_SIGNED = 1,  // both SYNs were: TCP-MD5 or TCP-AO (signed.h)
	CONNECTION_ADOPTED = 2, // began before Weir saw it
	CONNECTION_RESET = 4,   // not counted until data flows again
	CONNECTION_OPENED_BY_1 = 8, // by end 1 of the key; of an adopted one: that is who was heard of first
	CONNECTION_BARE = 16, // both SYNs were seen, and not both were signed
};

#define ASSUMED_NONE (1u << 15) // no port of ours; with 15 bits of which device, in which sweep

// What one end of a connection sends.
struct end {
	__u64 seat;              // port + 1 in the upper 16 bits, epoch below; 0: not counted
	__u32 registration;      // count: handshake: generation of its port's register; 0: not in it.
				 // count: opening: epoch of its SYN-ACK, and 1; 0: its handshake is not open
	__u32 first;             // sequence number of its SYN
	__u32 next;              // behind what it sent last
	__u32 acked;             // adopted: its last acknowledgement
	__u16 field;             // adopted: the largest window field of this sweep
	__u16 port;              // id + 1 of the port its data leaves by; 0: unknown
	__u16 mss;               // its MSS option, a limit on what the other sends; 0: unknown
	__u16 gso;               // the largest segment that it was seen to send; 0: none
	__u8 shift;              // of its windows
	__u8 flags;              // enum end_flags
	__u16 registered_at;     // id of that port
	__u16 field_before;      // adopted: of the sweep before
	__u8 told;               // scale: unify: what the other end takes shift for
	__u8 sweeps;             // adopted: since then, 2 at most
	__u32 edge_told;         // edge mode: window that the edge was told last; 0: none
	__u32 edge_told_at;      // and when, of edge_clock
	__u32 upstream_at;       // when a switch before this one told it
	__u16 upstream;          // the field that it told; 0: none
	__u16 assumed;           // id + 1 of the port that its data would leave by here (ecmp.h); 0: unknown; or ASSUMED_NONE
};

// What the acknowledgements of one end say about the data of the other.
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
};

struct port_config {
	struct fairq_config law;
	__u64 netns_cookie; // with ifindex: which device the port is
	__u32 ifindex;
	__u32 epoch_ns;      // the activity window / (FLOWS_LIVE - 1)
	__u32 idle_ns;       // count: handshake: without data for so long the register is 0 again
	__u32 flows_max;     // connections that may be opened from this port
	__u32 mss_unknown;   // floor of flows whose MSS nobody saw: MTU - 40
	__u32 releasing;     // 1: Weir is about to leave this port: let its windows go
	__u32 pipe_bytes;    // C * RTT, for the equilibrium window
	__u32 hold;          // enum hold_mode
	__u32 hold_share;    // HOLD_PART: of LOTS
	__u16 paths;         // equal paths of which the port is one (ecmp.h); 0, 1: it is the only one
	__u16 divisor;       // of the window that ACKs are held to whose data takes another of them
	char name[PORT_NAME_BYTES];
};

// What a sweep found at a port.
struct port_swept {
	__u32 sweep;    // its number
	__u32 flows[2]; // that count, free and held
	__u32 one_sided_data; // directions whose data leaves here, and whose acknowledgements pass nowhere here
	__u32 one_sided_acks; // directions whose acknowledgements leave here, and whose data passes nowhere here
};

struct port {
	struct bpf_spin_lock lock;
	__u32 running; // the timer is armed
	__u64 grant_q8; // what ACKs of held flows are held to; 0: nothing
	__u64 epoch;
	__u32 spared;      // flows with a lot below it are not held; 0: all are
	__u32 let_go_from; // of those, the ones from this lot on are being let go
	__u64 let_go_q8;   // what they are held to meanwhile; 0: nothing
	__u64 equilibrium_q8; // (C * RTT + target) / flows; 0: no flows
	struct fairq_state law;
	__u32 wheel[FLOWS_WHEEL]; // directions by the epoch they sit in
	__u32 opening[FLOWS_WHEEL]; // count: opening: directions of open handshakes, by the epoch of their SYN-ACK
	__u64 epoch_began_ns;
	__u64 ticked_ns;
	__u64 data_ns;         // when the tick last found data_seen
	__u64 device;          // struct net_device *, as a number
	__u64 ticks;           // by the timer
	__u64 ticks_by_packet; // because the timer was late, or rested
	__u64 device_refused;  // ticks that found the device gone or another
	__u32 backlog;         // at the last tick
	__u32 backlog_max;
	__u32 data_seen;
	__u32 registered; // count: handshake
	__u32 generation; // of the register; from 1
	__u32 owned;      // connections opened from this port
	__u32 enforced;   // 1: at the last tick windows were the law's
	__u32 nap_ns;     // how long the timer rests while packets sample
	__u64 looked_ns;  // when a packet last looked whether it shall
	__u32 hold;       // enum hold_mode that is in effect
	__u32 easing;     // 1: it is new, and the grant still grows to what it gives
	__u32 rtt_ns;     // least of the handshakes in the last span that had any; 0: none
	__u32 rtt_before_ns; // in the span before that
	__u32 rtt_span;      // its number
	__u32 zero;
	struct port_swept swept[2]; // of sweeps with an even and with an odd number
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
	__u32 prefix_length; // of the address as in flow_key: IPv4 is + 96
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

// ---- constants of an instance ----

const volatile __u32 port_id = 0;
const volatile __u8 count = COUNT_ACTIVE;
const volatile __u8 scale = SCALE_LEARN;
const volatile __u8 unify_shift = 0;
const volatile __u8 shrink = WINDOW_SHRINK_ALLOW;
const volatile __u8 scoped = 0; // 1: only flows with both ends in a prefix of `scope`

// ---- segment sizes: what a guest says of them counts as far as the port can carry it ----

// The MSS that an end's option tells the other; 0: not seen.
static __always_inline __u32 mss_of(const struct port_config *config, const struct end *receiver)
{
	return receiver->mss < config->mss_unknown ? receiver->mss : config->mss_unknown;
}

// The largest gso_size that an end's packets had; 0: none. A guest chooses it (virtio, PACKET_VNET_HDR).
static __always_inline __u32 gso_of(const struct port_config *config, const struct end *sender)
{
	return sender->gso < config->mss_unknown ? sender->gso : config->mss_unknown;
}

#endif
