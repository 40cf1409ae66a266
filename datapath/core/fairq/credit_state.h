// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Configuration, state and units of promises and credits. credit.h has the numeric specification.
#ifndef WEIR_CORE_CREDIT_STATE_H
#define WEIR_CORE_CREDIT_STATE_H

#include "credit_flight.h"
#include "switch.h"
#include "../types.h"

#define CREDIT_FACTOR 1024u // the factor 1
#define CREDIT_BYTES_MAX (1u << 26)
#define CREDIT_LENGTH_MAX 16000u  // bytes: of a packet in the parking queue
#define CREDIT_SLACK_NS 200000ull // that a packet may leave the parking queue later than calculated: others stay behind it
#define CREDIT_NS_MAX (1ll << 30)
#define CREDIT_LIVE_NS 1000000ull // a promise is live for this time, and twice the time of the capacity
#define CREDIT_SEGMENT_BYTES 1448u // of a segment on Ethernet
#define CREDIT_MSS_LEAST 536u     // bytes: of the segments that a cost assumes (RFC 9293 3.7.1). A guest may announce less, and would cost more than it sends
#define CREDIT_HEADER_BYTES 66u   // Ethernet, IPv4, TCP with time stamps
#define CREDIT_COMPLETES_SEGMENTS 2 // least windows that the ACK of a handshake grants,
#define CREDIT_COMPLETES_SHARE 4 // as long as promises that are not used yet take less than the longest wait / this
#define CREDIT_FIRST_MAX 49152u   // bytes: of a promise, so that it fits in 16 bits in units of any scale
#define CREDIT_HANDSHAKES (1u << 20) // all promises in SYN-ACKs are used
#define CREDIT_HANDSHAKES_MEAN 2048u // number of SYN-ACKs that the share is a mean of: more than open at once
#define CREDIT_HANDSHAKES_FREE 8    // SYN-ACKs cost nothing below 1 / this
#define CREDIT_HANDSHAKES_BACK 128   // a span adds 1 / this of what is missing
#define CREDIT_SPAN_ACK (1u << 20) // bytes: an ACK that advances by more belongs to another stream

enum credit_mode {
	CREDIT_PROMISES = 1, // opening packets carry promises
	CREDIT_PACES = 2,    // packets wait for credits
};

// The configuration of a port, written by user space. Without a mode, nothing here has an effect.
struct credit_config {
	weir_u64 byte_ns_q20;    // time of a byte at the port's rate, ns * 2^20; 1 or more
	weir_u32 capacity_bytes; // BDP + target
	weir_u32 target_bytes;
	weir_u32 first_bytes; // largest promise: what TCP sends at first, 10 segments; at most CREDIT_FIRST_MAX
	weir_u32 wait_ns;     // the longest wait; then packets pass
	weir_u32 hold_bytes;  // most bytes that waiting packets stand for; then packets pass
	weir_u32 line_bytes;  // that a frame takes on the line in addition: 24 on Ethernet, 0 behind a token bucket
	weir_u32 mode;        // enum credit_mode, added up
	weir_u32 buffer_bytes; // of the port; 0: not known, and no request is held
};

// The state of a port. It begins as zeros.
struct credit_state {
	weir_u64 clock_ns;
	weir_u64 queue_ns;   // when the parking queue is free
	weir_u64 charged_ns; // sum of all charges
	long long corrected_ns; // corrections that the queue does not show yet
	weir_u32 factor_less; // CREDIT_FACTOR less the factor of promises
	weir_u32 longest_ns; // longest wait
	weir_u64 promises;   // opening packets
	weir_u64 parked;     // packets that waited
	weir_u64 full;       // packets that passed: their wait would have been too long, or the parking refused them
	weir_u32 owed_bytes; // promises of this span that are not used yet, with the headers of their frames
	weir_u32 owed_before_bytes; // of the span before
	weir_u64 owed_span;  // number of this span
	weir_u32 asked;      // opening packets of this span
	weir_u32 asked_most; // the most of a recent span; it loses 1/16 in each span with opening packets
	weir_u32 handshakes_less; // CREDIT_HANDSHAKES less the share of promises in SYN-ACKs that are used
	weir_u32 held_bytes;  // promises of the requests that are held
	weir_u64 full_ns;     // since when the buffer has had no room for further answers; 0: it has
	weir_u64 held_ns;     // when a request was held, or left after that, for the last time; 0: never
	weir_u64 holds;       // requests that were held
	struct credit_flight flight;
};

