// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch: FairQ as hardware computes it (Abdelmoniem and Bensaou, section IV.E; docs/spec 1.3). One state for each
// output queue. rtl/ is equal to it, to the bit.
//
// Numeric specification
//   word           8 bytes, the unit in which a queue counts. queue_words, samples: 18 bits, values above act as 2^18 - 1.
//   target         queue_words >> threshold, at least 1 word. (The paper prints q_maxwords x threshold, and in its footnote
//                  that this is a right shift.) In bytes: target * 8, 21 bits.
//   avg_32         sum of the last 32 samples >> 5. A queue begins with 32 samples of 0.
//   flows          cur_flows, 12 bits: 0 .. 4095. It counts up and down and stops at both ends (FQ-1). The paper prints
//                  |SYN - FIN|, which grows with each FIN of a connection that the switch did not see begin.
//   syns, fins,    16 bits, they stop at 65535. For reading only: no decision uses them.
//   rsts
//   aggregate      beta * Rwnd in bytes, 30 bits. Whole bytes: a drift below target/MSS of a target has no effect.
//   window         Rwnd of each flow in bytes, 30 bits. 0: no flows, so no window is granted.
//   mss            the largest payload seen, 1 .. mss_max (14 bits); 1460 until one was seen.
//
//   change of the count    aggregate = target * 8, at most aggregate_max; window = aggregate / flows. Changes that come while
//                          the divider works are coalesced: it then divides once, by the latest count. A change drops an
//                          update that is due.
//   update, each M samples aggregate += or -= floor(MSS * |target - avg_32| / target), between 0 and 2^30 - 1. This is
//                          gamma of Alg. 1, since avg_32 is the mean over samples (FQ-18). Then at most
//                          aggregate_max, then at least floor * flows (FQ-12); window = aggregate / flows.
//   Each window is at least floor, which is at least 1. Divisions round down. One divider: 32 bits by 18 bits.
//   idle                   after idle_samples samples without a data packet the queue has no flows (1 s; FQ-9).
//
// A world calls fairswitch_job until it returns 0: after each event (software), or when the divider is free (hardware).
#ifndef WEIR_CORE_FAIRSWITCH_H
#define WEIR_CORE_FAIRSWITCH_H

#include "../types.h"

#define FAIRSWITCH_SAMPLES 32u // avg_32
#define FAIRSWITCH_SAMPLES_LOG2 5u
#define FAIRSWITCH_WORDS_MAX ((1u << 18) - 1)
#define FAIRSWITCH_BYTES_MAX ((1u << 30) - 1) // of aggregate and window
#define FAIRSWITCH_FLOWS_MAX 4095u
#define FAIRSWITCH_COUNT_MAX 65535u
#define FAIRSWITCH_MSS_MAX ((1u << 14) - 1)
#define FAIRSWITCH_MSS_DEFAULT 1460u

// The parameters of a queue: FairSwitch_regs.
struct fairswitch_config {
	weir_u32 queue_words;         // q_maxwords, the queue's size
	weir_u32 aggregate_max_bytes; // Wmax of all flows together; 0: none
	weir_u16 floor_bytes;         // Wmin of each flow: its MSS + 1
	weir_u16 mss_max_bytes;       // the port's MTU - 40; 0: 2^14 - 1
	weir_u16 idle_samples;        // 1 s / avg_queue_time; 0: never idle
	weir_u8 threshold;            // rwndq_threshold, a right shift: 2 is 25 %. The low 4 bits count.
	weir_u8 updates;              // M, 1 .. 63: samples between updates. The low 6 bits count, 0 acts as 1.
};

// The state of a queue. It begins as zeros.
struct fairswitch_state {
	weir_u32 aggregate_bytes;
	weir_u32 window_bytes; // Rwnd; 0: none
	weir_u32 sum_words;    // of samples
	weir_u16 flows;        // beta, cur_flows
	weir_u16 syns;         // SYN-ACKs
	weir_u16 fins;
	weir_u16 rsts;
	weir_u16 mss_bytes;  // the largest seen; 0: none yet
	weir_u16 idle;       // samples since the last data packet
	weir_u8 ticks;       // Gamma: samples since the last update
	weir_u8 next;        // index of the oldest of samples
	weir_u8 stale;       // 1: the count has changed, and the window does not know
	weir_u8 due;         // 1: an update is due
	weir_u8 data;        // 1: a data packet since the last sample
	weir_u8 zero[3];
	weir_u32 samples[FAIRSWITCH_SAMPLES];
};

// The events of a segment at a queue.
enum fairswitch_event {
	FAIRSWITCH_OPENS = 1,  // SYN-ACK
	FAIRSWITCH_CLOSES = 2, // FIN
	FAIRSWITCH_ABORTS = 3, // RST
};

WEIR_INLINE weir_u32 fairswitch_most(weir_u32 value, weir_u32 most)
{
	return value < most ? value : most;
}

WEIR_INLINE weir_u32 fairswitch_least(weir_u32 value, weir_u32 least)
{
	return value > least ? value : least;
}

// Returns the target in words.
WEIR_INLINE weir_u32 fairswitch_target(const struct fairswitch_config *config)
{
	return fairswitch_least(fairswitch_most(config->queue_words, FAIRSWITCH_WORDS_MAX) >> (config->threshold & 15), 1);
}

WEIR_INLINE weir_u32 fairswitch_floor(const struct fairswitch_config *config)
{
	return fairswitch_least(config->floor_bytes, 1);
}

