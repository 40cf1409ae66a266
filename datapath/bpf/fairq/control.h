// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Programs that user space runs: they start a port's timer, stop it, and clear a port's state. (The sweep is in
// sweep.h.)
#ifndef WEIR_BPF_CONTROL_H
#define WEIR_BPF_CONTROL_H

#include "flows.h"
#include "port.h"

struct port_arg {
	__u32 id;
};

// Starts the port's timer. If the map already has one, it runs this program's code from now on.
SEC("syscall")
int weir_fairq_arm(struct port_arg *arg)
{
	__u32 id = arg->id;
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);
	long err;

	if (!slot)
		return 1;
	err = bpf_timer_init(&slot->timer, &timers, CLOCK_MONOTONIC);
	if (err && err != -EBUSY) // EBUSY: a timer exists, and is taken over
		return err;
	err = bpf_timer_set_callback(&slot->timer, port_timer);
	return err ? err : bpf_timer_start(&slot->timer, 0, 0);
}

SEC("syscall")
int weir_fairq_disarm(struct port_arg *arg)
{
	__u32 id = arg->id;
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);

	return slot ? bpf_timer_cancel(&slot->timer) : 1;
}

struct port_clear_arg {
	__u32 id;
	__u32 all; // 1: the id belongs to another port from now on
};

// Clears the grants of a port whose timer has stopped: connections may still refer to the port. With `all` it clears
// the rest of the state, too, except the counts from which connections of the former port still subtract. User space
// never writes a port itself: it would overwrite counts that packets have changed since it read them.
SEC("syscall")
int weir_fairq_clear(struct port_clear_arg *arg)
{
	__u32 id = arg->id;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct turn turn;

	if (!port || !config)
		return 1;
	turn_begins(&turn, id, TURN_STOPPED);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, 0, 0, 0, 0);
	port_stopped(port);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_reported(&turn);
	if (!arg->all)
		return 0;
	turn_begins(&turn, id, TURN_REUSED);
	port_reused(port);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, 0, 0, 0, 0);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_reported(&turn);
	return 0;
}

#endif
