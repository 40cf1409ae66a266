// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A port's timer: it samples the queue for the law, counts the flows, and releases the windows when the lease of user
// space expires.
//
// The timer runs while the port has flows, and stops by itself when it has none. It is expensive: 25 us each time in a
// virtual machine, a thousand times the cost of a sample by a passing packet. So it rests where that loses nothing. With
// an empty queue it rests for a period. It rests longer while packets are so frequent that they sample in its place
// (fairq_packet_may_sample: the timer is more than 2T late), or once a period while the queue is empty.
//
// The verifier checks a function that is neither static nor inline once, on its own, and not again on every path that
// calls it. Without that the program would be too large to check. It knows nothing about what such a function returns, so
// it checks the rest of the caller once, too, and not for each result that it can foresee (is_live, port_backlog).
#ifndef WEIR_BPF_PORT_H
#define WEIR_BPF_PORT_H

#include <bpf/bpf_core_read.h>
#include "flows.h"
#include "trace.h"
#include "../lib/rewrite.h"
#include "../../core/fairq/release.h"
#include "../../core/fairq/slots.h"

#define PASSIVE_TICK_NS 20000000ull // of a port with flows whose windows are released
#define NAP_MAX_NS 4000000u         // longest rest: packets may stop at any time, and a gap must stay below 5 ms
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

// ---- grants ----

static __always_inline int control_is_live(const struct control *control, __u64 now)
{
	return lease_is_live(control->releasing, control->heartbeat_ns, control->lease_ns, now);
}

// Reports whether the lease of user space is valid.
__noinline int is_live(__u64 now)
{
	struct control *control = control_of();

	return control && control_is_live(control, now);
}

// Sets the grant of a port in a mode other than ENFORCE_ALL, or in a change of modes. The grant may fall at once, but rises
// gradually: otherwise senders would burst.
__noinline int port_limit(__u32 id, __u64 gap)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct turn turn;

	if (!config || !port)
		return 0;
	turn_begins(&turn, id, TURN_LIMITED);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, gap, 0, 0, 0);
	port_limited(config, port, gap);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_reported(&turn);
	return 0;
}

#define PORT_READABLE (1ull << 32)

// Returns PORT_READABLE and, in the low 32 bits, the bytes in the queue of the port's device. Returns 0 if the device is no
// longer the port's: the memory of a deleted device would read as a wild backlog. The timer runs in an RCU section, so a
// device that is registered now is not freed before the timer returns.
__noinline __u64 port_backlog(__u32 id)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct net_device *device;
	struct Qdisc *root;

	if (!config || !port || !port->device)
		return 0;
	device = bpf_rdonly_cast((void *)port->device, bpf_core_type_id_kernel(struct net_device));
	if (device->reg_state != NETREG_REGISTERED || device->ifindex != (int)config->ifindex ||
	    device->nd_net.net->net_cookie != config->netns_cookie)
		return 0;
	root = device->qdisc;
	return PORT_READABLE | (root ? root->qstats.backlog : 0);
}

// Reports whether a packet need not sample, because the queue is empty and was at the last sample.
static __always_inline int port_rests_empty(__u32 id, const struct port_config *config, const struct port *port, __u64 now)
{
	return !port->backlog && fairq_empty_may_rest(&config->law, &port->law, now) && port_backlog(id) == PORT_READABLE;
}

// Returns how long the timer rests until its next tick, in ns.
static __always_inline __u32 port_rest(const struct port_config *config, struct port *port, __u64 now, __u32 backlog)
{
	__u32 tick = config->law.tick_ns, period = fairq_period(&config->law);

	if ((__s64)(now - port->looked_ns) < 4ll * tick) { // else packets have become rare
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

// Returns how long the timer rests in the port's present mode, in ns; 0: it stops until the port has a flow again. Where
// the law does not run, the timer only counts flows.
static __always_inline __u64 port_next(const struct port_config *config, struct port *port, __u64 now, __u32 backlog)
{
	__u64 passive = config->epoch_ns < PASSIVE_TICK_NS && port->enforced ? config->epoch_ns : PASSIVE_TICK_NS;

	if (!port->running)
		return 0;
	if (port->mode == ENFORCE_ALL || port->mode != config->mode || port->easing || port->release_q8)
		return port->enforced || port->grant_q8 ? port_rest(config, port, now, backlog) : passive;
	return passive;
}

// Does one tick of a port: sample, count, grant. Returns the time to the next tick in ns, 0 for none.
// empty_ns: 0, or when the queue was seen to be empty: a sample of that time.
__noinline __u64 port_tick(__u32 id, __u32 by_packet, __u64 empty_ns)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	__u64 now = empty_ns ? empty_ns : bpf_ktime_get_ns(), reading, next, gap;
	__u32 backlog;
	struct turn turn;
	int alive, live;

	if (!config || !port)
		return 0;
	live = is_live(now);
	reading = empty_ns ? PORT_READABLE : port_backlog(id);
	backlog = (__u32)reading;
	alive = reading >> 32;
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
	turn_reported(&turn);
	if (port_must_limit(config, port))
		port_limit(id, gap);
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
	__u64 next = port_tick(*id, 0, 0);

	if (next)
		bpf_timer_start(&slot->timer, next, 0);
	return 0;
}

#endif
