// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Leases, and the release of windows after a lease has expired. A limit never ends at once: all senders would burst
// together. All laws that grant windows share this.
//
// Numeric specification
//   grant_q8    u64, bytes with 8 fraction bits; 0: no grant, and ACKs pass. A released grant is at least RELEASE_FROM_Q8,
//               and below RELEASED_Q8 = 2^34.
//   tick by tick   grown, released: grant + floor(grant * min(gap, RELEASE_NS) / RELEASE_NS). No product wraps: 2^34 * 2^25.
//   at a time      released_after: the grant doubles every RELEASE_DOUBLES_NS = floor(RELEASE_NS * ln 2), and grows linearly
//                  in between: g + floor(g * rest / RELEASE_DOUBLES_NS), g = grant * 2^floor(elapsed / RELEASE_DOUBLES_NS).
//                  It is at least what short ticks give, and at most 6.2 % above e^(elapsed / RELEASE_NS): the chord of the
//                  curve. It needs no state, so several CPUs may calculate it for the same grant.
//   Times are u64 ns, compared modulo 2^64.
#ifndef WEIR_CORE_LEASE_H
#define WEIR_CORE_LEASE_H

#include "types.h"

#define RELEASE_NS 32000000ull      // released windows grow by a factor e in this time
#define RELEASED_Q8 (1ull << 34)    // 64 MiB: no sender has more in flight; the grant ends here
#define RELEASE_FROM_Q8 (1448 << 8) // a grant below this would grow too slowly
#define RELEASE_DOUBLES_NS 22180709ull

// Reports whether the lease is valid: user space is not leaving, and its last heartbeat is less than lease_ns old.
WEIR_INLINE int lease_is_live(weir_u32 leaving, weir_u64 heartbeat_ns, weir_u64 lease_ns, weir_u64 now_ns)
{
	return !leaving && (long long)(now_ns - heartbeat_ns) < (long long)lease_ns;
}

// Returns a grant after gap_ns of growth by a factor e in RELEASE_NS.
WEIR_INLINE weir_u64 grown(weir_u64 grant_q8, weir_u64 gap_ns)
{
	if (grant_q8 < RELEASE_FROM_Q8)
		grant_q8 = RELEASE_FROM_Q8;
	if (grant_q8 >= RELEASED_Q8)
		return grant_q8;
	return grant_q8 + grant_q8 * (gap_ns < RELEASE_NS ? gap_ns : RELEASE_NS) / RELEASE_NS;
}

// Returns a released grant after gap_ns: it grows, and at RELEASED_Q8 it is 0.
WEIR_INLINE weir_u64 released(weir_u64 grant_q8, weir_u64 gap_ns)
{
	if (grant_q8)
		grant_q8 = grown(grant_q8, gap_ns);
	return grant_q8 < RELEASED_Q8 ? grant_q8 : 0;
}

// Returns a grant elapsed_ns after its lease expired; 0: it has ended. A grant of 0 bytes is released, too.
WEIR_INLINE weir_u64 released_after(weir_u64 grant_q8, weir_u64 elapsed_ns)
{
	weir_u64 doublings = elapsed_ns / RELEASE_DOUBLES_NS, rest = elapsed_ns % RELEASE_DOUBLES_NS;

	if (grant_q8 < RELEASE_FROM_Q8)
		grant_q8 = RELEASE_FROM_Q8;
	if (grant_q8 >= RELEASED_Q8 || doublings >= 16) // RELEASE_FROM_Q8 * 2^16 > RELEASED_Q8
		return 0;
	grant_q8 <<= doublings; // below 2^50
	if (grant_q8 >= RELEASED_Q8)
		return 0;
	grant_q8 += grant_q8 * rest / RELEASE_DOUBLES_NS; // 2^34 * 2^25
	return grant_q8 < RELEASED_Q8 ? grant_q8 : 0;
}

#endif
