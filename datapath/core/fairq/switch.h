// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a switch keeps of its ports, and of the ends of connections: the state that counting (seats.h), release
// (release.h), groups (groups.h) and edge mode (edge.h) decide by.
//
// A world defines these macros before the include. Without them everything is for one thread. "Under the port's lock"
// says of an event that the world lets no two such events of a port overlap.
//
//   WEIR_PORT_LOCK        type of a port's lock
//   WEIR_PORT(world, id)  the port of that id, 0 if there is none. No default
//   WEIR_ADD(p, n)        adds n to *p; the value before it
//   WEIR_SWAP(p, v)       puts v into *p; the value before it
//   WEIR_CAS(p, old, v)   puts v into *p if old is there; the value before it
//   WEIR_SPAN             type of a port's long spans of time. In 32 bits, as the kernel's maps have them, 4.29 s at most
//
// Times are ns of one clock of the world's; windows are bytes, or _q8: bytes with 8 fraction bits.
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

struct weir_world; // the world's own: what WEIR_PORT looks into

#define FLOWS_LIVE 4  // epochs that a seat counts for
#define FLOWS_WHEEL 8 // a power of 2 above FLOWS_LIVE: a late packet finds its slot still there
#define PORT_NAME_BYTES 32
#define LOTS 65536u // a connection has one of so many (groups.h)

enum count_mode {
	COUNT_ACTIVE = 0,    // directions that sent data lately
	COUNT_HANDSHAKE = 1, // the paper's register: SYN-ACKs less FINs
	COUNT_OPENING = 2,   // as COUNT_ACTIVE; SYN-ACKs are held to the share beside open handshakes
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

#define ASSUMED_NONE (1u << 15) // no port of ours; with 15 bits of which device, in which sweep

// What one end of a connection sends.
struct end {
	weir_u64 seat;           // port + 1 in the upper 16 bits, epoch below; 0: not counted
	weir_u32 registration;   // count: handshake: generation of its port's register; 0: not in it.
				 // count: opening: epoch of its SYN-ACK, and 1; 0: its handshake is not open
	weir_u32 first;          // sequence number of its SYN
	weir_u32 next;           // behind what it sent last
	weir_u32 acked;          // adopted: its last acknowledgement
	weir_u16 field;          // adopted: the largest window field of this sweep
	weir_u16 port;           // id + 1 of the port its data leaves by; 0: unknown
	weir_u16 mss;            // its MSS option, a limit on what the other sends; 0: unknown
	weir_u16 gso;            // the largest segment that it was seen to send; 0: none
	weir_u8 shift;           // of its windows
	weir_u8 flags;           // enum end_flags
	weir_u16 registered_at;  // id of that port
	weir_u16 field_before;   // adopted: of the sweep before
	weir_u8 told;            // scale: unify: what the other end takes shift for
	weir_u8 sweeps;          // adopted: since then, 2 at most
	weir_u32 edge_told;      // edge mode: window that the edge was told last; 0: none
	weir_u32 edge_told_at;   // and when, of the edge's clock (edge.h)
	weir_u32 upstream_at;    // when a switch before this one told it
	weir_u16 upstream;       // the field that it told; 0: none
	weir_u16 assumed;        // id + 1 of the port that its data would leave by here; 0: unknown; or ASSUMED_NONE
};

struct port_config {
	struct fairq_config law;
	weir_u64 netns_cookie; // with ifindex: which device the port is
	weir_u32 ifindex;
	WEIR_SPAN epoch_ns;    // the activity window / (FLOWS_LIVE - 1)
	WEIR_SPAN idle_ns;     // count: handshake: without data for so long the register is 0 again
	weir_u32 flows_max;    // connections that may be opened from this port
	weir_u32 mss_unknown;  // floor of flows whose MSS nobody saw: MTU - 40
	weir_u32 releasing;    // 1: Weir is about to leave this port: let its windows go
	weir_u32 pipe_bytes;   // C * RTT, for the equilibrium window
	weir_u32 hold;         // enum hold_mode
	weir_u32 hold_share;   // HOLD_PART: of LOTS
	weir_u16 paths;        // equal paths of which the port is one; 0, 1: it is the only one
	weir_u16 divisor;      // of the window that ACKs are held to whose data takes another of them
	char name[PORT_NAME_BYTES];
};

// What a sweep found at a port.
struct port_swept {
	weir_u32 sweep;    // its number
	weir_u32 flows[2]; // that count, free and held
	weir_u32 one_sided_data; // directions whose data leaves here, and whose acknowledgements pass nowhere here
	weir_u32 one_sided_acks; // directions whose acknowledgements leave here, and whose data passes nowhere here
};

struct port {
	WEIR_PORT_LOCK lock;
	weir_u32 running;  // the timer is armed
	weir_u64 grant_q8; // what ACKs of held flows are held to; 0: nothing
	weir_u64 epoch;
	weir_u32 spared;      // flows with a lot below it are not held; 0: all are
	weir_u32 let_go_from; // of those, the ones from this lot on are being let go
	weir_u64 let_go_q8;   // what they are held to meanwhile; 0: nothing
	weir_u64 equilibrium_q8; // (C * RTT + target) / flows; 0: no flows
	struct fairq_state law;
	weir_u32 wheel[FLOWS_WHEEL];   // directions by the epoch they sit in
	weir_u32 opening[FLOWS_WHEEL]; // count: opening: directions of open handshakes, by the epoch of their SYN-ACK
	weir_u64 epoch_began_ns;
	weir_u64 ticked_ns;
	weir_u64 data_ns;         // when the tick last found data_seen
	weir_u64 device;          // the kernel's: struct net_device *, as a number
	weir_u64 ticks;           // by the timer
	weir_u64 ticks_by_packet; // because the timer was late, or rested
	weir_u64 device_refused;  // ticks that found the device gone or another
	weir_u32 backlog;         // at the last tick
	weir_u32 backlog_max;
	weir_u32 data_seen;
	weir_u32 registered; // count: handshake
	weir_u32 generation; // of the register; from 1
	weir_u32 owned;      // connections opened from this port
	weir_u32 enforced;   // 1: at the last tick windows were the law's
	weir_u32 nap_ns;     // how long the timer rests while packets sample
	weir_u64 looked_ns;  // when a packet last looked whether it shall
	weir_u32 hold;       // enum hold_mode that is in effect
	weir_u32 easing;     // 1: it is new, and the grant still grows to what it gives
	weir_u32 rtt_ns;     // least of the handshakes in the last span that had any; 0: none
	weir_u32 rtt_before_ns; // in the span before that
	weir_u32 rtt_span;      // its number
	weir_u32 zero;
	struct port_swept swept[2]; // of sweeps with an even and with an odd number
};

#endif
