// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs that user space runs, beside the sweep (sweep.h): a port's timer is started and stopped, and a port's
// state is cleared.
#ifndef WEIR_BPF_CONTROL_H
#define WEIR_BPF_CONTROL_H

#include "flows.h"
#include "port.h"

struct port_arg {
	__u32 id;
};

// Sets the port's timer going, or makes the one that is there run this program's code from now on.
SEC("syscall")
int weir_fairq_arm(struct port_arg *arg)
{
	__u32 id = arg->id;
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);
	long err;

	if (!slot)
		return 1;
	err = bpf_timer_init(&slot->timer, &timers, CLOCK_MONOTONIC);
	if (err && err != -EBUSY) // EBUSY: there is one, and it is taken over
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
	__u32 all; // 1: the number is another port's from now on
};

// Clears what a port grants, once its timer has stopped: connections may still name it. With all it also clears
// the rest of its state but for what connections of the former port still take from. User space never writes a port
// itself: it would write back counts that packets changed since it read them.
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
	turn_told(&turn);
	if (!arg->all)
		return 0;
	turn_begins(&turn, id, TURN_REUSED);
	port_reused(port);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, 0, 0, 0, 0);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	return 0;
}

#endif
