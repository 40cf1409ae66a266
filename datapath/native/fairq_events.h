// The events at the ports of a simulated switch. One function takes all steps of an event.
#ifndef WEIR_NATIVE_FAIRQ_EVENTS_H
#define WEIR_NATIVE_FAIRQ_EVENTS_H

#include "fairq_world.h"

static struct weir_world *native_begin(weir_u32 n, weir_u8 count)
{
	// cgo's calloc does not return without memory; this one may
	struct weir_world *w = calloc(1, sizeof(*w) + n * sizeof(w->entries[0]));

	if (!w)
		return 0;
	w->n = n;
	w->count = count;
	for (weir_u32 id = 0; id < n; id++) {
		w->entries[id].id = id;
		w->entries[id].count = count;
	}
	return w;
}

static void native_end(struct weir_world *w) { free(w); }

static void native_configured(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	fairq_reset(&w->entries[id].config.law, &w->entries[id].at.port.law, now_ns);
	w->entries[id].at.port.generation = 1;
	w->entries[id].at.here = slot_at(id, 0);
}

static int native_recount(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	struct native_entry *s = &w->entries[id];
	int start = port_recounted(&s->config, &s->at.port, w->count, 1, now_ns);

	native_followed(s, 0);
	return start;
}

static void native_tick(struct native_port *port, weir_u64 now_ns, weir_u32 backlog_bytes)
{
	struct native_entry *s = (struct native_entry *)port; // its first member

	native_followed(s, port_ticked(&s->config, &s->at.port, s->count, 1, now_ns, backlog_bytes, 1));
}

static int native_may_sample(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	return fairq_packet_may_sample(&w->entries[id].config.law, &w->entries[id].at.port.law, now_ns);
}

// A direction enters its slot at its port. Result 1: the caller must start the port's timer.
static int native_enters(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 id = (weir_u32)e->port - 1;
	struct port *port = native_port(w, id);

	if (!port)
		return 0;
	if (w->count != COUNT_HANDSHAKE)
		return slots_take(w, e, port, id, w->count) ? native_recount(w, id, now_ns) : 0;
	if (!register_wants(port, e))
		return 0;
	register_comes(port, e, id);
	return native_recount(w, id, now_ns);
}

// Data up to `behind` leaves by a port.
static void native_sends(struct weir_world *w, struct end *e, weir_u32 id, weir_u32 behind, weir_u64 now_ns)
{
	struct port *port = &w->entries[id].at.port;

	end_sends(e, behind);
	if (slots_take(w, e, port, id, w->count))
		native_recount(w, id, now_ns);
	if (w->count == COUNT_HANDSHAKE && register_lapsed(port, e, id)) {
		register_comes(port, e, id);
		native_recount(w, id, now_ns);
	}
}

// Both ends of a connection agree on it. Bit i of the result: the caller must start the timer of end i's port.
static int native_agreed(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	int start = 0;

	for (int i = 0; i < 2; i++) {
		weir_u32 id = (weir_u32)e[i].port - 1;
		struct port *port = native_port(w, id);

		if (w->count == COUNT_OPENING)
			opening_leave(w, &e[i]);
		if (!port)
			continue;
		fairq_saw_mss(&w->entries[id].config.law, &port->law, e[!i].mss);
		start |= native_enters(w, &e[i], now_ns) << i;
	}
	return start;
}

static void native_opened(struct weir_world *w, struct end *e)
{
	opening_leave(w, e);
}

static void native_opens(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 id = (weir_u32)e->port - 1;
	struct port *port = native_port(w, id);

	if (!port)
		return;
	opening_leave(w, e); // sent again: it is counted afresh
	e->registered_at = (weir_u16)id;
	e->registration = opening_comes(&w->entries[id].config, port, now_ns);
	w->entries[id].at.here = slot_at(id, port->epoch);
}

// A direction no longer counts.
static int native_leaves(struct weir_world *w, struct end *e, weir_u64 now_ns)
{
	weir_u32 registration;
	struct port *port;

	slots_leave(w, e);
	if (w->count != COUNT_HANDSHAKE)
		return 0;
	registration = WEIR_SWAP(&e->registration, 0);
	port = native_port(w, e->registered_at);
	if (!registration || !port)
		return 0;
	register_goes(port, registration);
	return native_recount(w, e->registered_at, now_ns);
}

// A FIN up to `behind` leaves. The first FIN ends its direction.
static int native_finishes(struct weir_world *w, struct end *e, weir_u32 behind, weir_u64 now_ns)
{
	return end_finishes(e, behind) ? native_leaves(w, e, now_ns) : 0;
}

static int native_may_assume(const struct end *receiver, const struct end *sender)
{
	return end_may_assume(receiver, sender);
}

#endif
