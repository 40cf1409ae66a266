// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairQ: the window that every flow of a queue is granted (Abdelmoniem and Bensaou, Algorithm 1;
// docs/spec 1.1, items FQ-n), and FairSwitch's form of it (docs/spec 1.3).
//
// Numeric specification
//   bytes, ns      u32 whole, or _q8: u64 with 8 fraction bits.
//   aggregate_q8   beta * Rwnd: the sum of the windows of all flows. Alg. 1 keeps Rwnd, and scales it
//                  by beta/(beta+1) when a flow begins and back when it ends. Both leave beta * Rwnd
//                  unchanged. gamma/beta added to Rwnd is gamma added to the aggregate. So the state
//                  is the aggregate: a flow that begins and ends causes no rounding.
//   window_q8      Rwnd: aggregate_q8 / flows, towards 0, within [floor, cap]. Packets read it.
//   rest, rest_ns  remainders of the divisions, kept for the next one. The aggregate is exactly
//                    (aggregate_q8 + (rest + rest_ns / period_ns) / divisor) / 256 bytes
//                  with divisor = target_bytes (gain paper) or 1 (gain ovs), 0 <= rest < divisor,
//                  0 <= rest_ns < period_ns. Only window_q8 is rounded: once, downwards. Its error
//                  is in (-1/256, 0] byte after any number of events.
//   under_byte_ns, gamma before its division, as two unsigned parts: the integrals over time of
//   over_byte_ns   (target - backlog) and (backlog - target) where positive, since the last update.
//
//   A sample stands for the time since the sample before it, so a late or irregular timer does not
//   change the average. With kappa = 1 - Q/target an update adds to the aggregate
//       gain paper   MSS/period * integral of kappa dt    = MSS * mean(kappa), if in time
//       gain ovs     1/period * integral of (target-Q) dt = mean(target - Q), if in time
//   and is due when elapsed_ns >= period_ns; elapsed_ns keeps the excess (FQ-10: not M+1). A step of
//   slow start is added for each period_ns that elapsed.
//
// Saturation
//   backlog        at buffer_bytes, if that is not 0: no more can wait. kappa is in [1 - 1/alpha, 1].
//   time           a gap counts for at most one period, or for 2T if that is longer (M = 1): one
//                  reading does not represent hours (suspended machine, stopped timer). A clock
//                  behind the last sample counts 0; if it is behind by over a period, it is adopted.
//   flows          0 .. FAIRQ_FLOWS_MAX. (The world's flow table is smaller.)
//   period_ns      1 .. FAIRQ_PERIOD_NS_MAX; target_bytes 1 .. 2^32-1: values outside become the nearest.
//   cap_bytes      FAIRQ_WINDOW_MAX when 0 or above that; at least the floor.
//   start_bytes    the target when 0; FAIRQ_WINDOW_MAX when above that.
//   floor_bytes    the largest MSS seen when 0. A window below the MSS starves Linux (FQ-12).
//   aggregate      clamped to flows * [floor, cap] at each update, and only there: flows that begin
//                  and end between two updates change nothing for the others. Its rest is then 0.
//
// Bounds (no product wraps): at an update elapsed < 3 * period <= 3 * 2^30, so a part is below
// 2^32 * 3 * 2^30 < 2^64. factor = 256 * MSS < 2^24; factor * (part / period) < 2^24 * 2^32 * 3 < 2^58;
// factor * (part % period) < 2^54. aggregate <= 2^30 * 2^8 * 2^20 = 2^58 plus one such step.
#ifndef WEIR_CORE_FAIRQ_H
#define WEIR_CORE_FAIRQ_H

#include "../types.h"

#define FAIRQ_FLOWS_MAX (1u << 20)
#define FAIRQ_PERIOD_NS_MAX (1u << 30)
#define FAIRQ_WINDOW_MAX (1u << 30) // TCP's largest: 65535 << 14 is just below
#define FAIRQ_MSS_DEFAULT 1460u     // until one was seen
#define FAIRQ_SAMPLES 32u           // FairSwitch's avg_32; a power of 2
#define FAIRQ_SAMPLES_LOG2 5u

