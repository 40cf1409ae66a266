// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The events of the test vectors of core/fairq/credit.h, credit_ack.h and credit_turn.h (events.h). Whether a port paces
// is an event of release.h, because it changes a port.
#ifndef WEIR_COREVEC_CREDIT_EVENTS_H
#define WEIR_COREVEC_CREDIT_EVENTS_H

#include "../../core/fairq/credit_turn.h"

enum {
	CREDIT_EVENT_ACKNOWLEDGE = 1,
	CREDIT_EVENT_REST,
	CREDIT_EVENT_USED,
	CREDIT_EVENT_COUNTS_OTHER,
	CREDIT_EVENT_OTHER,
	CREDIT_EVENT_REFUSED,
	CREDIT_EVENT_CONCERNS,
	CREDIT_EVENT_TURN,
	CREDIT_EVENT_OPENS,
	CREDIT_EVENT_ANSWERED,
	CREDIT_EVENT_ADVANCE,
	CREDIT_EVENT_FITS,
	CREDIT_EVENT_RETURNS,
	CREDIT_EVENT_AGAIN,
};

struct credit_event {
	struct credit_config config;
	struct credit_state state;
	struct credit_answer answer; // the latest; of refused: the one that is taken back
	struct credit_ack ack;
	weir_u64 now_ns;
	long long left_ns;
	weir_u32 promise;
	weir_u32 bytes;
	weir_u32 gso;
	weir_u32 sent;
	weir_u32 una;
	weir_u32 number; // acknowledged
	weir_u32 pacing;
	weir_u32 longest;
	weir_u32 turn;
	weir_u32 side;
	weir_u32 syn;
	weir_u32 opener;
	weir_u32 begins;
	weir_u32 completes;
	weir_u32 seq;
	weir_u32 others;
	weir_u32 mark; // what an end remembers of its request
	weir_u32 held;
	weir_u32 event;
	weir_u32 zero;
	weir_u64 result;
};

// The answer to data: the turn, in bit 8 whether it begins one, and from bit 16 on the longest segment.
WEIR_INLINE weir_u64 credit_event_turn(const struct credit_event *e)
{
	weir_u32 segment = credit_segment_of(e->bytes, e->gso);
	weir_u16 longest = credit_longest((weir_u16)e->longest, segment);

	return (weir_u64)longest << 16 | (weir_u64)credit_begins((weir_u8)e->turn, e->side & 1) << 8 |
	       credit_turn(e->side & 1, e->bytes, segment, longest);
}

// The questions about a segment.
WEIR_INLINE int credit_asked(struct credit_event *e)
{
	switch (e->event) {
	case CREDIT_EVENT_CONCERNS:
		e->result = credit_concerns(&e->ack);
		return 0;
	case CREDIT_EVENT_TURN:
		e->result = credit_event_turn(e);
		return 0;
	case CREDIT_EVENT_OPENS:
		e->result = credit_opens(e->syn != 0, e->opener != 0, e->begins != 0, e->completes != 0, e->sent, e->number);
		return 0;
	case CREDIT_EVENT_ANSWERED:
		e->result = credit_answered(e->opener != 0, (weir_u8)e->turn, e->side & 1);
		return 0;
	case CREDIT_EVENT_ADVANCE:
		e->result = credit_advance(e->una, e->number);
		return 0;
	case CREDIT_EVENT_AGAIN:
		e->result = credit_was_acknowledged(e->seq, e->una);
		return 0;
	case CREDIT_EVENT_FITS:
		e->result = credit_fits(e->seq, e->sent, e->number, e->others);
		return 0;
	}
	return 1;
}

WEIR_INLINE int credit_run(struct credit_event *e)
{
	weir_u32 mark;

	e->result = 0;
	flight_until(&e->state.flight, e->event == CREDIT_EVENT_ACKNOWLEDGE ? e->ack.now_ns : e->now_ns);
	switch (e->event) {
	case CREDIT_EVENT_ACKNOWLEDGE:
		e->ack.left_ns = e->left_ns;
		e->ack.life = credit_life(&e->config, e->left_ns);
		e->result = credit_acknowledges(&e->config, &e->state, &e->ack, &e->answer);
		return 0;
	case CREDIT_EVENT_REST:
		e->result = credit_rest(&e->config, &e->state, &e->ack, e->promise, &e->answer);
		return 0;
	case CREDIT_EVENT_USED:
		credit_used(&e->config, &e->state, e->now_ns, e->promise, e->bytes,
			    credit_life(&e->config, e->left_ns) | (e->opener ? CREDIT_OPENERS : 0), e->mark);
		return 0;
	case CREDIT_EVENT_RETURNS:
		credit_returns(&e->config, &e->state, e->now_ns, e->bytes, e->promise, e->left_ns, e->held != 0, &mark);
		e->result = mark;
		return 0;
	case CREDIT_EVENT_COUNTS_OTHER:
		e->result = credit_counts_other(&e->state, e->pacing, e->now_ns);
		return 0;
	case CREDIT_EVENT_OTHER:
		credit_other(&e->config, &e->state, e->now_ns, e->bytes);
		return 0;
	case CREDIT_EVENT_REFUSED:
		credit_refused(&e->config, &e->state, e->now_ns, &e->answer);
		return 0;
	}
	return credit_asked(e);
}

#endif