// A packet that releases data to the port.
struct credit_ask {
	weir_u64 now_ns;
	weir_u32 cost_bytes;    // of the data that it releases; 0: nothing
	weir_u32 room_bytes;    // that may be ahead without a wait
	weir_u32 backlog_bytes; // of the port
	weir_u32 length_bytes;  // its own, with the Ethernet header
	weir_u8 behind; // 1: a packet of its direction waits already, and it must not overtake
	weir_u8 fixed;  // 1: it cannot be made longer
	weir_u8 zero[6];
};

// When it leaves.
struct credit_answer {
	weir_u64 leaves_ns;    // now: it passes, and is not parked
	weir_u64 live_ns;      // until when the promise is live, if `renewed` is 1
	weir_u64 charge_ns;    // what it was charged
	weir_u32 length_bytes; // in the parking queue; 0: it passes
	weir_u32 longest_ns;   // longest wait before it
	weir_u32 allowed;      // as in credit_ack, from now on
	weir_u32 renewed;      // 1: live_ns is set
};

WEIR_INLINE weir_u64 credit_ns(const struct credit_config *config, weir_u32 bytes)
{
	return (weir_u64)bytes * config->byte_ns_q20 >> 20;
}

WEIR_INLINE weir_u32 credit_bytes(const struct credit_config *config, weir_u64 ns)
{
	weir_u64 most = credit_ns(config, CREDIT_BYTES_MAX), byte = config->byte_ns_q20 ? config->byte_ns_q20 : 1;

	return ns >= most ? CREDIT_BYTES_MAX : (weir_u32)((ns << 20) / byte);
}

// Returns a time, or now if that is later.
WEIR_INLINE weir_u64 credit_from(weir_u64 time_ns, weir_u64 now_ns)
{
	return (long long)(time_ns - now_ns) > 0 ? time_ns : now_ns;
}

// Returns the time until the clock, in ns.
WEIR_INLINE weir_u64 credit_ahead(const struct credit_state *state, weir_u64 now_ns)
{
	return credit_from(state->clock_ns, now_ns) - now_ns;
}

// Returns the factor of the cost of promises.
WEIR_INLINE weir_u32 credit_factor(const struct credit_state *state) { return CREDIT_FACTOR - state->factor_less; }

// Returns bytes * factor, with a factor in 1024ths of at most 1.
WEIR_INLINE weir_u32 credit_share(weir_u32 bytes, weir_u32 factor)
{
	return (weir_u32)((weir_u64)bytes * factor / CREDIT_FACTOR);
}

// Returns a window as a header expresses it, in units of its scale, rounded up. A window of a segment and a part of the next
// one releases both.
WEIR_INLINE weir_u32 credit_window(weir_u32 bytes, weir_u32 shift)
{
	weir_u32 unit = 1u << (shift < 14 ? shift : 14);

	return (bytes + unit - 1) & ~(unit - 1);
}

// Reports whether flows at one segment each exceed the capacity. pacing: they did until now. It ends at 7/8 of the
// capacity.
WEIR_INLINE int credit_paces(weir_u32 capacity_bytes, weir_u32 floor_bytes, weir_u32 flows, int pacing)
{
	weir_u64 need = (weir_u64)flows * floor_bytes, have = capacity_bytes;

	return pacing ? need * 8 >= have * 7 : need > have;
}

// Returns the cost of the data that a window or an acknowledgement of this many bytes releases: with the headers of its
// frames, and what a frame takes on the line in addition. A flow with a window of MSS + 1 sends a segment and a byte, so it
// is one frame more than full segments. floor_bytes: least window of the flow.
WEIR_INLINE weir_u32 credit_cost(const struct credit_config *config, weir_u32 bytes, weir_u32 floor_bytes)
{
	if (!bytes || bytes > CREDIT_SPAN_ACK)
		return 0;
	return bytes + (bytes / (floor_bytes > CREDIT_MSS_LEAST ? floor_bytes - 1 : CREDIT_MSS_LEAST) + 1) * (CREDIT_HEADER_BYTES + config->line_bytes);
}

// Returns how many bytes may be ahead before an opening packet waits.
WEIR_INLINE weir_u32 credit_room(const struct credit_config *config, weir_u32 backlog_bytes)
{
	return config->capacity_bytes > backlog_bytes ? config->capacity_bytes - backlog_bytes : 0;
}

#endif
