// The ports of one switch in the memory of a process, as the world of core/fairq: of a switch of the simulator, or of
// the replay of a trace.
#ifndef WEIR_NATIVE_FAIRQ_WORLD_H
#define WEIR_NATIVE_FAIRQ_WORLD_H

#include <stdlib.h>
#define WEIR_PORT(world, id) native_port(world, id)
#define WEIR_SPAN unsigned long long
#include "../core/types.h"
struct weir_world;
struct port;
WEIR_INLINE struct port *native_port(struct weir_world *world, weir_u32 id);
#include "../core/fairq/ack.h"
#include "../core/fairq/credit_ack.h"
#include "../core/fairq/credit_turn.h"
#include "../core/fairq/edge.h"
#include "../core/fairq/release.h"
#include "../core/fairq/slots.h"

struct native_port {
	struct port port;
	weir_u64 here; // a direction in this slot changes nothing
};

struct native_entry {
	struct native_port at;
	struct port_config config;
	struct credit_config credit;
	struct credit_state credits;
	weir_u32 id;
	weir_u8 count; // enum count_mode
};

// One piece of memory without pointers: cgo checks each pointer in every call.
struct weir_world {
	weir_u32 n;
	struct edge_config edge;
	weir_u8 count; // enum count_mode
	struct native_entry entries[]; // n
};

enum { NATIVE_ENTRIES = __builtin_offsetof(struct weir_world, entries) };

WEIR_INLINE struct port *native_port(struct weir_world *w, weir_u32 id)
{
	return id < w->n ? &w->entries[id].at.port : 0;
}

// The steps that follow each event at a port.
WEIR_INLINE void native_followed(struct native_entry *s, weir_u64 gap_ns)
{
	if (port_must_limit(&s->config, &s->at.port))
		port_limited(&s->config, &s->at.port, gap_ns);
	s->at.here = slot_at(s->id, s->at.port.epoch);
}

#endif
