// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises and credits: FairQ for more flows than windows can hold. docs/credits.md explains both.
//
// The least window of a flow is one segment. So the windows of n flows hold a queue only while n segments fit in
// capacity = BDP + target. Beyond that, and for flows that have not sent yet, the port has a clock:
//
//   clock      the time when all bytes that were released to the port will have drained. Each packet that releases data
//              moves it on by the time that these bytes take on the line. `ahead` is clock - now, in bytes
//   promise    the window in an opening packet: a SYN-ACK, an ACK of a handshake, or a request. It is what the port has
//              room for: capacity - backlog - max(ahead, owed), at least a segment, at most a first flight
//   rest       an end that answered everything keeps a promise of two segments, or of one if many ends are asked at once: the
//              ACK of the end of its answer carries it. Otherwise it would keep its last window, which a request cannot make
//              smaller
//   owed       sum of the promises that their ends have not used yet. A server may take its time before it answers. The
//              clock then counts the answer as drained, although it still has to come
//   credit     an opening packet, or while the port paces every ACK, leaves when the clock allows it. Until then it waits
//              in the parking queue (datapath/park)
//   pacing     the port's flows at one segment each exceed its capacity. All windows are one segment then, and each ACK
//              needs a credit for the bytes that it releases: its window less what is in flight, or what ACKs before it that
//              still wait release. The ACK of the end of a message releases nothing
//
// The parking queue sends at the port's rate, and a packet takes the time of its length there. So a packet is made longer
// until the queue is free again when the next packet may leave. `queue_ns` follows that queue.
//
// Numeric specification
//   time, ns    u64 of one clock of the world; a difference counts as signed. A time before now counts as now.
//   bytes       u32, frames as the buffer counts them. ns = bytes * byte_ns_q20 >> 20, rounded down.
//   factor      of the cost of promises, in 1024ths, 32 .. 1024: the mean share of a promise that recent answers used. A
//               tiny answer does not use it: without the factor such answers would wait although the line is idle.
//   handshakes  share of the promises in SYN-ACKs that are used, in 2^20ths: a SYN-ACK takes 1/2048 of it, an end that uses such a
//               promise adds 1/2048. From 1/2 on a SYN-ACK costs what its promise does; below that 2 * share of it; below 1/8
//               nothing, so it does not wait. A flood of SYNs thus takes no credits from flows that use theirs. A span adds
//               1/128 of what the share lacks.
//   owed        a promise counts from when it is given until its end sends data, for wait_ns to 2 wait_ns at most: there are
//               two sums, of this span of wait_ns and of the one before it. An end that uses its promise after the clock
//               has forgotten it is charged again.
//   correction  the queue's error e = backlog - target - corrected changes a cost by cost * e / cycle, from 0 to +1 of
//               it, so that the charges of one cycle remove the error. cycle = max(ahead, capacity). `corrected` is the sum
//               of the corrections of the latest cycle, which the queue does not show yet. Requests that are held belong to the
//               backlog here: they were charged, and without room of their own they would leave only as the clock errs.
// Bounds: bytes <= 2^26 and byte_ns_q20 <= 2^37 (64 kbit/s), so that no product wraps.
#ifndef WEIR_CORE_CREDIT_H
#define WEIR_CORE_CREDIT_H

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
#define CREDIT_HEADER_BYTES 66u   // Ethernet, IPv4, TCP with time stamps
#define CREDIT_COMPLETES_SEGMENTS 2 // least windows that the ACK of a handshake grants,
#define CREDIT_COMPLETES_SHARE 4 // as long as promises that are not used yet take less than the longest wait / this
#define CREDIT_MARGIN 32 // costs are 1/32 higher than the bytes: room for segments that are sent twice, and for handshakes
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
	bytes += (bytes / (floor_bytes > 1 ? floor_bytes - 1 : 1) + 1) * (CREDIT_HEADER_BYTES + config->line_bytes);
	return bytes + bytes / CREDIT_MARGIN;
}

// Returns how many bytes may be ahead before an opening packet waits.
WEIR_INLINE weir_u32 credit_room(const struct credit_config *config, weir_u32 backlog_bytes)
{
	return config->capacity_bytes > backlog_bytes ? config->capacity_bytes - backlog_bytes : 0;
}