// FQ-10: the paper's increment, or that of the authors' Open vSwitch code.
enum fairq_gain {
	FAIRQ_GAIN_PAPER = 0, // MSS * mean(kappa) to all flows together
	FAIRQ_GAIN_OVS = 1,   // mean(target - Q): target/MSS times as much
};

// FQ-11: slow start adds 2 MSS at each update until the queue first reaches its target. The enumeration selects to what
// it is added. The default is the sum of all windows, as in the authors' code: twice the largest step of gain paper, for
// any number of flows. As printed, it is added to each window. An 83-packet buffer has 66 packets above its target, and
// 34 flows then add more than that in one step, before the queue shows it.
enum fairq_slow_start {
	FAIRQ_SLOW_START_AGGREGATE = 0,
	FAIRQ_SLOW_START_PER_FLOW = 1, // as printed
	FAIRQ_SLOW_START_OFF = 2,      // "(optionally) enters the slow-start phase"
};

enum fairq_variant {
	FAIRQ_VARIANT_ALG1 = 0,
	// Q is the mean of the last 32 samples, rounded down (zeros at first, like a register after reset). A change of the
	// number of flows restarts at Rwnd = target/flows. No slow start.
	FAIRQ_VARIANT_FAIRSWITCH = 1,
};

// The configuration of a queue, written by user space. A value outside an enumeration acts as its 0.
struct fairq_config {
	weir_u32 target_bytes; // alpha * B
	weir_u32 buffer_bytes; // B; 0: unknown
	weir_u32 tick_ns;      // T: when the next sample is due
	weir_u32 period_ns;    // M * T: time between updates
	weir_u32 floor_bytes;  // of a flow's window; 0: the largest MSS seen
	weir_u32 cap_bytes;    // of a flow's window: bandwidth * delay + target; 0: none
	weir_u32 start_bytes;  // sum of the windows of a queue without flows; 0: the target, as lines 3 and 11 have it
	weir_u16 mss_max_bytes; // the port's MTU - 40: no segment can be larger; 0: 65535
	weir_u8 gain;           // enum fairq_gain
	weir_u8 slow_start;     // enum fairq_slow_start
	weir_u8 variant;        // enum fairq_variant
	weir_u8 zero[3];
};

// The state of a queue. It begins as zeros, then call fairq_reset.
struct fairq_state {
	weir_u64 aggregate_q8;
	weir_u64 window_q8;      // Rwnd
	weir_u64 under_byte_ns;  // gamma where Q < target
	weir_u64 over_byte_ns;   // gamma where Q > target
	weir_u64 last_sample_ns; // the caller's clock
	weir_u64 backlog_sum;    // FairSwitch: the sum of backlogs
	weir_u32 rest;
	weir_u32 rest_ns;
	weir_u32 elapsed_ns; // since the latest update was due; below period_ns between events
	weir_u32 flows;      // beta
	weir_u16 mss_bytes;  // the largest seen; 0: none yet
	weir_u8 slow_start;  // 1: probing
	weir_u8 next;        // FairSwitch: index of the oldest of backlogs
	weir_u32 zero;
	weir_u32 backlogs[FAIRQ_SAMPLES]; // FairSwitch: the latest samples
};

WEIR_INLINE weir_u32 fairq_target(const struct fairq_config *config)
{
	return config->target_bytes ? config->target_bytes : 1;
}

WEIR_INLINE weir_u32 fairq_period(const struct fairq_config *config)
{
	if (config->period_ns > FAIRQ_PERIOD_NS_MAX)
		return FAIRQ_PERIOD_NS_MAX;
	return config->period_ns ? config->period_ns : 1;
}

WEIR_INLINE weir_u32 fairq_mss(const struct fairq_state *state)
{
	return state->mss_bytes ? state->mss_bytes : FAIRQ_MSS_DEFAULT;
}

WEIR_INLINE weir_u64 fairq_floor_q8(const struct fairq_config *config, const struct fairq_state *state)
{
	weir_u32 floor = config->floor_bytes ? config->floor_bytes : fairq_mss(state);

	return (weir_u64)(floor < FAIRQ_WINDOW_MAX ? floor : FAIRQ_WINDOW_MAX) << 8;
}

