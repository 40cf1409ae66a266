// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The state that a switch keeps of its ports, and of the ends of connections. Counting (slots.h), release (release.h),
// groups (groups.h) and edge mode (edge.h) use it.
//
// A world defines these macros before the include. Without them everything is for one thread. "Under the port's lock"
// means: the world must not run two such events of one port at the same time.
//
//   WEIR_PORT_LOCK        type of a port's lock
//   WEIR_PORT(world, id)  returns the port of that id, 0 if there is none. No default
//   WEIR_ADD(p, n)        adds n to *p; returns the value before
//   WEIR_SWAP(p, v)       writes v to *p; returns the value before
//   WEIR_CAS(p, old, v)   writes v to *p if *p is old; returns the value before
//   WEIR_SPAN             type of a port's long spans of time. The kernel's maps have 32 bits: 4.29 s at most
//
// Times are ns of one clock of the world; windows are bytes, or _q8: bytes with 8 fraction bits.
#ifndef WEIR_CORE_SWITCH_H
#define WEIR_CORE_SWITCH_H

#include "fairq.h"
#include "../types.h"

#ifndef WEIR_PORT_LOCK
#define WEIR_PORT_LOCK weir_u32
#endif
#ifndef WEIR_ADD
#define WEIR_ADD(p, n) weir_add(p, n)
#define WEIR_SWAP(p, v) ({ __typeof__(*(p)) was_ = *(p); *(p) = (v); was_; })
#define WEIR_CAS(p, old, v) ({ __typeof__(*(p)) was_ = *(p); if (was_ == (old)) *(p) = (v); was_; })

WEIR_INLINE weir_u32 weir_add(weir_u32 *p, weir_u32 n)
{
	weir_u32 was = *p;

	*p += n;
	return was;
}
#endif

#ifndef WEIR_SPAN
#define WEIR_SPAN weir_u32
#endif

struct weir_world; // defined by the world, for WEIR_PORT

#define FLOWS_LIVE 4  // epochs that a slot counts for
#define FLOWS_WHEEL 8 // a power of 2 above FLOWS_LIVE: a late packet still finds its epoch
#define PORT_NAME_BYTES 32
#define BUCKETS 65536u // number of buckets (groups.h)

enum count_mode {
	COUNT_ACTIVE = 0,    // directions that sent data recently
	COUNT_HANDSHAKE = 1, // the paper's register: SYN-ACKs minus FINs
	COUNT_OPENING = 2,   // as COUNT_ACTIVE; SYN-ACKs are limited to the share with open handshakes counted
};

// The mode of a port: the set of its flows that are limited, and their window.
enum enforce_mode {
	ENFORCE_ALL = 0,  // enforce: all flows, to the law's window
	ENFORCE_PART = 1, // canary: a share of the flows, to the equilibrium window; the others pass
	ENFORCE_NONE = 2, // observe: none; nothing is rewritten
};

enum end_flags {
	END_SEEN = 1,  // sent something: next is valid
	END_SYN = 2,   // sent a SYN: first is valid
	END_SCALE = 4, // its window scale is known, not inferred
	END_FIN = 8,   // will send no more data
	END_ACKED = 16, // adopted: acked is valid
	END_UNIFIED = 32, // its SYN was rewritten to announce the scale `announced`: its windows are converted
	END_SIGNED = 64, // its SYN was signed
};

#define ASSUMED_NONE (1u << 15) // no port was found; the low 15 bits are of the device and the sweep of the search

// One end of a connection: what is known of the segments that it sends. The first 32 bytes hold the fields that every packet reads.
struct end {
	weir_u64 slot;           // port + 1 in the upper 16 bits, epoch below; 0: not counted
	weir_u32 registration;   // count: handshake: generation of its port's register; 0: not in it.
				 // count: opening: epoch of its SYN-ACK, plus 1; 0: its handshake is not open
	weir_u32 first;          // sequence number of its SYN
	weir_u32 next;           // sequence number behind its latest segment
	weir_u32 acked;          // adopted: its latest acknowledgement number
	weir_u8 shift;           // window scale of its windows
	weir_u8 flags;           // enum end_flags
	weir_u16 port;           // id + 1 of the port its data leaves by; 0: unknown
	weir_u16 mss;            // its MSS option, which limits the other end's segments; 0: unknown
	weir_u16 gso;            // the largest gso_size of its packets, bytes; 0: none
	weir_u16 field;          // adopted: the largest window field of this sweep
	weir_u16 registered_at;  // id of the port of `registration`
	weir_u16 field_before;   // adopted: the largest window field of the sweep before
	weir_u8 announced;       // scale: unify: the scale that its SYN announced to the other end
	weir_u8 sweeps;          // adopted: sweeps since then, 2 at most
	weir_u32 edge_advertised; // edge mode: the latest window advertised to the edge, bytes; 0: none
	weir_u32 edge_advertised_at; // and when, units of the edge's clock (edge.h)
	weir_u32 upstream_at;    // when a switch before this one advertised, units of the edge's clock
	weir_u16 upstream;       // the field that it advertised; 0: none
	weir_u16 assumed;        // id + 1 of the port that its data would leave by here; 0: unknown; or ASSUMED_NONE
	weir_u16 promise;        // bytes that it may send before it counts; 0: no promise, or it has sent
	weir_u16 longest;        // with credits: the longest segment that it sent, bytes of payload; 0: none
	weir_u32 promise_until;  // the promise is live until then, units of 1024 ns
	weir_u32 allowed;        // with credits: sequence number that charged windows allowed it to send to; 0: unknown
	weir_u32 waits_until;    // its latest packet waits in the parking queue until then, units of 1024 ns; 0: none
};