WEIR_INLINE weir_u32 fairswitch_mss(const struct fairswitch_state *state)
{
	return state->mss_bytes ? state->mss_bytes : FAIRSWITCH_MSS_DEFAULT;
}

// Returns avg_32 in words.
WEIR_INLINE weir_u32 fairswitch_average(const struct fairswitch_state *state)
{
	return state->sum_words >> FAIRSWITCH_SAMPLES_LOG2;
}

WEIR_INLINE void fairswitch_add(weir_u16 *counter)
{
	if (*counter < FAIRSWITCH_COUNT_MAX)
		(*counter)++;
}

// Event: a segment opens or ends a flow at this queue. A SYN-ACK and a RST are events at both of a connection's queues, a
// FIN at the queue that it leaves by (FQ-8).
WEIR_INLINE void fairswitch_count(struct fairswitch_state *state, enum fairswitch_event event)
{
	if (event == FAIRSWITCH_OPENS) {
		fairswitch_add(&state->syns);
		if (state->flows < FAIRSWITCH_FLOWS_MAX)
			state->flows++;
		else
			return;
	} else {
		fairswitch_add(event == FAIRSWITCH_ABORTS ? &state->rsts : &state->fins);
		if (state->flows)
			state->flows--;
		else
			return;
	}
	state->stale = 1;
	state->due = 0;
}

// Event: a segment with this payload leaves through the queue. Without payload it has no effect.
WEIR_INLINE void fairswitch_data(const struct fairswitch_config *config, struct fairswitch_state *state,
				 weir_u32 payload_bytes)
{
	weir_u32 most = fairswitch_most(config->mss_max_bytes ? config->mss_max_bytes : FAIRSWITCH_MSS_MAX,
					FAIRSWITCH_MSS_MAX);

	if (!payload_bytes)
		return;
	state->data = 1;
	payload_bytes = fairswitch_most(payload_bytes, most);
	if (payload_bytes > state->mss_bytes)
		state->mss_bytes = (weir_u16)payload_bytes;
}

// Ends all flows of a queue that carried no data for 1 s.
WEIR_INLINE void fairswitch_idle(const struct fairswitch_config *config, struct fairswitch_state *state)
{
	if (state->data || !config->idle_samples) {
		state->data = 0;
		state->idle = 0;
		return;
	}
	if (++state->idle < config->idle_samples)
		return;
	state->idle = 0;
	state->syns = state->fins = state->rsts = 0;
	if (!state->flows)
		return;
	state->flows = 0;
	state->stale = 1;
	state->due = 0;
}

// Event: avg_queue_time has passed, and the queue holds q_words.
WEIR_INLINE void fairswitch_sample(const struct fairswitch_config *config, struct fairswitch_state *state,
				   weir_u32 q_words)
{
	weir_u32 *oldest = &state->samples[state->next & (FAIRSWITCH_SAMPLES - 1)];
	weir_u32 updates = fairswitch_least(config->updates & 63, 1);

	q_words = fairswitch_most(q_words, FAIRSWITCH_WORDS_MAX);
	state->sum_words += q_words - *oldest;
	*oldest = q_words;
	state->next = (weir_u8)((state->next + 1) & (FAIRSWITCH_SAMPLES - 1));
	if (++state->ticks >= updates) {
		state->ticks = 0;
		state->due = 1;
	}
	fairswitch_idle(config, state);
}

// Divides the aggregate among the flows.
WEIR_INLINE void fairswitch_divide(const struct fairswitch_config *config, struct fairswitch_state *state)
{
	state->window_bytes = state->flows ? fairswitch_least(state->aggregate_bytes / state->flows, fairswitch_floor(config))
					   : 0;
}

// Returns the most of all windows together.
WEIR_INLINE weir_u32 fairswitch_aggregate_most(const struct fairswitch_config *config)
{
	return fairswitch_most(config->aggregate_max_bytes ? config->aggregate_max_bytes : FAIRSWITCH_BYTES_MAX, FAIRSWITCH_BYTES_MAX);
}

// Moves the aggregate towards the target: lines 17 to 24 of Alg. 1.
WEIR_INLINE void fairswitch_update(const struct fairswitch_config *config, struct fairswitch_state *state)
{
	weir_u32 target = fairswitch_target(config);
	weir_u32 average = fairswitch_average(state);
	int up = average < target;
	weir_u32 drift = up ? target - average : average - target;
	weir_u32 step = fairswitch_mss(state) * drift / target; // below 2^14 * 2^18
	weir_u32 most = fairswitch_aggregate_most(config);
	weir_u64 sum = (weir_u64)state->aggregate_bytes + step;

	if (!up)
		sum = state->aggregate_bytes > step ? state->aggregate_bytes - step : 0;
	state->aggregate_bytes = sum < most ? (weir_u32)sum : most;
	state->aggregate_bytes = fairswitch_least(state->aggregate_bytes, fairswitch_floor(config) * state->flows);
	fairswitch_divide(config, state);
}

// Does one job of the divider, and returns 0 if there was none.
WEIR_INLINE int fairswitch_job(const struct fairswitch_config *config, struct fairswitch_state *state)
{
	if (state->stale) {
		state->stale = 0;
		state->aggregate_bytes = fairswitch_most(fairswitch_target(config) * 8, fairswitch_aggregate_most(config));
		fairswitch_divide(config, state);
		return 1;
	}
	if (!state->due)
		return 0;
	state->due = 0;
	if (state->flows)
		fairswitch_update(config, state);
	return 1;
}

#endif