WEIR_INLINE weir_u64 fairq_cap_q8(const struct fairq_config *config, weir_u64 floor_q8)
{
	weir_u64 cap_q8 = FAIRQ_WINDOW_MAX;

	if (config->cap_bytes && config->cap_bytes < FAIRQ_WINDOW_MAX)
		cap_q8 = config->cap_bytes;
	cap_q8 <<= 8;
	return cap_q8 > floor_q8 ? cap_q8 : floor_q8;
}

// Returns the sum of the windows of a queue without flows: alpha * B in lines 3 and 11 of Alg. 1, or what the path holds.
WEIR_INLINE weir_u64 fairq_start_q8(const struct fairq_config *config)
{
	weir_u64 start = fairq_target(config);

	if (config->start_bytes && config->variant != FAIRQ_VARIANT_FAIRSWITCH)
		start = config->start_bytes < FAIRQ_WINDOW_MAX ? config->start_bytes : FAIRQ_WINDOW_MAX;
	return start << 8;
}

// Calculates Rwnd from the aggregate.
WEIR_INLINE void fairq_publish(const struct fairq_config *config, struct fairq_state *state)
{
	weir_u64 floor_q8 = fairq_floor_q8(config, state);
	weir_u64 cap_q8 = fairq_cap_q8(config, floor_q8);
	weir_u64 window_q8 = state->flows ? state->aggregate_q8 / state->flows : state->aggregate_q8;

	if (window_q8 > cap_q8)
		window_q8 = cap_q8;
	state->window_q8 = window_q8 > floor_q8 ? window_q8 : floor_q8;
}

// Returns Rwnd as it would be with `opening` more flows, and changes no state. It limits SYN-ACKs if open handshakes count
// apart from active flows. First windows can come all at once, so those of a queue without flows share its target, also
// with start_bytes; FairSwitch restarts at target/flows with every flow.
WEIR_INLINE weir_u64 fairq_opening_q8(const struct fairq_config *config, const struct fairq_state *state,
				      weir_u32 opening)
{
	weir_u64 floor_q8 = fairq_floor_q8(config, state);
	weir_u64 cap_q8 = fairq_cap_q8(config, floor_q8);
	weir_u64 window_q8 = state->aggregate_q8;
	weir_u32 flows;

	if (opening > FAIRQ_FLOWS_MAX)
		opening = FAIRQ_FLOWS_MAX;
	flows = state->flows + opening;
	if (opening && (!state->flows || config->variant == FAIRQ_VARIANT_FAIRSWITCH))
		window_q8 = (weir_u64)fairq_target(config) << 8;
	if (flows)
		window_q8 /= flows;
	if (window_q8 > cap_q8)
		window_q8 = cap_q8;
	return window_q8 > floor_q8 ? window_q8 : floor_q8;
}

// Sets gamma and Gamma to 0, and the remainders of their divisions (FQ-2).
WEIR_INLINE void fairq_clear(struct fairq_state *state)
{
	state->under_byte_ns = 0;
	state->over_byte_ns = 0;
	state->elapsed_ns = 0;
	state->rest = 0;
	state->rest_ns = 0;
}

// Sets the sum of the windows to that of a queue without flows and begins slow start: lines 3, 11 and 12 of Alg. 1 (FQ-3).
WEIR_INLINE void fairq_restart(const struct fairq_config *config, struct fairq_state *state)
{
	fairq_clear(state);
	state->aggregate_q8 = fairq_start_q8(config);
	state->slow_start = config->slow_start != FAIRQ_SLOW_START_OFF && config->variant != FAIRQ_VARIANT_FAIRSWITCH;
	fairq_publish(config, state);
}

// Event: the queue has no flows: at the beginning, or after 1 s without data (docs/spec 1.1).
WEIR_INLINE void fairq_reset(const struct fairq_config *config, struct fairq_state *state, weir_u64 now_ns)
{
	state->flows = 0;
	state->last_sample_ns = now_ns;
	fairq_restart(config, state);
}