struct port_config {
	struct fairq_config law;
	weir_u64 netns_cookie; // with ifindex: the port's device
	weir_u32 ifindex;
	WEIR_SPAN epoch_ns;    // the activity window / (FLOWS_LIVE - 1)
	WEIR_SPAN idle_ns;     // count: handshake: after this time without data the register is emptied
	weir_u32 flows_max;    // connections that may be opened from this port
	weir_u32 mss_unknown;  // bytes: MSS of flows whose MSS was not seen, MTU - 40
	weir_u32 releasing;    // 1: Weir is about to leave this port: its windows are released
	weir_u32 pipe_bytes;   // the BDP, C * RTT, for the equilibrium window
	weir_u32 mode;         // enum enforce_mode
	weir_u32 limited_buckets; // ENFORCE_PART: number of limited buckets, of 65536
	weir_u16 paths;        // number of equal paths, this port included; 0, 1: it is the only one
	weir_u16 divisor;      // of the window of ACKs whose data takes another of the equal paths
	weir_u32 credit;       // enum credit_mode (credit.h)
	char name[PORT_NAME_BYTES];
};

// Counts of a sweep at a port.
struct port_swept {
	weir_u64 promised_bytes; // live promises to send by this port (credit.h)
	weir_u32 sweep;    // its number
	weir_u32 flows[2]; // active flows: unlimited, limited
	weir_u32 one_sided_data; // directions whose data leaves here, and whose ACKs take another switch
	weir_u32 one_sided_acks; // directions whose ACKs leave here, and whose data takes another switch
	weir_u32 zero;
};

struct port {
	WEIR_PORT_LOCK lock;
	weir_u32 running;  // the timer is armed
	// The next 64 bytes are one cache line in the kernel's array: it holds the fields that every packet reads.
	weir_u64 grant_q8; // limit of limited flows' ACKs; 0: none
	weir_u64 epoch;
	weir_u64 device;          // the kernel's struct net_device *, as a number
	weir_u32 spared;      // flows with a bucket below it are unlimited; 0: all flows are limited
	weir_u32 release_from; // those of them from this bucket on are being released
	weir_u64 release_q8;   // their limit meanwhile; 0: none
	weir_u64 equilibrium_q8; // (C * RTT + target) / flows; 0: no flows
	weir_u32 data_seen;
	weir_u32 generation; // of the register; from 1
	weir_u32 mode;       // enum enforce_mode in effect
	weir_u32 enforced;   // 1: at the last tick windows were the law's
	struct fairq_state law;
	weir_u32 wheel[FLOWS_WHEEL];   // number of directions by the epoch of their slot
	weir_u32 opening[FLOWS_WHEEL]; // count: opening: directions of open handshakes, by the epoch of their SYN-ACK
	weir_u64 epoch_began_ns;
	weir_u64 ticked_ns;
	weir_u64 data_ns;         // time of the latest tick that found data_seen
	weir_u64 looked_ns;       // when a packet last checked whether it must sample
	weir_u64 ticks;           // by the timer
	weir_u64 ticks_by_packet; // because the timer was late, or rested
	weir_u64 device_refused;  // ticks that found the device gone or replaced
	weir_u32 backlog;         // at the last tick
	weir_u32 backlog_max;
	weir_u32 registered; // count: handshake
	weir_u32 owned;      // connections opened from this port
	weir_u32 nap_ns;     // how long the timer rests while packets sample
	weir_u32 easing;     // 1: the mode is new, and the grant still grows to the mode's window
	weir_u32 rtt_ns;     // least round-trip time of handshakes in the span rtt_span; 0: none
	weir_u32 rtt_before_ns; // the same in the span before
	weir_u32 rtt_span;      // number of the latest span with a handshake
	weir_u32 pacing;        // 1: windows are one segment, and ACKs need credits (credit.h)
	struct port_swept swept[2]; // of sweeps with an even and with an odd number
	weir_u32 zero[4];
};

#endif
