// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Promises and credits: FairQ for more flows than windows can hold. docs/credits.md explains both.
//
// The least window of a flow is one segment. So the windows of n flows hold a queue only while n segments fit in
// capacity = BDP + target. Beyond that, and for flows that have not sent yet, the port has a clock:
//
//   clock      the time when all bytes that were released to the port will have drained. Each packet that releases data
//              moves it on by the time that these bytes take on the line. `ahead` is clock - now, in bytes
//   promise    the window in an opening packet: a SYN-ACK or a request. It is what the port has
//              room for: capacity - backlog - max(ahead, owed), at least a segment, at most a first flight
//   rest       an end that answered everything keeps a promise of two segments, or of one if many ends are asked at once: the
//              ACK of the end of its answer carries it. Otherwise it would keep its last window, which a request cannot make
//              smaller. The ACK of a handshake carries such a promise to the acceptor. It costs nothing, and stays behind packets
//              that wait
//   owed       sum of the promises that their ends have not used yet. A server may take its time before it answers. The
//              clock then counts the answer as drained, although it still has to come
//   credit     an opening packet needs one, and while the port paces every ACK needs one, too. The packet leaves when the clock
//              allows it. Until then it waits in the parking queue (datapath/park)
//   sent again data that its end had sent before costs nothing by itself: the queue shows it, and corrections take it off. With a
//              charge it would count twice, and the line would idle afterwards. An end that has measured short round trips
//              probes for losses as soon as its answers take longer, although nothing is lost, for some round trips (RFC 8985 7.2)
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
//   handshakes  share of the promises in SYN-ACKs that are used, in 2^20ths. A SYN-ACK: share -= share / 2048. A promise of one that is
//               used: share += 1 / 2048. A span: share += (1 - share) / 128. A SYN-ACK costs its promise, times 1 if the share is
//               1/2 or more, times 2 * share if it is 1/8 or more, else 0. So a flood of SYNs takes no credits from flows that
//               use theirs.
//   owed        a promise counts from when it is given until its end sends data, for wait_ns to 2 wait_ns at most: there are
//               two sums, of this span of wait_ns and of the one before it. An end that uses its promise after the clock
//               has forgotten it is charged again.
//   life        a promise is live, so that a request that repeats it costs nothing, for 1 ms and twice the time of the capacity after the
//               packet that gave it leaves. A request behind packets of its direction leaves at queue_ns, and counts as of then. The
//               promise of an end at rest, or of an ACK of a handshake, is not live, so the request is charged.
//   correction  the queue's error e = backlog - target - corrected changes a cost by cost * e / cycle, from 0 to +1 of
//               it, so that the charges of one cycle remove the error. cycle = max(ahead, capacity). `corrected` is the sum
//               of the corrections of the latest cycle, which the queue does not show yet. Requests that are held belong to the
//               backlog here: they were charged, and without room of their own they would leave only as the clock errs.
// Bounds: bytes <= 2^26 and byte_ns_q20 <= 2^37 (64 kbit/s), so that no product wraps.
#ifndef WEIR_CORE_CREDIT_H
#define WEIR_CORE_CREDIT_H

#include "credit_hold.h"

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
	if (length > CREDIT_LENGTH_MAX)
		length = CREDIT_LENGTH_MAX;
	if (length < ask->length_bytes)
		length = ask->length_bytes;
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

// Event: a frame that no credit released leaves by the port: of another protocol, of an unmanaged flow, or without data. Beyond twice the
// longest wait nothing is charged: the port drops what is more than its rate.
WEIR_INLINE void credit_other(const struct credit_config *config, struct credit_state *state, weir_u64 now_ns,
			      weir_u32 frame_bytes)
{
	if (credit_ahead(state, now_ns) > 2ull * config->wait_ns)
		return;
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
// released: what the end remembers of its request. Short answers make later promises cheaper. A late answer is charged. An end that closes
// long after it was asked changes nothing.
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