// Moves the sums of promises that are not used yet on to the span of this time.
WEIR_INLINE void credit_owes_until(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns)
{
	weir_u64 span = now_ns / (config->wait_ns ? config->wait_ns : 1);

	if (span == state->owed_span)
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

// Returns value * part / whole, rounded towards 0. |value| and part are at most CREDIT_NS_MAX.
WEIR_INLINE long long credit_part(long long value, weir_u64 part, weir_u64 whole)
{
	weir_u64 size = value < 0 ? -(weir_u64)value : (weir_u64)value;

	size = whole ? size * part / whole : 0;
	return value < 0 ? -(long long)size : (long long)size;
}

WEIR_INLINE long long credit_clamp(long long value, long long least, long long most)
{
	return value < least ? least : value > most ? most : value;
}

#define CREDIT_HOLD_MAX_NS (1ull << 25) // after this time without room, 34 ms, requests pass until there is room
#define CREDIT_HOLD_WAITS 4 // a request is held for this number of longest waits at most
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
	return state->held_ns && now_ns - state->held_ns < CREDIT_HOLD_STEPS * credit_step_ns(config);
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

// Returns what a packet is charged, in ns: its cost, corrected by the queue's error. Corrections that the queue does not
// show yet, because the packets still wait, count as done.
WEIR_INLINE weir_u64 credit_charge(const struct credit_config *config, struct credit_state *state,
				   const struct credit_ask *ask)
{
	weir_u64 cost = credit_ns(config, ask->cost_bytes);
	weir_u64 ahead = credit_ahead(state, ask->now_ns), cycle = credit_ns(config, config->capacity_bytes);
	weir_u32 queue = credit_queue(config, state, ask->now_ns, ask->backlog_bytes);
	long long error = (long long)(credit_ns(config, queue) - credit_ns(config, config->target_bytes)), change;

	if (ahead > cycle)
		cycle = ahead;
	if (cost > CREDIT_NS_MAX)
		cost = CREDIT_NS_MAX;
	if (cost > cycle)
		cycle = cost;
	error = credit_clamp(error - state->corrected_ns, -(long long)CREDIT_NS_MAX, CREDIT_NS_MAX);
	change = credit_clamp(credit_part(error, cost, cycle), 0, cost);
	state->corrected_ns += change - credit_part(state->corrected_ns, cost, cycle);
	state->corrected_ns = credit_clamp(state->corrected_ns, -(long long)CREDIT_NS_MAX, CREDIT_NS_MAX);
	return cost + change;
}

// Returns how many bytes the backlog and the answers that are expected may be together: three quarters of the buffer above the
// target. The last quarter is for data that no request announces.
WEIR_INLINE weir_u32 credit_filled(const struct credit_config *config)
{
	weir_u32 above = config->buffer_bytes > config->target_bytes ? config->buffer_bytes - config->target_bytes : 0;

	return config->target_bytes + above - above / 4;
}

// Reports whether the buffer has no room for the answer to one more request.
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
	return now_ns - state->full_ns < CREDIT_HOLD_MAX_NS;
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
	if ((full || (!held && credit_holds(config, state, now_ns))) && late < CREDIT_HOLD_WAITS * (long long)config->wait_ns) {
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

// Event: a packet that may release data is about to leave. Charges it, and sets when it leaves.
WEIR_INLINE void credit_take(const struct credit_config *config, struct credit_state *state, const struct credit_ask *ask,
			     struct credit_answer *answer)
{
	weir_u64 now = ask->now_ns, clock = credit_from(state->clock_ns, now), queue = credit_from(state->queue_ns, now);
	weir_u64 room = credit_ns(config, ask->room_bytes), cost = credit_charge(config, state, ask), want, wait = queue - now;
	weir_u32 length = ask->length_bytes;
	int due = clock - now <= room;

	answer->leaves_ns = now;
	answer->charge_ns = cost;
	answer->length_bytes = 0;
	answer->longest_ns = state->longest_ns;
	if (!(config->mode & CREDIT_PACES) || (!ask->behind && (due || !cost))) {
		state->clock_ns = clock + cost;
		state->charged_ns += cost;
		return;
	}
	if (wait > (weir_u64)config->wait_ns << ask->behind || wait > credit_ns(config, config->hold_bytes)) {
		state->full++;
		answer->charge_ns = 0;
		return;
	}
	state->clock_ns = clock + cost;
	state->charged_ns += cost;
	want = state->clock_ns - room;
	if (!ask->fixed && (long long)(want - queue) > 0)
		length = credit_bytes(config, want - queue);
	if (length < ask->length_bytes)
		length = ask->length_bytes;
	if (length > CREDIT_LENGTH_MAX)
		length = CREDIT_LENGTH_MAX;
	state->queue_ns = queue + credit_ns(config, length);
	state->parked++;
	if (wait > state->longest_ns)
		state->longest_ns = (weir_u32)wait;
	answer->leaves_ns = queue;
	answer->length_bytes = length;
}

// Event: the parking refused a packet that credit_take had wait, so it passes now. Takes back its charge, its place in the
// parking queue and its wait, as if its wait had been too long. now_ns: of credit_take.
WEIR_INLINE void credit_refused(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
				const struct credit_answer *answer)
{
	if (!answer->length_bytes)
		return;
	state->clock_ns -= answer->charge_ns;
	state->charged_ns -= answer->charge_ns;
	state->queue_ns -= credit_ns(config, answer->length_bytes);
	if (state->longest_ns == (weir_u32)(answer->leaves_ns - now_ns))
		state->longest_ns = answer->longest_ns;
	state->parked--;
	state->full++;
}

// Reports whether a frame that no credit released is charged: while the port paces, or its clock runs.
WEIR_INLINE int credit_counts_other(const struct credit_state *state, weir_u32 pacing, weir_u64 now_ns)
{
	return pacing || (long long)(state->clock_ns - now_ns) > 0;
}

// Event: a frame that no credit released leaves by the port: of another protocol, of an unmanaged flow, or without data.
WEIR_INLINE void credit_other(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
			      weir_u32 frame_bytes)
{
	state->clock_ns = credit_from(state->clock_ns, now_ns) + credit_ns(config, frame_bytes + config->line_bytes);
}

// The life of a promise when its end uses it, or gets another.
enum credit_life {
	CREDIT_LIVE = 1, // the clock still counts it
	CREDIT_OWED = 2, // it counts as not used
	CREDIT_OPENERS = 4, // a SYN-ACK gave it to the end that opened the connection; set by the world
};

// Returns the life of a promise: enum credit_life. left_ns: until the end of the time that credit_acknowledges sets.
WEIR_INLINE weir_u8 credit_life(const struct credit_config *config, long long left_ns)
{
	if (left_ns > 0)
		return CREDIT_LIVE | CREDIT_OWED;
	return left_ns + (long long)config->wait_ns > (long long)credit_live_ns(config) ? CREDIT_OWED : 0;
}

// Event: an end that had a promise sends its first data, of this many bytes, or closes without data (0). life: of the promise.
// released: what the end remembers of its request. Short answers make later promises cheaper. A late answer is charged. An end that closes long after it was asked changes nothing.
WEIR_INLINE void credit_used(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns, weir_u32 promise,
			     weir_u32 payload_bytes, weir_u8 life, weir_u32 released)
{
	weir_u32 segment = promise < CREDIT_SEGMENT_BYTES ? promise : CREDIT_SEGMENT_BYTES; // a longer flight comes in several
	weir_u32 share = payload_bytes < segment / 4 ? CREDIT_FACTOR * payload_bytes / segment : CREDIT_FACTOR;
	weir_u32 factor = credit_factor(state), owes = credit_owes(config, promise);

	if (life & CREDIT_OPENERS)
		credit_handshake_used(state);
	flight_used(&state->flight, released, owes, credit_filled(config));
	if (!payload_bytes && !(life & (CREDIT_LIVE | CREDIT_OWED)))
		return;
	credit_owes_until(config, state, now_ns);
	if (life & CREDIT_OWED)
		credit_owes_less(state, owes);
	if (!(life & CREDIT_LIVE) && config->mode)
		state->clock_ns = credit_from(state->clock_ns, now_ns) + credit_ns(config, owes) * share / CREDIT_FACTOR;
	factor = factor - factor / 32 + share / 32;
	state->factor_less = CREDIT_FACTOR - (factor > 32 ? factor : 32);
}

// Reports whether the port must pace. live: user space runs, and all flows of the port are limited.
WEIR_INLINE int port_must_pace(const struct port_config *config, const struct port *port, int live)
{
	weir_u32 floor = (weir_u32)(fairq_floor_q8(&config->law, &port->law) >> 8) + 1;

	return live && config->credit & CREDIT_PACES &&
	       credit_paces(config->pipe_bytes + fairq_target(&config->law), floor, port->law.flows, port->pacing);
}

// Event, under the port's lock: the port paces, or no longer. The law had no influence on the queue meanwhile, and
// restarts.
WEIR_INLINE void port_paces(const struct port_config *config, struct port *port, int paces)
{
	if (port->pacing && !paces)
		fairq_restart(&config->law, &port->law);
	port->pacing = paces;
}

#endif
