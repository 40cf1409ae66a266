// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A port counts the directions that are its flows in one of three ways:
//
//   seats            active: a direction that sent data lately
//   open handshakes  opening: beside the seats, what a SYN-ACK is held to
//   register         handshake: opened and not closed, as the paper counts (FQ-9)
#ifndef WEIR_BPF_SEATS_H
#define WEIR_BPF_SEATS_H

#include "flows.h"
#include "port.h"

// The law learns now, and not with the next tick, that a port has another number of flows: what the
// newcomer is granted first must be its share. Wakes the timer.
__noinline int port_recount(__u32 id)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct control *control = control_of();
	struct port *port = port_of(id);
	__u64 now = bpf_ktime_get_ns();
	struct turn turn;
	__u32 flows;
	int start;

	if (!config || !control || !port)
		return 0;
	turn_begins(&turn, id);
	bpf_spin_lock(&port->lock);
	start = !port->running;
	if (start) {
		port->ticked_ns = now;
		port->epoch_began_ns = now;
		port->data_ns = now;
	}
	flows = port_flows(port);
	fairq_flows(&config->law, &port->law, now, flows);
	turn_calls(&turn, LAW_FLOWS, port, now, flows);
	port_grant(control, config, port, now, 0, &turn);
	port->running |= port->law.flows != 0;
	start = start && port->running;
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	if (port_holds(config, port))
		port_hold(id, 0);
	if (start)
		port_start_timer(id, config->law.tick_ns);
	return 0;
}

// Counts a direction where it now sends: seats it in the port's present epoch.
__noinline int seat_take(struct connection *c, __u32 side, __u32 id)
{
	struct port *port = port_of(id), *left;
	__u64 old, new;
	int counted = 0;

	if (!c || !port)
		return 0;
	old = c->end[side & 1].seat;
	new = seat_at(id, port->epoch);
	if (old == new || __sync_val_compare_and_swap(&c->end[side & 1].seat, old, new) != old)
		return 0;
	__sync_fetch_and_add(&port->wheel[new & (FLOWS_WHEEL - 1)], 1);
	if (old) {
		left = port_of((old >> 48) - 1);
		if (left && seat_is_live(left, old)) {
			__sync_fetch_and_add(&left->wheel[old & (FLOWS_WHEEL - 1)], -1);
			counted = left == port;
		}
	}
	if (!counted && count != COUNT_HANDSHAKE)
		port_recount(id);
	return 0;
}

// Counts a direction no more.
__noinline int seat_leave(struct connection *c, __u32 side)
{
	struct port *port;
	__u64 old;

	if (!c)
		return 0;
	old = __sync_lock_test_and_set(&c->end[side & 1].seat, 0);
	if (!old)
		return 0;
	port = port_of((old >> 48) - 1);
	if (port && seat_is_live(port, old))
		__sync_fetch_and_add(&port->wheel[old & (FLOWS_WHEEL - 1)], -1);
	return 0;
}

// ---- open handshakes ----
//
// count: opening. A connection's SYN-ACK has passed, and nothing behind it. Both of its directions count at their
// ports until the handshake is over, and no longer than a flow counts that sends nothing. SYN-ACKs are held to the
// share that would be left if all open handshakes became flows. Nobody else is: half-open connections, however many,
// take nothing from flows that send.

// Whether the epoch of a registration still counts.
static __always_inline int opening_is_live(const struct port *port, __u32 registration)
{
	return (__u32)port->epoch + 1 - registration < FLOWS_LIVE;
}

// The directions of open handshakes. May be one off, as port_flows.
static __always_inline __u32 port_openings(const struct port *port)
{
	__u32 openings = 0;

	for (__u32 i = 0; i < FLOWS_LIVE; i++)
		openings += port->opening[(port->epoch - i) & (FLOWS_WHEEL - 1)];
	return openings > FAIRQ_FLOWS_MAX ? 0 : openings;
}

// A direction's handshake is over.
static __always_inline void opening_leave(struct connection *c, __u32 side)
{
	__u32 registration = __sync_lock_test_and_set(&c->end[side & 1].registration, 0);
	struct port *port;

	if (!registration)
		return;
	port = port_of(c->end[side & 1].registered_at);
	if (port && opening_is_live(port, registration))
		__sync_fetch_and_add(&port->opening[(registration - 1) & (FLOWS_WHEEL - 1)], -1);
}

static __always_inline void opening_take(struct connection *c, __u32 side, __u64 now)
{
	__u32 id = (__u32)c->end[side & 1].port - 1, registration;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);

	if (!config || !port)
		return;
	opening_leave(c, side); // sent again: it counts anew
	bpf_spin_lock(&port->lock);
	port_turn(config, port, now);
	registration = (__u32)port->epoch + 1;
	__sync_fetch_and_add(&port->opening[port->epoch & (FLOWS_WHEEL - 1)], 1);
	bpf_spin_unlock(&port->lock);
	c->end[side & 1].registered_at = id;
	c->end[side & 1].registration = registration;
}

// A SYN-ACK passes. Where the SYN went another way, so will the data.
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
	opening_leave(c, 0);
	opening_leave(c, 1);
	return 0;
}

// Whether a port holds SYN-ACKs to the share beside open handshakes: where its law alone grants.
static __always_inline int port_holds_opening(const struct control *control, const struct port_config *config,
					      const struct port *port, __u64 now)
{
	return control_is_live(control, now) && !config->releasing &&
	       !(config->hold | port->hold | port->easing) && (port->enforced || !port->running);
}

// count: handshake. Enters a direction in the register of the port that it leaves by, once; again if the
// register was emptied since (it forgets flows that send nothing for a second, and this one sends again).
__noinline int register_enter(struct connection *c, __u32 side)
{
	struct end *e;
	struct port *port;
	__u32 id;

	if (!c)
		return 0;
	e = &c->end[side & 1];
	id = (__u32)e->port - 1;
	port = port_of(id);
	if (!port || (e->registration && e->registration == port->generation))
		return 0;
	bpf_spin_lock(&port->lock);
	e->registration = port->generation;
	e->registered_at = id;
	port->registered++;
	bpf_spin_unlock(&port->lock);
	port_recount(id);
	return 0;
}

// count: handshake. Takes it out again; a direction that is out already is left alone (FQ-9).
__noinline int register_leave(struct connection *c, __u32 side)
{
	struct port *port;
	__u32 id, registration;

	if (!c)
		return 0;
	registration = __sync_lock_test_and_set(&c->end[side & 1].registration, 0);
	id = c->end[side & 1].registered_at;
	port = port_of(id);
	if (!registration || !port)
		return 0;
	bpf_spin_lock(&port->lock);
	if (registration == port->generation && port->registered)
		port->registered--;
	bpf_spin_unlock(&port->lock);
	port_recount(id);
	return 0;
}

// A direction ends: its FIN left by the port of its data (FQ-8), or the connection was reset.
static __always_inline void direction_ends(struct connection *c, __u32 side)
{
	seat_leave(c, side);
	if (count == COUNT_HANDSHAKE)
		register_leave(c, side);
}

#endif
