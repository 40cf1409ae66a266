// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The limiter of a VM: which class of HTB a packet takes, and the parameters of a class.
//
// Rates in HTB do not expire. So the program that chooses the class reads the grant: while it is valid the packet takes the
// VM's limited class, afterwards the relaxed one that all VMs share.
//
// Numeric specification
//   rate_bps     u64, bit/s, BUCKET_RATE_MIN .. BUCKET_RATE_MAX; values outside act as the nearer end
//   burst        bytes: what the rate carries in BUCKET_BURST_NS, 2 frames at least, 1 MiB at most. HTB's timer may be late
//                by that much without loss of rate
//   quantum      bytes, what a class sends before the next has its turn: 1 ms of the rate, 1 frame .. 60000
//   limit        bytes that wait in the class: 50 ms of the rate, at least one packet of the largest size (GSO), 8 MiB at most
//   hysteresis   a class changes if the wanted rate differs from its own by more than 2 % of its own
#ifndef WEIR_CORE_BUCKET_H
#define WEIR_CORE_BUCKET_H

#include "types.h"

#define BUCKET_RATE_MIN 64000ull
#define BUCKET_RATE_MAX 1000000000000ull
#define BUCKET_FRAME 1600u
#define BUCKET_BURST_NS 10000000ull
#define BUCKET_QUANTUM_NS 1000000ull
#define BUCKET_LIMIT_NS 50000000ull
#define BUCKET_LIMIT_MIN 70000u

// Returns the class of a packet: its VM's own while that has a valid rate grant.
WEIR_INLINE weir_u32 bucket_class(weir_u64 granted_bps, weir_u32 limited, weir_u32 relaxed)
{
	return granted_bps && limited ? limited : relaxed;
}

WEIR_INLINE weir_u64 bucket_rate(weir_u64 rate_bps)
{
	if (rate_bps < BUCKET_RATE_MIN)
		return BUCKET_RATE_MIN;
	return rate_bps < BUCKET_RATE_MAX ? rate_bps : BUCKET_RATE_MAX;
}

// Returns the bytes that a rate carries in a time, within limits. 10^12 / 8000 * 5 * 10^7 / 10^6 does not wrap.
WEIR_INLINE weir_u32 bucket_bytes(weir_u64 rate_bps, weir_u64 ns, weir_u32 least, weir_u32 most)
{
	weir_u64 bytes = bucket_rate(rate_bps) / 8000 * ns / 1000000;

	if (bytes < least)
		return least;
	return bytes < most ? (weir_u32)bytes : most;
}

WEIR_INLINE weir_u32 bucket_burst(weir_u64 rate_bps)
{
	return bucket_bytes(rate_bps, BUCKET_BURST_NS, 2 * BUCKET_FRAME, 1u << 20);
}

WEIR_INLINE weir_u32 bucket_quantum(weir_u64 rate_bps)
{
	return bucket_bytes(rate_bps, BUCKET_QUANTUM_NS, BUCKET_FRAME, 60000);
}

WEIR_INLINE weir_u32 bucket_limit(weir_u64 rate_bps)
{
	return bucket_bytes(rate_bps, BUCKET_LIMIT_NS, BUCKET_LIMIT_MIN, 8u << 20);
}

// Reports whether a class must change its rate. has_bps 0: there is no class yet.
WEIR_INLINE int bucket_changes(weir_u64 has_bps, weir_u64 wants_bps)
{
	weir_u64 wants = bucket_rate(wants_bps), apart = wants > has_bps ? wants - has_bps : has_bps - wants;

	return !has_bps || apart * 50 > has_bps;
}

#endif