// Event: a flow of this MSS crosses the queue; line 2 of Alg. 1. In bytes of payload, from the MSS option or gso_size,
// never from a packet's length (a GSO packet is not a segment). It counts up to mss_max_bytes. Otherwise one SYN that
// announces 65535 would raise the floor of every flow, and the port would no longer be limited.
WEIR_INLINE void fairq_saw_mss(const struct fairq_config *config, struct fairq_state *state, weir_u32 mss_bytes)
{
	weir_u32 most = config->mss_max_bytes ? config->mss_max_bytes : 0xffff;

	if (mss_bytes > most)
		mss_bytes = most;
	if (mss_bytes <= state->mss_bytes)
		return;
	state->mss_bytes = (weir_u16)mss_bytes;
	fairq_publish(config, state);
}

// Event: the number of flows has changed; lines 3-12.
WEIR_INLINE void fairq_flows(const struct fairq_config *config, struct fairq_state *state, weir_u64 now_ns,
			     weir_u32 flows)
{
	if (flows > FAIRQ_FLOWS_MAX)
		flows = FAIRQ_FLOWS_MAX;
	if (flows == state->flows)
		return;
	if (state->flows == 0) // FQ-4
		fairq_reset(config, state, now_ns);
	state->flows = flows;
	if (flows == 0 || config->variant == FAIRQ_VARIANT_FAIRSWITCH)
		fairq_restart(config, state);
	else
		fairq_publish(config, state);
}

// Event: a flow begins; lines 3-6.
WEIR_INLINE void fairq_flow_added(const struct fairq_config *config, struct fairq_state *state, weir_u64 now_ns)
{
	fairq_flows(config, state, now_ns, state->flows + 1);
}

// Event: a flow ends; lines 7-12. Without flows it has no effect (FQ-1, FQ-4).
WEIR_INLINE void fairq_flow_removed(const struct fairq_config *config, struct fairq_state *state)
{
	if (state->flows)
		fairq_flows(config, state, state->last_sample_ns, state->flows - 1);
}

// Adds gamma, divided, to the aggregate: exactly, with the remainders of earlier divisions.
WEIR_INLINE void fairq_add_gamma(const struct fairq_config *config, struct fairq_state *state)
{
	int ovs = config->gain == FAIRQ_GAIN_OVS;
	weir_u64 factor = (ovs ? 1 : fairq_mss(state)) << 8;
	weir_u32 divisor = ovs ? 1 : fairq_target(config);
	weir_u32 period = fairq_period(config);
	int up = state->under_byte_ns >= state->over_byte_ns;
	weir_u64 gamma = up ? state->under_byte_ns - state->over_byte_ns : state->over_byte_ns - state->under_byte_ns;
	weir_u64 part = factor * (gamma % period); // in 1/(divisor * period)
	weir_u64 sum = factor * (gamma / period);  // in 1/divisor
	weir_u64 rest = state->rest, rest_ns = state->rest_ns;

	if (up) {
		part += rest_ns;
		sum += part / period + rest;
		state->rest_ns = (weir_u32)(part % period);
		state->rest = (weir_u32)(sum % divisor);
		state->aggregate_q8 += sum / divisor;
		return;
	}
	sum += part / period;
	part %= period;
	if (part > rest_ns) { // borrow
		rest_ns += period;
		sum++;
	}
	state->rest_ns = (weir_u32)(rest_ns - part);
	part = sum % divisor;
	sum /= divisor;
	if (part > rest) {
		rest += divisor;
		sum++;
	}
	state->rest = (weir_u32)(rest - part);
	state->aggregate_q8 = state->aggregate_q8 > sum ? state->aggregate_q8 - sum : 0;
}

// Lines 20-24, with the limits that they lack (FQ-12).
WEIR_INLINE void fairq_update(const struct fairq_config *config, struct fairq_state *state)
{
	weir_u32 period = fairq_period(config);
	weir_u64 floor_q8 = fairq_floor_q8(config, state);
	weir_u64 cap_q8 = fairq_cap_q8(config, floor_q8);
	weir_u64 flows = state->flows;

	if (state->slow_start)
		state->aggregate_q8 += (weir_u64)fairq_mss(state) * 2 * 256 * (state->elapsed_ns / period) *
				       (config->slow_start == FAIRQ_SLOW_START_PER_FLOW ? flows : 1);
	else
		fairq_add_gamma(config, state);
	state->under_byte_ns = 0;
	state->over_byte_ns = 0;
	state->elapsed_ns %= period;
	if (state->aggregate_q8 < floor_q8 * flows) {
		state->aggregate_q8 = floor_q8 * flows;
		state->rest = state->rest_ns = 0;
	}
	if (state->aggregate_q8 >= cap_q8 * flows) {
		state->aggregate_q8 = cap_q8 * flows;
		state->rest = state->rest_ns = 0;
	}
	fairq_publish(config, state);
}

