// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Acknowledgements that need credits: what an ACK releases, what it is charged, and when it leaves. credit.h has the clock,
// the promises and the charges.
#ifndef WEIR_CORE_CREDIT_ACK_H
#define WEIR_CORE_CREDIT_ACK_H

#include "credit.h"
#include "credit_fits.h"

// The flight that a packet with an acknowledgement may begin.
enum credit_opens {
	CREDIT_OPENS_NOTHING = 0,
	CREDIT_OPENS = 1,     // a request: data to an end that has nothing in flight, in a new turn
	// The ACK that completes a handshake. A request may follow at once, and cannot take back what this ACK grants, for
	// it has the same sequence number (RFC 9293 3.10.7.4). The request is charged, and this ACK is not: a charge for both would
	// let the line idle. It stays behind packets that wait, so the acceptor measures their wait as its first round-trip time.
	// Otherwise its loss probes would send everything twice (RFC 8985 7.2). It grants two segments:
	// Linux cuts segments to half of the largest window it was offered (tcp_bound_to_half_wnd). With one segment, a flow
	// would always have two halves in flight, and probe for their loss after two round-trip times.
	CREDIT_COMPLETES = 2,
	CREDIT_ACCEPTS = 3, // a SYN-ACK
};

// An acknowledgement, and the end whose data it acknowledges.
struct credit_ack {
	weir_u64 now_ns;
	long long left_ns;      // until the end of the promise's life
	weir_u32 promise;       // of the end
	weir_u32 advance_bytes; // how much further it acknowledges than the ones before it
	weir_u32 floor_bytes;   // least window of the flow
	weir_u32 backlog_bytes; // of the port
	weir_u32 length_bytes;  // as in credit_ask
	weir_u8 opens;          // enum credit_opens
	weir_u8 pacing;         // 1: the port paces
	weir_u8 behind, fixed;  // as in credit_ask
	weir_u8 ends; // 1: it acknowledges a FIN: nothing follows
	weir_u8 shift; // scale of the window in its header
	weir_u8 answered; // 1: the end answers requests, and its latest segment was shorter than others: a message ends so
	weir_u8 life; // of the promise: enum credit_life; now, and after credit_acknowledges as of when the packet leaves
	weir_u32 ack;          // the acknowledgement number
	weir_u32 sent;         // sequence number behind the furthest data of the end
	weir_u32 allowed;      // sequence number that charged windows allowed the end to send to; 0: unknown
	weir_u32 longest_bytes; // the longest segment that the end has sent; 0: none
	weir_u32 more;
};

// Reports whether data that begins a turn is a request: the other end has nothing in flight. One more: its FIN.
WEIR_INLINE int credit_is_request(weir_u32 ack, weir_u32 others) { return ack - others <= 1; }

// Reports whether a FIN is directly behind the furthest data of its end. The other end discards one that is not. fin: behind it.
WEIR_INLINE int credit_ends_at(weir_u32 fin, weir_u32 sent) { return fin - sent <= 1; }

// Returns the length of a full segment of the end whose data is acknowledged. It may be half of the MSS: Linux cuts segments
// to half of the largest window that it was offered (tcp_bound_to_half_wnd).
WEIR_INLINE weir_u32 credit_segment(const struct credit_ack *ack)
{
	weir_u32 most = ack->floor_bytes > 1 ? ack->floor_bytes - 1 : 1;

	return ack->longest_bytes && ack->longest_bytes < most ? ack->longest_bytes : most;
}

// Returns how far a sequence number is behind another one, in bytes; 0 if it is not, or if both belong to different streams.
WEIR_INLINE weir_u32 credit_distance(weir_u32 from, weir_u32 to)
{
	return to - from < CREDIT_SPAN_ACK ? to - from : 0;
}

// Returns the bytes that the end has sent, or will send as soon as it gets the acknowledgements that wait, and that this one
// does not acknowledge.
WEIR_INLINE weir_u32 credit_flying(const struct credit_ack *ack)
{
	weir_u32 flying = credit_distance(ack->ack, ack->sent);

	if (ack->behind && ack->allowed && credit_distance(ack->ack, ack->allowed) > flying)
		flying = credit_distance(ack->ack, ack->allowed);
	return flying;
}

