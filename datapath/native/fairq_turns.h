// The steps of the events, one by one, as the kernel's program takes them. The replay of a trace calls them (lawtrace).
#ifndef WEIR_NATIVE_FAIRQ_TURNS_H
#define WEIR_NATIVE_FAIRQ_TURNS_H

#include "fairq_world.h"

static weir_u64 native_ticked(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 backlog_bytes, int live,
			      int readable)
{
	return port_ticked(&w->slots[id].config, &w->slots[id].at.port, w->count, live, now_ns, backlog_bytes, readable);
}

static int native_recounted(struct weir_world *w, weir_u32 id, weir_u64 now_ns, int live)
{
	return port_recounted(&w->slots[id].config, &w->slots[id].at.port, w->count, live, now_ns);
}

static void native_held(struct weir_world *w, weir_u32 id, weir_u64 gap_ns)
{
	port_held(&w->slots[id].config, &w->slots[id].at.port, gap_ns);
}

static void native_stopped(struct weir_world *w, weir_u32 id) { port_stopped(&w->slots[id].at.port); }

static void native_reused(struct weir_world *w, weir_u32 id) { port_reused(&w->slots[id].at.port); }

static void native_saw_mss(struct weir_world *w, weir_u32 id, weir_u32 bytes)
{
	fairq_saw_mss(&w->slots[id].config.law, &w->slots[id].at.port.law, bytes);
}

static void native_seat_comes(struct weir_world *w, weir_u32 id, weir_u64 seat)
{
	seat_comes(&w->slots[id].at.port, seat);
}

static int native_seat_goes(struct weir_world *w, weir_u32 id, weir_u64 seat)
{
	return seat_goes(&w->slots[id].at.port, seat);
}

static int native_seat_is_new(struct weir_world *w, weir_u64 old, weir_u64 new, int counted)
{
	return seat_is_new(old, new, counted, w->count);
}

static weir_u32 native_opening_comes(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	return opening_comes(&w->slots[id].config, &w->slots[id].at.port, now_ns);
}

static int native_opening_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	return opening_goes(&w->slots[id].at.port, registration);
}

static weir_u32 native_register_comes(struct weir_world *w, weir_u32 id)
{
	struct end e = {0};

	register_comes(&w->slots[id].at.port, &e, id);
	return e.registration;
}

static void native_register_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	register_goes(&w->slots[id].at.port, registration);
}

static weir_u32 native_floor(struct weir_world *w, weir_u32 id, weir_u32 mss, weir_u32 gso)
{
	return grant_floor(&w->slots[id].config, mss, gso);
}

#endif
