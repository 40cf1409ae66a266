// Promises and credits of a simulated switch.
#ifndef WEIR_NATIVE_FAIRQ_CREDIT_H
#define WEIR_NATIVE_FAIRQ_CREDIT_H

#include "fairq_world.h"

static void native_credit_begins(struct weir_world *w, weir_u32 id, const struct credit_config *config)
{
	w->entries[id].credit = *config;
	w->entries[id].credits = (struct credit_state){0};
}

static weir_u32 native_credit_acknowledges(struct weir_world *w, weir_u32 id, struct credit_ack *ack,
					   long long left_ns, struct credit_answer *answer)
{
	struct native_entry *s = &w->entries[id];
	weir_u32 promise;

	ack->pacing = (weir_u8)port_must_pace(&s->config, &s->at.port, 1);
	port_paces(&s->config, &s->at.port, ack->pacing);
	ack->life = credit_life(&s->credit, left_ns);
	*answer = (struct credit_answer){.leaves_ns = ack->now_ns, .allowed = ack->allowed};
	if (!ack->opens && !ack->promise && !ack->pacing && !ack->behind && !ack->answered)
		return 0;
	promise = credit_acknowledges(&s->credit, &s->credits, ack, answer);
	return !promise && credit_rests(&s->credit, ack) ? credit_rest(&s->credit, &s->credits, ack, answer) : promise;
}

static void native_credit_refused(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct credit_answer *answer)
{
	credit_refused(&w->entries[id].credit, &w->entries[id].credits, now_ns, answer);
}

// left_ns: until the promise ends. life: further bits of enum credit_life.
static void native_credit_used(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 promise, weir_u32 payload_bytes,
			       long long left_ns, weir_u8 life)
{
	struct native_entry *s = &w->entries[id];

	credit_used(&s->credit, &s->credits, now_ns, promise, payload_bytes, credit_life(&s->credit, left_ns) | life);
}

static void native_credit_other(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 frame_bytes)
{
	credit_other(&w->entries[id].credit, &w->entries[id].credits, now_ns, frame_bytes);
}

#endif