// Reports whether an acknowledgement is of the end of a message: its sender sent less than it was allowed to, so nothing
// is left. A short message, such as the request that an answer acknowledges, needs no window to show this. A short segment
// that ends where the window ended is no end: the sender cut it there.
WEIR_INLINE int credit_is_last(const struct credit_ack *ack)
{
	weir_u32 segment = credit_segment(ack);

	if (credit_flying(ack))
		return 0;
	return (ack->advance_bytes < ack->floor_bytes / 4 && ack->sent != ack->allowed) ||
	       (credit_distance(ack->sent, ack->allowed) > segment / 8 && ack->advance_bytes < segment - segment / 8);
}

// Reports whether a sender sends whole segments only: it left less than one of what it was allowed to send. gVisor's TCP does so (RFC 9293
// 3.8.6.2.1); Linux sends a part of a segment, too, if it has nothing in flight.
WEIR_INLINE int credit_sends_whole(const struct credit_ack *ack, weir_u32 segment)
{
	weir_u32 left = ack->allowed ? credit_distance(ack->sent, ack->allowed) : 0;

	return left && left < segment;
}

// Returns how many bytes an acknowledgement releases at a port that paces: the least window, less what is in flight. A
// sender with data in flight sends no part of a segment (tcp_snd_wnd_test in Linux); a segment may be somewhat shorter than
// others.
WEIR_INLINE weir_u32 credit_releases(const struct credit_ack *ack)
{
	weir_u32 window = credit_window(ack->floor_bytes, ack->shift), flying = credit_flying(ack), segment = credit_segment(ack);
	weir_u32 released = window > flying ? window - flying : 0;

	if (flying && released < segment)
		return 0;
	return credit_sends_whole(ack, segment) && released > segment ? released - released % segment : released;
}

// Reports whether promises and credits concern an acknowledgement. Others pass: with the promise of the data's sender, as long as it has
// one, else with the law's window.
WEIR_INLINE int credit_concerns(const struct credit_ack *ack)
{
	return ack->opens || ack->pacing || ack->behind || ack->answered;
}

// Signs without branches: the verifier would follow each branch through all that comes after it.
WEIR_INLINE long long credit_at_least_0(long long x) { return x & ~(x >> 63); }
WEIR_INLINE weir_u8 credit_is_negative(long long x) { return (weir_u8)((weir_u64)x >> 63); }

// Returns the life of the end's promise when an acknowledgement reaches it: enum credit_life. One that is behind others leaves at the end of
// the parking queue. The clock may have passed the promise by then, so that a request needs a place of its own.
WEIR_INLINE weir_u8 credit_life_then(const struct credit_state *state, const struct credit_ack *ack)
{
	long long wait = credit_at_least_0((long long)(state->queue_ns - ack->now_ns)) * ack->behind;
	weir_u8 over = credit_is_negative(ack->left_ns - 1 - wait); // 1: left_ns <= wait

	return ack->life & ~(over * CREDIT_LIVE);
}

// Event: an acknowledgement of data of this port is about to leave. Returns the promise of the data's sender from now on;
// 0: the law's window limits it. Sets when the packet leaves.
WEIR_INLINE weir_u32 credit_acknowledges(const struct credit_config *config, struct credit_state *state,
					 struct credit_ack *ack, struct credit_answer *answer)
{
	struct credit_ask ask = {
		.now_ns = ack->now_ns,
		.backlog_bytes = ack->backlog_bytes,
		.length_bytes = ack->length_bytes,
		.behind = ack->behind,
		.fixed = ack->fixed,
	};
	weir_u32 promise = ack->promise, want;
	int rests = ack->opens == CREDIT_COMPLETES; // its promise is neither live nor owed: the request is charged

