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
	struct port *port = port_of(arg->id);
	__u32 *words = (__u32 *)port;

	if (!port)
		return 1;
	bpf_spin_lock(&port->lock);
	port->grant_q8 = 0;
	port->let_go_q8 = 0;
	port->running = 0;
	port->enforced = 0;
	bpf_spin_unlock(&port->lock);
	if (!arg->all)
		return 0;
	// They sit in epochs and registers that are over then.
	port->generation++;
	port->epoch += FLOWS_WHEEL;
	for (__u32 i = offsetof(struct port, running) / 4; i < sizeof(*port) / 4; i++) {
		if (i == offsetof(struct port, epoch) / 4 || i == offsetof(struct port, epoch) / 4 + 1 ||
		    i == offsetof(struct port, generation) / 4 || i == offsetof(struct port, owned) / 4)
			continue;
		words[i] = 0;
	}
	return 0;
}

#endif
