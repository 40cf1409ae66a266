// The decision about the window of an ACK.
#ifndef WEIR_NATIVE_FAIRQ_ACKS_H
#define WEIR_NATIVE_FAIRQ_ACKS_H

#include "fairq_world.h"

// An ACK, and the end whose window limits it.
struct native_ack {
	weir_u64 grant_q8; // of the port; the caller keeps the answer to the same question
	weir_u32 ack;
	weir_u32 bucket;
	weir_u16 field;
	weir_u16 mss;
	weir_u8 shift;
	weir_u8 announced;
	weir_u8 unified; // 1: converted; the receiver uses the next field as the shift
	weir_u8 syn;
	weir_u8 shrink;
	weir_u8 apart; // 1: its data takes another of the port's paths
	weir_u16 gso;
	weir_u8 gone; // 1: user space has gone
	weir_u8 zero[3];
	weir_u32 promise; // of the data's sender, bytes; 0: none
	weir_u32 credit;  // 1: the program with promises and credits
};

#define NATIVE_GOVERNED (1ull << 32)
#define NATIVE_LEFT (1ull << 33)
#define NATIVE_ADVERTISES (1ull << 34)
#define NATIVE_LAW 48

// The window that a port grants an ACK.
static void native_granted(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask,
			   struct granted *granted)
{
	struct port *port = native_port(w, id);
	struct port_config *config = port ? &w->entries[id].config : 0;
	int here = !ask->apart, live = !ask->gone;

	if (!port)
		return;
	ack_granted(config, port, ask->bucket, ack_opens(config, port, w->count, ask->syn, here, &now_ns, &live), here, now_ns,
		    granted);
	if (ask->credit)
		grant_promised(port, ask->bucket, credit_limit(port, ask->promise), granted);
}

static weir_u64 native_grants(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask)
{
	struct granted granted = {0};

	native_granted(w, id, now_ns, ask, &granted);
	return granted.window_q8;
}

static weir_u64 native_rewrite(struct weir_world *w, weir_u32 id, const struct native_ack *ask,
			       const struct granted *granted, struct window_edge *edge)
{
	weir_u16 own = ask->unified && !ask->syn ? window_convert(ask->field, ask->shift, ask->announced) : ask->field;
	struct window_ack a = {
		.ack = ask->ack, .field = own, .shift = ask->unified ? ask->announced : ask->shift,
		.syn = ask->syn, .shrink = ask->shrink,
	};
	weir_u16 limited = own, field = own;

	if (ack_is_limitable(granted))
		field = ack_limit(&a, &w->entries[id].config, granted, ask->mss, ask->gso,
				  ask->shrink == WINDOW_SHRINK_AVOID, edge, &limited);
	return (granted->window_q8 ? NATIVE_GOVERNED : 0) | (weir_u64)limited << NATIVE_LAW | (weir_u64)own << 16 | field;
}

// The fields of an ACK: in the low 16 bits the one it leaves with, then the one it would leave with if no port granted
// a window. One bit says whether a port does. The top 16 bits are the field of the port's window.
static weir_u64 native_window(struct weir_world *w, weir_u32 id, weir_u64 now_ns, const struct native_ack *ask,
			      struct window_edge *edge)
{
	struct granted granted = {0};

	native_granted(w, id, now_ns, ask, &granted);
	return native_rewrite(w, id, ask, &granted, edge);
}

// The same in edge mode, for all ACKs but SYN-ACKs. Two more bits: the ACK is left to the edge, or it advertises.
static weir_u64 native_advertise(struct weir_world *w, weir_u32 id, weir_u32 clock, int flagged, int may_leave,
				 const struct native_ack *ask, struct end *e, struct window_edge *edge)
{
	struct edge_ack a = {.now = clock, .field = ask->field, .shift = ask->shift, .flagged = flagged != 0};
	struct granted granted = {0};
	weir_u64 answer;
	int due;

	native_granted(w, id, 0, ask, &granted);
	a.grant_q8 = granted.window_q8;
	due = edge_is_due(&w->edge, e, &a);
	if (may_leave && !due && e->edge_advertised && !ask->apart && id < w->n)
		return NATIVE_LEFT | (weir_u64)ask->field << 16 | ask->field;
	answer = native_rewrite(w, id, ask, &granted, edge);
	if (!due || !grant_advertises(native_port(w, id), ask->bucket, &granted))
		return answer;
	return NATIVE_ADVERTISES | (answer & ~0xffffull) |
	       edge_advertises(&w->edge, e, &a, (weir_u16)answer);
}

#endif