	answer->allowed = ack->allowed;
	if (config->buffer_bytes)
		flight_sees(&state->flight, ack->backlog_bytes, credit_filled(config));
	if (ack->opens && config->mode) {
		ack->life = credit_life_then(state, ack);
		credit_owes_until(config, state, ack->now_ns);
		if (promise && ack->life & CREDIT_OWED)
			credit_owes_less(state, credit_owes(config, promise));
		want = ack->floor_bytes;
		if (!rests)
			want = credit_promise(config, state, ack->now_ns, ack->backlog_bytes, ack->floor_bytes);
		else if (credit_ns(config, credit_owed(state)) < config->wait_ns / CREDIT_COMPLETES_SHARE)
			want *= CREDIT_COMPLETES_SEGMENTS;
		if (want > CREDIT_FIRST_MAX)
			want = CREDIT_FIRST_MAX;
		want = credit_window(want, ack->shift);
		if (want < promise) // the end did not use it, and a request with the same sequence number cannot take it back
			want = promise;
		if (rests) {
			promise = want;
			ask.behind |= credit_is_negative((long long)(ack->now_ns - state->queue_ns));
		} else if (!(ack->life & CREDIT_LIVE) || want > promise) {
			ask.cost_bytes = credit_cost(config, want, ack->floor_bytes);
			if (ack->life & CREDIT_LIVE && promise)
				ask.cost_bytes -= credit_cost(config, promise, ack->floor_bytes);
			promise = want;
		}
		if (!rests)
			state->owed_bytes += credit_owes(config, promise);
		ask.cost_bytes = credit_share(ask.cost_bytes, credit_factor(state));
		if (ack->opens == CREDIT_ACCEPTS)
			ask.cost_bytes = credit_share(ask.cost_bytes, credit_handshake(state, !!ack->promise));
		ask.room_bytes = credit_room(config, ack->backlog_bytes);
		answer->allowed = ack->ack + promise;
	} else if (!promise && ack->pacing && !ack->ends && !credit_is_last(ack)) {
		ask.cost_bytes = credit_cost(config, credit_releases(ack), ack->floor_bytes);
		if (ask.cost_bytes)
			answer->allowed = ack->ack + credit_window(ack->floor_bytes, ack->shift);
	}
	credit_take(config, state, &ask, answer);
	answer->live_ns = rests ? ack->now_ns - config->wait_ns : answer->leaves_ns + credit_live_ns(config);
	answer->renewed = ack->opens;
	return promise;
}

// Reports whether an acknowledgement leaves an end without a promise at rest. The end answered a request, has nothing in
// flight, and did not use all that it was allowed to send, if that is known. Its window then becomes a promise (credit_rest).
// The next request has the same sequence number, so it can make this window larger, and not smaller (RFC 9293 3.10.7.4).
WEIR_INLINE int credit_rests(const struct credit_config *config, const struct credit_ack *ack)
{
	if (!(config->mode & CREDIT_PACES) || !ack->answered || ack->ends || credit_flying(ack))
		return 0;
	if (ack->pacing)
		return credit_is_last(ack);
	return !ack->allowed || ack->allowed - ack->sent > credit_segment(ack) / 8;
}

// Event, after credit_acknowledges, which returned this promise. Returns the promise of the end from now on. An end that is
// left at rest without a promise gets one of two segments, which a receiver acknowledges at once. It gets one segment if as
// many requests as came at once recently would otherwise wait for more than 3/4 of the longest wait. The promise is not live,
// so the next request is charged for it.
WEIR_INLINE weir_u32 credit_rest(const struct credit_config *config, const struct credit_state *state,
				 const struct credit_ack *ack, weir_u32 promise, struct credit_answer *answer)
{
	weir_u32 two = 2 * ack->floor_bytes;
	weir_u64 wait;

	if (promise || !credit_rests(config, ack))
		return promise;
	wait = state->asked_most * credit_ns(config, credit_cost(config, two, ack->floor_bytes));
	promise = credit_window(wait > config->wait_ns / 4 * 3 ? ack->floor_bytes : two, ack->shift);
	answer->allowed = ack->ack + promise;
	answer->live_ns = ack->now_ns - config->wait_ns;
	answer->renewed = 1;
	return promise;
}

// Returns the limit that promises and credits set for an acknowledgement, in bytes; 0: the law's. A floor raises it. promise:
// of the data's sender.
WEIR_INLINE weir_u32 credit_limit(const struct port *port, weir_u32 promise) { return promise ? promise : port->pacing; }

#endif
