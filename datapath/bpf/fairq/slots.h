// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Applies the decisions of core/fairq/slots.h about a port's flows to the maps: looks up the port, takes its lock, and
// passes the new number of flows to its law.
#ifndef WEIR_BPF_SLOTS_H
#define WEIR_BPF_SLOTS_H

#include "flows.h"
#include "port.h"

// Passes a changed number of flows to the port's law now, before the next tick: the first grant of a new flow must be
// its share. Starts the timer if it has stopped.
__noinline int port_recount(__u32 id)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	__u64 now = bpf_ktime_get_ns();
	struct turn turn;
	int start, live;

	if (!config || !port)
		return 0;
	live = is_live(now);
	turn_begins(&turn, id, TURN_RECOUNTED);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, now, 0, live, 0);
	start = port_recounted(config, port, count, live, now);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_reported(&turn);
	if (port_must_limit(config, port))
		port_limit(id, 0);
	if (start)
		port_start_timer(id, config->law.tick_ns);
	return 0;
}

// Counts a direction at the port that it now sends by: gives it a slot in the port's present epoch.
__noinline int slot_take(struct connection *c, __u32 side, __u32 id)
{
	struct port *port = port_of(id);

	if (c && port && slots_take(THE_MAPS, &c->end[side & 1], port, id, count))
		port_recount(id);
	return 0;
}

// Ends the count of a direction: returns its slot.
__noinline int slot_leave(struct connection *c, __u32 side)
{
	if (c)
		slots_leave(THE_MAPS, &c->end[side & 1]);
	return 0;
}

// ---- open handshakes ----

static __always_inline void opening_take(struct connection *c, __u32 side, __u64 now)
{
	struct end *e = &c->end[side & 1];
	__u32 id = (__u32)e->port - 1, registration;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct count_report report;

	if (!config || !port)
		return;
	opening_leave(THE_MAPS, e); // a SYN-ACK that was sent again counts once, in the latest epoch
	count_begins(&report, id, COUNT_OPENING_COMES);
	bpf_spin_lock(&port->lock);
	registration = opening_comes(config, port, now);
	count_ends(&report, config, port, now, registration);
	bpf_spin_unlock(&port->lock);
	count_reported(&report);
	e->registered_at = id;
	e->registration = registration;
}

// Counts an open handshake at its SYN-ACK. It counts only if the SYN passed here, too: otherwise the data takes another
// path.
__noinline int connection_opens(struct connection *c)
{
	__u64 now = bpf_ktime_get_ns();

	if (!c || !c->end[0].port || !c->end[1].port)
		return 0;
	opening_take(c, 0, now);
	opening_take(c, 1, now);
	return 0;
}

__noinline int connection_opened(struct connection *c)
{
	if (!c)
		return 0;
	opening_leave(THE_MAPS, &c->end[0]);
	opening_leave(THE_MAPS, &c->end[1]);
	return 0;
}

// ---- the register ----

// Enters a direction in the register of the port that its data leaves by.
__noinline int register_enter(struct connection *c, __u32 side)
{
	struct count_report report;
	struct port *port;
	struct end *e;
	__u32 id;

	if (!c)
		return 0;
	e = &c->end[side & 1];
	id = (__u32)e->port - 1;
	port = port_of(id);
	if (!port || !register_wants(port, e))
		return 0;
	count_begins(&report, id, COUNT_REGISTER_COMES);
	bpf_spin_lock(&port->lock);
	register_comes(port, e, id);
	count_ends(&report, NULL, port, 0, e->registration);
	bpf_spin_unlock(&port->lock);
	count_reported(&report);
	port_recount(id);
	return 0;
}

// Removes a direction from the register.
__noinline int register_leave(struct connection *c, __u32 side)
{
	struct count_report report;
	struct port *port;
	__u32 id, registration;

	if (!c)
		return 0;
	registration = WEIR_SWAP(&c->end[side & 1].registration, 0);
	id = c->end[side & 1].registered_at;
	port = port_of(id);
	if (!registration || !port)
		return 0;
	count_begins(&report, id, COUNT_REGISTER_GOES);
	bpf_spin_lock(&port->lock);
	register_goes(port, registration);
	count_ends(&report, NULL, port, 0, registration);
	bpf_spin_unlock(&port->lock);
	count_reported(&report);
	port_recount(id);
	return 0;
}

// Ends a direction: its FIN left by the port of its data (FQ-8), or the connection was reset or removed.
static __always_inline void direction_ends(struct connection *c, __u32 side)
{
	slot_leave(c, side);
	if (count == COUNT_HANDSHAKE)
		register_leave(c, side);
}

#endif
