// The steps of the events, one by one, as the kernel's program takes them. The replay of a trace calls them (lawtrace).
#ifndef WEIR_NATIVE_FAIRQ_TURNS_H
#define WEIR_NATIVE_FAIRQ_TURNS_H

#include "fairq_world.h"

static weir_u64 native_ticked(struct weir_world *w, weir_u32 id, weir_u64 now_ns, weir_u32 backlog_bytes, int live,
			      int readable)
{
	return port_ticked(&w->entries[id].config, &w->entries[id].at.port, w->count, live, now_ns, backlog_bytes, readable);
}

static int native_recounted(struct weir_world *w, weir_u32 id, weir_u64 now_ns, int live)
{
	return port_recounted(&w->entries[id].config, &w->entries[id].at.port, w->count, live, now_ns);
}

static void native_limited(struct weir_world *w, weir_u32 id, weir_u64 gap_ns)
{
	port_limited(&w->entries[id].config, &w->entries[id].at.port, gap_ns);
}

static void native_paces(struct weir_world *w, weir_u32 id, int paces)
{
	port_paces(&w->entries[id].config, &w->entries[id].at.port, paces);
}

static void native_stopped(struct weir_world *w, weir_u32 id) { port_stopped(&w->entries[id].at.port); }

static void native_reused(struct weir_world *w, weir_u32 id) { port_reused(&w->entries[id].at.port); }

static void native_saw_mss(struct weir_world *w, weir_u32 id, weir_u32 bytes)
{
	fairq_saw_mss(&w->entries[id].config.law, &w->entries[id].at.port.law, bytes);
}

static void native_slot_comes(struct weir_world *w, weir_u32 id, weir_u64 slot)
{
	slot_comes(&w->entries[id].at.port, slot);
}

static int native_slot_goes(struct weir_world *w, weir_u32 id, weir_u64 slot)
{
	return slot_goes(&w->entries[id].at.port, slot);
}

static int native_slot_is_new(struct weir_world *w, weir_u64 old, weir_u64 new, int counted)
{
	return slot_is_new(old, new, counted, w->count);
}

static weir_u32 native_opening_comes(struct weir_world *w, weir_u32 id, weir_u64 now_ns)
{
	return opening_comes(&w->entries[id].config, &w->entries[id].at.port, now_ns);
}

static int native_opening_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	return opening_goes(&w->entries[id].at.port, registration);
}

static weir_u32 native_register_comes(struct weir_world *w, weir_u32 id)
{
	struct end e = {0};

	register_comes(&w->entries[id].at.port, &e, id);
	return e.registration;
}

static void native_register_goes(struct weir_world *w, weir_u32 id, weir_u32 registration)
{
	register_goes(&w->entries[id].at.port, registration);
}

static weir_u32 native_floor(struct weir_world *w, weir_u32 id, weir_u32 mss, weir_u32 gso)
{
	return grant_floor(&w->entries[id].config, mss, gso);
}

#endif
