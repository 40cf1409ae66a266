// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Grants at a host: the limit that applies to a flow is the smallest of the valid grants for its VM, for the pair of VM and
// peer, and for the flow itself. Several owners may grant at each level.
//
//   valid      the owner's last heartbeat is less than OWNER_LEASE_NS old, the owner has not left, and the grant's own
//              lease is not over. The earliest of these times is the grant's end
//   released   after its end a window grows (lease.h) until it is no limit. A rate ends at once: its packets wait in a
//              queue, which sends them anyway
//
// Numeric specification
//   value        u64. Of a window: bytes; from 2^26 on it is no limit. Of a rate: bit/s
//   least.window_q8   u64, the smallest window in bytes with 8 fraction bits; 0: no grant. A window of 0 bytes, and a pause,
//                are 1/256 byte: the floor of the flow applies
//   least.paused      1: a valid pause is among the grants.
//   The field of an ACK is window_rewrite's (window.h) with the flow's floor. So it is never below the flow's MSS and a
//   byte, and never above the ACK's own. Only with zero = 1 does a valid pause give a field of 0.
//   Times are u64 ns of one clock, compared modulo 2^64.
#ifndef WEIR_CORE_GRANT_H
#define WEIR_CORE_GRANT_H

#include "lease.h"
#include "window.h"

#define OWNER_LEASE_NS 1000000000ull
#define GRANT_OWNERS 8 // size of the table of owners
#define GRANTS_A_KEY 4 // owners that may grant the same

enum grant_flags {
	GRANT_SET = 1,
	GRANT_PAUSE = 2, // no data: the value has no meaning
};

// A process that grants.
struct grant_owner {
	weir_u64 heartbeat_ns; // the last one; 0: never
	weir_u64 left_ns;      // when it left in an orderly way; 0: it did not
};

// One owner's limit.
struct grant {
	weir_u64 value;
	weir_u64 expires_ns; // the end of its own lease
	weir_u32 owner;      // below GRANT_OWNERS; only the low 3 bits count
	weir_u32 flags;      // enum grant_flags
};

struct grants {
	struct grant grant[GRANTS_A_KEY];
};

struct grant_least {
	weir_u64 window_q8;
	weir_u32 paused;
	weir_u32 zero;
};

// Returns the time at which a grant is no longer valid.
WEIR_INLINE weir_u64 grant_end(const struct grant *g, const struct grant_owner *o)
{
	weir_u64 end = o->heartbeat_ns + OWNER_LEASE_NS;

	if (o->left_ns && (long long)(o->left_ns - end) < 0)
		end = o->left_ns;
	return (long long)(g->expires_ns - end) < 0 ? g->expires_ns : end;
}

WEIR_INLINE int grant_is_valid(const struct grant *g, const struct grant_owner *o, weir_u64 now_ns)
{
	return g->flags & GRANT_SET && o->heartbeat_ns && (long long)(now_ns - grant_end(g, o)) < 0;
}

// Returns the window of a grant in bytes with 8 fraction bits; 0: no limit.
WEIR_INLINE weir_u64 grant_window(const struct grant *g, const struct grant_owner *o, weir_u64 now_ns)
{
	long long elapsed = (long long)(now_ns - grant_end(g, o));
	weir_u64 window_q8;

	if (!(g->flags & GRANT_SET) || !o->heartbeat_ns)
		return 0;
	if (!(g->flags & GRANT_PAUSE) && g->value >= RELEASED_Q8 >> 8)
		return 0;
	window_q8 = g->flags & GRANT_PAUSE ? 0 : g->value << 8;
	if (elapsed >= 0)
		return released_after(window_q8, (weir_u64)elapsed);
	return window_q8 ? window_q8 : 1;
}

// Adds a grant for a window to the minimum.
WEIR_INLINE void grant_add(struct grant_least *least, const struct grant *g, const struct grant_owner *o, weir_u64 now_ns)
{
	weir_u64 window_q8 = grant_window(g, o, now_ns);

	if (!window_q8)
		return;
	if (!least->window_q8 || window_q8 < least->window_q8)
		least->window_q8 = window_q8;
	if (g->flags & GRANT_PAUSE && grant_is_valid(g, o, now_ns))
		least->paused = 1;
}

// Returns the smaller of a rate and that of a grant, in bit/s; 0: no limit.
WEIR_INLINE weir_u64 grant_rate(weir_u64 bps, const struct grant *g, const struct grant_owner *o, weir_u64 now_ns)
{
	weir_u64 own = g->value ? g->value : 1;

	if (!grant_is_valid(g, o, now_ns))
		return bps;
	return !bps || own < bps ? own : bps;
}

// Returns the field that an ACK leaves with. a has the ACK with its floor; its limit is set here. mss_max: the largest
// segment that the port can carry, in bytes; the peer's option may be larger, and counts as this. mss 0: not seen.
WEIR_INLINE weir_u16 grant_field(const struct grant_least *least, struct window_ack *a, weir_u32 mss, weir_u32 mss_max)
{
	struct window_edge none = {0};

	if (!least->window_q8)
		return a->field;
	if (least->paused && least->zero)
		return 0;
	if (!mss || mss > mss_max)
		mss = mss_max;
	a->window_q8 = least->window_q8;
	a->floor_bytes = window_floor(mss, 0);
	a->cap_bytes = 0;
	a->shrink = WINDOW_SHRINK_ALLOW;
	return window_rewrite(a, &none);
}

// Returns the bit, 0 .. 255, in a filter of the peers (and, with ports, the flows) that have grants. A clear bit saves the
// lookups. word: the last 32 bits of the peer's address, as on the wire.
WEIR_INLINE weir_u32 grant_bit(weir_u32 word, weir_u32 ports) { return ((word ^ ports) * 0x9e3779b1u) >> 24; }

#endif
