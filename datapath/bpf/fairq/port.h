// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The life of a port: its timer samples its queue for the law, its flows are counted, and its
// windows are let go when user space is gone.
//
// A port's timer runs while the port has flows, and stops by itself when it has none. It is dear: in a
// virtual machine 25 us each time, a thousand times what a sample by a passing packet costs. So it rests
// where nothing is lost by it: for a period where the queue is empty, and longer where packets come so
// close that they keep sampling in its place (fairq_packet_may_sample: it is more than 2T late).
//
// Functions here that are neither static nor inline are checked by the verifier once, on their own, and
// not once more for every path that leads to them: that is what keeps the program checkable.
#ifndef WEIR_BPF_PORT_H
#define WEIR_BPF_PORT_H

#include <bpf/bpf_core_read.h>
#include "flows.h"
#include "trace.h"
#include "../lib/rewrite.h"
#include "../../core/fairq/release.h"
#include "../../core/fairq/seats.h"

#define PASSIVE_TICK_NS 20000000ull // of a port with flows whose windows are let go
#define NAP_MAX_NS 4000000u         // packets may end at any time; a gap over 5 ms is one too long
#define NETREG_REGISTERED 1

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

struct timer_slot {
	struct bpf_timer timer;
};

// A map of its own: an update of an element that holds a timer frees the timer.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct timer_slot);
} timers SEC(".maps");

static int port_timer(void *map, __u32 *id, struct timer_slot *slot);

// ---- what is granted ----

static __always_inline int control_is_live(const struct control *control, __u64 now)
{
	return lease_is_live(control->releasing, control->heartbeat_ns, control->lease_ns, now);
}

// The same of the switch's control entry.
static __always_inline int is_live(__u64 now)
{
	struct control *control = control_of();

	return control && control_is_live(control, now);
}

// What ACKs are held to in another mode, or on the way to one. That may lower the grant at once, but not
// raise it: senders would burst.
__noinline int port_hold(__u32 id, __u64 gap)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct turn turn;

	if (!config || !port)
		return 0;
	turn_begins(&turn, id, TURN_HELD);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, gap, 0, 0, 0);
	port_held(config, port, gap);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	return 0;
}

// Bytes waiting at the port's device, and whether it is still the port's: what a deleted device left
// behind reads as a wild backlog. The timer runs inside an RCU section: a device that is registered now
// is not freed before the timer is through.
static __always_inline int port_backlog(const struct port_config *config, const struct port *port, __u32 *backlog)
{
	struct net_device *device;
	struct Qdisc *root;

	*backlog = 0;
	if (!port->device)
		return 0;
	device = bpf_rdonly_cast((void *)port->device, bpf_core_type_id_kernel(struct net_device));
	if (device->reg_state != NETREG_REGISTERED || device->ifindex != (int)config->ifindex ||
	    device->nd_net.net->net_cookie != config->netns_cookie)
		return 0;
	root = device->qdisc;
	*backlog = root ? root->qstats.backlog : 0;
	return 1;
}

// How long the timer rests until its next tick.
static __always_inline __u32 port_rest(const struct port_config *config, struct port *port, __u64 now, __u32 backlog)
{
	__u32 tick = config->law.tick_ns, period = fairq_period(&config->law);

	if ((__s64)(now - port->looked_ns) < 4ll * tick) { // or packets stopped coming close
		port->nap_ns = port->nap_ns < NAP_MAX_NS / 2 ? 2 * port->nap_ns : NAP_MAX_NS;
		return port->nap_ns > tick ? port->nap_ns : tick;
	}
	port->nap_ns = tick;
	if (backlog || config->law.variant != FAIRQ_VARIANT_ALG1)
		return tick;
	if (period > NAP_MAX_NS)
		period = NAP_MAX_NS;
	return period > tick ? period : tick;
}

// How long it rests in the mode that the port is in. 0: until there is a flow again. Without the law flows
// are to be counted in time, and that is all.
static __always_inline __u64 port_next(const struct port_config *config, struct port *port, __u64 now, __u32 backlog)
{
	__u64 passive = config->epoch_ns < PASSIVE_TICK_NS && port->enforced ? config->epoch_ns : PASSIVE_TICK_NS;

	if (!port->running)
		return 0;
	if (port->hold == HOLD_ALL || port->hold != config->hold || port->easing || port->let_go_q8)
		return port->enforced || port->grant_q8 ? port_rest(config, port, now, backlog) : passive;
	return passive;
}

// The timer's work at a port. Gives the time to the next, 0 for none.
__noinline __u64 port_tick(__u32 id, __u32 by_packet)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct control *control = control_of();
	struct port *port = port_of(id);
	__u64 now = bpf_ktime_get_ns(), next, gap;
	__u32 backlog;
	struct turn turn;
	int alive, live;

	if (!config || !control || !port)
		return 0;
	alive = port_backlog(config, port, &backlog);
	live = control_is_live(control, now);
	turn_begins(&turn, id, TURN_TICKED);
	bpf_spin_lock(&port->lock);
	if (by_packet)
		port->ticks_by_packet++;
	else
		port->ticks++;
	if (!alive && port->device) {
		port->device_refused++;
		port->device = 0; // until a packet leaves by the port again
	}
	turn_hears(&turn, config, port, now, backlog, live, alive);
	gap = port_ticked(config, port, count, live, now, backlog, alive);
	next = port_next(config, port, port->ticked_ns, backlog);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	if (port_holds(config, port))
		port_hold(id, gap);
	return next;
}

static __always_inline void port_start_timer(__u32 id, __u64 after)
{
	struct timer_slot *slot = bpf_map_lookup_elem(&timers, &id);

	if (slot)
		bpf_timer_start(&slot->timer, after, 0);
}

static int port_timer(void *map, __u32 *id, struct timer_slot *slot)
{
	__u64 next = port_tick(*id, 0);

	if (next)
		bpf_timer_start(&slot->timer, next, 0);
	return 0;
}

#endif
