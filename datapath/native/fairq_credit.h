// Promises and credits of a simulated switch.
#ifndef WEIR_NATIVE_FAIRQ_CREDIT_H
#define WEIR_NATIVE_FAIRQ_CREDIT_H

#include "fairq_world.h"

// An acknowledgement, and what is known of its connection.
struct native_credit_segment {
	weir_u32 ack;
	weir_u32 sent; // sequence number behind the furthest data of the other end
	weir_u32 una;  // the furthest acknowledgement before it
	weir_u32 advance_bytes; // answer: credit_advance
	weir_u8 syn;
	weir_u8 opener;    // 1: its sender opened the connection
	weir_u8 begins;    // 1: its data begins a turn
	weir_u8 completes; // 1: it completes the handshake, and has no data
	weir_u8 turn;      // enum credit_turn, after its data
	weir_u8 side;      // that sends it: 0 or 1
	weir_u8 opens;     // answer: credit_opens
	weir_u8 answered;  // answer: credit_answered
};

enum {
	NATIVE_CREDIT_BEGINS = 1 << 8,
	NATIVE_CREDIT_LONGEST = 16,
};

static void native_credit_begins(struct weir_world *w, weir_u32 id, const struct credit_config *config)
{
	w->entries[id].credit = *config;
	w->entries[id].credits = (struct credit_state){0};
}

// Data of a side. Returns the turn after it; with NATIVE_CREDIT_BEGINS if it begins one, and above NATIVE_CREDIT_LONGEST the
// longest segment of its end.
static weir_u32 native_credit_turn(weir_u8 turn, weir_u32 side, weir_u32 payload_bytes, weir_u32 gso_bytes,
				   weir_u16 longest_bytes)
{
	weir_u32 segment = credit_segment_of(payload_bytes, gso_bytes), begins = credit_begins(turn, side);

	longest_bytes = credit_longest(longest_bytes, segment);
	return (weir_u32)longest_bytes << NATIVE_CREDIT_LONGEST | (begins ? NATIVE_CREDIT_BEGINS : 0) |
	       credit_turn(side, payload_bytes, segment, longest_bytes);
}

static int native_credit_was_acknowledged(weir_u32 end, weir_u32 una) { return credit_was_acknowledged(end, una); }

static void native_credit_asks(struct native_credit_segment *s)
{
	s->advance_bytes = credit_advance(s->una, s->ack);
	s->opens = credit_opens(s->syn, s->opener, s->begins, s->completes, s->sent, s->ack);
	s->answered = (weir_u8)credit_answered(s->opener, s->turn, s->side);
}

static int native_credit_fits(weir_u32 seq, weir_u32 sent, weir_u32 ack, weir_u32 others)
{
	return credit_fits(seq, sent, ack, others);
}

static void native_credit_stray(struct credit_run *run, weir_u32 seq, weir_u32 payload_bytes) { credit_stray(run, seq, payload_bytes); }

static int native_credit_agrees(const struct credit_run *run, weir_u32 ack) { return credit_agrees(run, ack); }

static int native_credit_ends_at(weir_u32 fin, weir_u32 sent) { return credit_ends_at(fin, sent); }

static int native_credit_concerns(const struct credit_ack *ack) { return credit_concerns(ack); }

static int native_must_pace(struct weir_world *w, weir_u32 id, int live)
{
	return port_must_pace(&w->entries[id].config, &w->entries[id].at.port, live);
}

// left_ns: until the promise ends.
static weir_u32 native_credit_acknowledges(struct weir_world *w, weir_u32 id, struct credit_ack *ack, long long left_ns,
					   struct credit_answer *answer)
{
	struct native_entry *s = &w->entries[id];

	flight_until(&s->credits.flight, ack->now_ns);
	ack->left_ns = left_ns;
	ack->life = credit_life(&s->credit, left_ns);
	return credit_acknowledges(&s->credit, &s->credits, ack, answer);
}

static weir_u32 native_credit_rest(struct weir_world *w, weir_u32 id, const struct credit_ack *ack, weir_u32 promise,
				   struct credit_answer *answer)
{
	return credit_rest(&w->entries[id].credit, &w->entries[id].credits, ack, promise, answer);
}

static void native_credit_refused(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct credit_answer *answer)
{
	credit_refused(&w->entries[id].credit, &w->entries[id].credits, now_ns, answer);
}

// left_ns: until the promise ends. life: further bits of enum credit_life.
static void native_credit_used(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 promise, weir_u32 payload_bytes,
			       long long left_ns, weir_u8 life, weir_u32 released)
{
	struct native_entry *s = &w->entries[id];

	flight_until(&s->credits.flight, now_ns);
	credit_used(&s->credit, &s->credits, now_ns, promise, payload_bytes, credit_life(&s->credit, left_ns) | life, released);
}

static weir_u64 native_credit_live_ns(struct weir_world *w, weir_u32 id) { return credit_live_ns(&w->entries[id].credit); }

static weir_u64 native_credit_step_ns(struct weir_world *w, weir_u32 id)
{
	return credit_step_ns(&w->entries[id].credit);
}

static void native_flight_until(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	flight_until(&w->entries[id].credits.flight, now_ns);
}

// Returns what the end of a server remembers; FLIGHT_HELD: its request is held.
static weir_u32 native_credit_returns(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 backlog_bytes, weir_u32 promise,
				      long long left_ns, int held)
{
	struct native_entry *s = &w->entries[id];
	weir_u32 released;

	flight_until(&s->credits.flight, now_ns);
	credit_returns(&s->credit, &s->credits, now_ns, backlog_bytes, promise, left_ns, held, &released);
	return released;
}

static int native_credit_counts_other(struct weir_world *w, weir_u32 id, weir_u32 pacing, weir_u64 now_ns)
{
	return credit_counts_other(&w->entries[id].credits, pacing, now_ns);
}

static void native_credit_other(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 frame_bytes)
{
	credit_other(&w->entries[id].credit, &w->entries[id].credits, now_ns, frame_bytes);
}

#endif
