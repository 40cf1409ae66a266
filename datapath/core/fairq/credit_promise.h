// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises: what an opening packet grants, and the sum of what is granted and not used yet. credit.h has the numeric
// specification.
#ifndef WEIR_CORE_CREDIT_PROMISE_H
#define WEIR_CORE_CREDIT_PROMISE_H

#include "credit_state.h"

// Moves the sums of promises that are not used yet on to the span of this time. Another processor may have read an earlier time, and come
// later: the span before stays.
WEIR_INLINE void credit_owes_until(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns)
{
	weir_u64 span = now_ns / (config->wait_ns ? config->wait_ns : 1);

	if (span == state->owed_span || span + 1 == state->owed_span)
		return;
	state->owed_before_bytes = span == state->owed_span + 1 ? state->owed_bytes : 0;
	state->owed_bytes = 0;
	state->owed_span = span;
	state->asked_most -= state->asked_most / 16;
	if (state->asked > state->asked_most)
		state->asked_most = state->asked;
	state->asked = 0;
	state->handshakes_less -= state->handshakes_less / CREDIT_HANDSHAKES_BACK;
}

// Event: a SYN-ACK promises a first flight. again: it did before. Returns its share of the cost, of CREDIT_FACTOR.
WEIR_INLINE weir_u32 credit_handshake(struct credit_state *state, int again)
{
	weir_u32 share = CREDIT_HANDSHAKES - state->handshakes_less;

	if (!again)
		state->handshakes_less += share / CREDIT_HANDSHAKES_MEAN;
	if (share < CREDIT_HANDSHAKES / CREDIT_HANDSHAKES_FREE)
		return 0;
	return share < CREDIT_HANDSHAKES / 2 ? share / (CREDIT_HANDSHAKES / 2 / CREDIT_FACTOR) : CREDIT_FACTOR;
}

// Event: the promise of a SYN-ACK is used.
WEIR_INLINE void credit_handshake_used(struct credit_state *state)
{
	weir_u32 less = CREDIT_HANDSHAKES / CREDIT_HANDSHAKES_MEAN;

	state->handshakes_less -= less < state->handshakes_less ? less : state->handshakes_less;
}

// Returns what a promise counts for while it is not used.
WEIR_INLINE weir_u32 credit_owes(const struct credit_config *config, weir_u32 promise)
{
	return credit_cost(config, promise, CREDIT_SEGMENT_BYTES + 1);
}

// Event: a promise is used, or replaced. The oldest promises are assumed to be used first.
WEIR_INLINE void credit_owes_less(struct credit_state *state, weir_u32 bytes)
{
	weir_u32 before = bytes < state->owed_before_bytes ? bytes : state->owed_before_bytes;

	bytes -= before;
	state->owed_before_bytes -= before;
	state->owed_bytes -= bytes < state->owed_bytes ? bytes : state->owed_bytes;
}

// Returns the bytes of promises that are not used yet, less the share that answers do not use.
WEIR_INLINE weir_u32 credit_owed(const struct credit_state *state)
{
	weir_u64 owed = (weir_u64)state->owed_bytes + state->owed_before_bytes;

	owed = owed * credit_factor(state) / CREDIT_FACTOR;
	return owed < CREDIT_BYTES_MAX ? (weir_u32)owed : CREDIT_BYTES_MAX;
}

// Event: an opening packet. Returns the window that it promises, in bytes: floor_bytes or more.
WEIR_INLINE weir_u32 credit_promise(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
				    weir_u32 backlog_bytes, weir_u32 floor_bytes)
{
	weir_u32 room = credit_room(config, backlog_bytes);
	weir_u32 ahead = credit_bytes(config, credit_ahead(state, now_ns)), owed = credit_owed(state);

	state->promises++;
	state->asked++;
	if (ahead < owed)
		ahead = owed;
	room = room > ahead ? room - ahead : 0;
	if (room > config->first_bytes)
		room = config->first_bytes;
	return room > floor_bytes ? room : floor_bytes;
}

#endif