// Returns the most time that one sample can stand for, in ns: one to two periods.
WEIR_INLINE weir_u32 fairq_gap_max(const struct fairq_config *config)
{
	weir_u32 period = fairq_period(config);
	weir_u32 tick = config->tick_ns < period ? config->tick_ns : period;

	return tick > period / 2 ? tick * 2 : period;
}

// Returns the time that a sample at now_ns stands for, in ns. Sets last_sample_ns.
WEIR_INLINE weir_u32 fairq_gap(const struct fairq_config *config, struct fairq_state *state, weir_u64 now_ns)
{
	weir_u32 most = fairq_gap_max(config);
	weir_u64 gap = now_ns - state->last_sample_ns;

	if (gap >> 63) { // the clock of another CPU
		if (0 - gap > fairq_period(config))
			state->last_sample_ns = now_ns;
		return 0;
	}
	state->last_sample_ns = now_ns;
	return gap < most ? (weir_u32)gap : most;
}

// Returns the queue length that the law uses, in bytes.
WEIR_INLINE weir_u32 fairq_backlog(const struct fairq_config *config, struct fairq_state *state, weir_u32 backlog_bytes)
{
	weir_u32 *oldest = &state->backlogs[state->next & (FAIRQ_SAMPLES - 1)];

	if (config->buffer_bytes && backlog_bytes > config->buffer_bytes)
		backlog_bytes = config->buffer_bytes;
	if (config->variant != FAIRQ_VARIANT_FAIRSWITCH)
		return backlog_bytes;
	state->backlog_sum += backlog_bytes;
	state->backlog_sum -= *oldest;
	*oldest = backlog_bytes;
	state->next = (weir_u8)((state->next + 1) & (FAIRQ_SAMPLES - 1));
	return (weir_u32)(state->backlog_sum >> FAIRQ_SAMPLES_LOG2);
}

// Event: backlog_bytes wait in the queue at now_ns; lines 17-24. A timer calls it every T, or a packet if
// fairq_packet_may_sample returns 1.
WEIR_INLINE void fairq_sample(const struct fairq_config *config, struct fairq_state *state, weir_u64 now_ns,
			      weir_u32 backlog_bytes)
{
	weir_u32 target = fairq_target(config);
	weir_u32 gap = fairq_gap(config, state, now_ns);
	weir_u32 backlog = fairq_backlog(config, state, backlog_bytes);

	if (state->flows == 0)
		return;
	if (backlog < target)
		state->under_byte_ns += (weir_u64)(target - backlog) * gap;
	else
		state->over_byte_ns += (weir_u64)(backlog - target) * gap;
	if (backlog >= target)
		state->slow_start = 0;
	state->elapsed_ns += gap;
	if (state->elapsed_ns >= fairq_period(config))
		fairq_update(config, state);
}

// Reports whether a packet at now_ns must sample in the timer's place: the timer, due T after the last sample, is more
// than 2T late. Normally the timer samples; packets do if it stalls or rests.
WEIR_INLINE int fairq_packet_may_sample(const struct fairq_config *config, const struct fairq_state *state,
					weir_u64 now_ns)
{
	weir_u64 gap = now_ns - state->last_sample_ns;

	return state->flows && !(gap >> 63) && gap > (weir_u64)config->tick_ns * 3;
}

// Reports whether a packet at now_ns need not sample in the timer's place if the queue is empty and was at the last sample: one sample
// in a period says the same as many.
WEIR_INLINE int fairq_empty_may_rest(const struct fairq_config *config, const struct fairq_state *state, weir_u64 now_ns)
{
	return config->variant == FAIRQ_VARIANT_ALG1 && now_ns - state->last_sample_ns < fairq_period(config);
}

#endif
