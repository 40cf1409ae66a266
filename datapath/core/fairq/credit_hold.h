// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Held requests: a request waits while the buffer has no room for its answer and for those that are expected
// (credit_flight.h). credit.h has the numeric specification.
#ifndef WEIR_CORE_CREDIT_HOLD_H
#define WEIR_CORE_CREDIT_HOLD_H

#include "credit_promise.h"

#define CREDIT_HOLD_MAX_NS (1ull << 25) // after this time without room, 34 ms, answers that are expected hold no requests
#define CREDIT_HOLD_STEP 1600u // bytes, at the port's rate: the time from one look at the first request that is held to the next,
#define CREDIT_HOLD_STEP_NS 25000ull // and the least such time
#define CREDIT_HOLD_STEPS 16 // after this number of steps without a look at a request, none is held

// Returns the time from one look at the first request that is held to the next, in ns.
WEIR_INLINE weir_u64 credit_step_ns(const struct credit_config *config)
{
	weir_u64 step = credit_ns(config, CREDIT_HOLD_STEP);

	return step > CREDIT_HOLD_STEP_NS ? step : CREDIT_HOLD_STEP_NS;
}

// Reports whether requests are held already. One more must stay behind them.
WEIR_INLINE int credit_holds(const struct credit_config *config, const struct credit_state *state, weir_u64 now_ns)
{
	return state->held_ns && (long long)(now_ns - state->held_ns) < (long long)(CREDIT_HOLD_STEPS * credit_step_ns(config));
}

// Returns the backlog with the answers to requests that are held, less the share that answers do not use.
WEIR_INLINE weir_u32 credit_queue(const struct credit_config *config, const struct credit_state *state, weir_u64 now_ns,
				  weir_u32 backlog_bytes)
{
	weir_u64 queue = backlog_bytes;

	if (credit_holds(config, state, now_ns))
		queue += credit_share(state->held_bytes, credit_factor(state));
	return queue < CREDIT_BYTES_MAX ? (weir_u32)queue : CREDIT_BYTES_MAX;
}

// Returns how many bytes the backlog and the answers that are expected may be together: three quarters of the buffer above the
// target. The last quarter is for data that no request announces.
WEIR_INLINE weir_u32 credit_filled(const struct credit_config *config)
{
	weir_u32 above = config->buffer_bytes > config->target_bytes ? config->buffer_bytes - config->target_bytes : 0;

	return config->target_bytes + above - above / 4;
}

// Reports whether the buffer has no room for the answer to one more request. Servers that do not answer take room for 34 ms. The
// backlog itself takes it for the longest wait: requests that pass earlier would fill a buffer that is nearly full.
WEIR_INLINE int credit_is_full(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
			       weir_u32 backlog_bytes)
{
	weir_u64 filled = backlog_bytes;

	if (!config->buffer_bytes || !(config->mode & CREDIT_PACES))
		return 0;
	filled += credit_share(flight_expected(&state->flight), credit_factor(state));
	if (filled <= credit_filled(config)) {
		state->full_ns = 0;
		return 0;
	}
	if (!state->full_ns)
		state->full_ns = now_ns;
	return (long long)(now_ns - state->full_ns) <
	       (long long)(backlog_bytes > credit_filled(config) ? config->wait_ns : CREDIT_HOLD_MAX_NS);
}

// Returns the time for which the clock counts a promise, in ns.
WEIR_INLINE weir_u64 credit_live_ns(const struct credit_config *config)
{
	return CREDIT_LIVE_NS + 2 * credit_ns(config, config->capacity_bytes);
}

// Event: a request may leave. It need not wait in the parking queue, comes back from it, or is a held request whose step is over
// (`held`). promise: that it carries. left_ns: as for credit_life, so live_ns - left_ns is how long ago it was due. Returns 1 if
// the request is held for a step, 0 if it leaves. *released: what the end of its server remembers.
WEIR_INLINE int credit_returns(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
			       weir_u32 backlog_bytes, weir_u32 promise, long long left_ns, int held, weir_u32 *released)
{
	int full = credit_is_full(config, state, now_ns, backlog_bytes);
	long long late = (long long)credit_live_ns(config) - left_ns;
	weir_u32 owes = credit_owes(config, promise);

	*released = FLIGHT_HELD;
	if ((full || (!held && credit_holds(config, state, now_ns))) && late < (long long)config->wait_ns) {
		if (!held) {
			state->holds++;
			if (!credit_holds(config, state, now_ns))
				state->held_bytes = 0;
			if (state->held_bytes < CREDIT_BYTES_MAX)
				state->held_bytes += owes;
		}
		state->held_ns = now_ns;
		return 1;
	}
	if (held) {
		state->held_ns = now_ns;
		state->held_bytes -= owes < state->held_bytes ? owes : state->held_bytes;
	}
	*released = flight_released(&state->flight, owes);
	return 0;
}

#endif
