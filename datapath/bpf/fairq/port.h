// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What happens to a port: its timer samples its queue for the law, its flows are counted, and its
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

#define RELEASE_NS 32000000ull      // while windows are let go, they grow by e in this time
#define RELEASED_Q8 (1ull << 34)    // 64 MiB: no sender has more in flight; then they are let go
#define RELEASE_FROM_Q8 (1448 << 8) // a grant below this would grow too slowly
#define PASSIVE_TICK_NS 20000000ull // of a port with flows whose windows are let go
#define NAP_MAX_NS 4000000u         // packets may end at any time; a gap over 5 ms is one too long
#define NETREG_REGISTERED 1

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
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

static __always_inline struct port *port_of(__u32 id) { return bpf_map_lookup_elem(&ports, &id); }

static __always_inline struct control *control_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&controls, &zero);
}

// ---- seats ----

#define SEAT_EPOCH ((1ull << 48) - 1)

static __always_inline __u64 seat_at(__u32 id, __u64 epoch) { return (__u64)(id + 1) << 48 | (epoch & SEAT_EPOCH); }

static __always_inline int seat_is_live(const struct port *port, __u64 seat)
{
	return ((port->epoch - seat) & SEAT_EPOCH) < FLOWS_LIVE;
}

// The flows that count, from the wheel or the register. May be one off while packets move seats.
static __always_inline __u32 port_flows(const struct port *port)
{
	__u32 flows = 0;

	if (count == COUNT_HANDSHAKE)
		return port->registered;
	for (__u32 i = 0; i < FLOWS_LIVE; i++)
		flows += port->wheel[(port->epoch - i) & (FLOWS_WHEEL - 1)];
	return flows > FAIRQ_FLOWS_MAX ? 0 : flows; // below 0 for a moment
}

// Begins the epochs that are due. A timer that stalled for longer than all of them has nobody live.
static __always_inline void port_turn(const struct port_config *config, struct port *port, __u64 now)
{
	for (int i = 0; i < FLOWS_WHEEL; i++) {
		if ((__s64)(now - port->epoch_began_ns) < (__s64)config->epoch_ns)
			return;
		port->epoch++;
		port->wheel[port->epoch & (FLOWS_WHEEL - 1)] = 0;
		port->opening[port->epoch & (FLOWS_WHEEL - 1)] = 0;
		port->epoch_began_ns += config->epoch_ns;
	}
	port->epoch_began_ns = now;
}

// ---- what is granted ----

static __always_inline int control_is_live(const struct control *control, __u64 now)
{
	return !control->releasing && (__s64)(now - control->heartbeat_ns) < (__s64)control->lease_ns;
}

// What an e-fold in RELEASE_NS makes of a grant after gap.
static __always_inline __u64 grown(__u64 grant_q8, __u64 gap)
{
	if (grant_q8 < RELEASE_FROM_Q8)
		grant_q8 = RELEASE_FROM_Q8;
	if (grant_q8 >= RELEASED_Q8)
		return grant_q8;
	return grant_q8 + grant_q8 * (gap < RELEASE_NS ? gap : RELEASE_NS) / RELEASE_NS; // below 2^34 * 2^25
}

// The same of a grant that is let go: at last, nothing.
static __always_inline __u64 released(__u64 grant_q8, __u64 gap)
{
	if (grant_q8)
		grant_q8 = grown(grant_q8, gap);
	return grant_q8 < RELEASED_Q8 ? grant_q8 : 0;
}

static __always_inline __u32 hold_of(const struct port_config *config)
{
	return config->hold == HOLD_PART || config->hold == HOLD_NONE ? config->hold : HOLD_ALL;
}

// Below which lot flows are not held.
static __always_inline __u32 spared_of(const struct port_config *config)
{
	switch (hold_of(config)) {
	case HOLD_NONE:
		return LOTS;
	case HOLD_PART:
		return config->hold_share < LOTS ? LOTS - config->hold_share : 0;
	}
	return 0;
}

// The window with which so many flows fill pipe and target, within the law's limits: what a port whose
// flows are held in part grants. Its queue says nothing about them; the integrator would starve them.
static __always_inline __u64 port_equilibrium(const struct port_config *config, const struct port *port)
{
	__u64 floor_q8 = fairq_floor_q8(&config->law, &port->law), cap_q8 = fairq_cap_q8(&config->law, floor_q8);
	__u64 window_q8;

	if (!port->law.flows)
		return 0;
	window_q8 = (((__u64)config->pipe_bytes + fairq_target(&config->law)) << 8) / port->law.flows;
	if (window_q8 > cap_q8)
		window_q8 = cap_q8;
	return window_q8 > floor_q8 ? window_q8 : floor_q8;
}

// Another share of the flows is held. Those that are held no more are let go, from what they had.
static __always_inline void port_spare(struct port *port, __u32 spared)
{
	if (spared > port->spared && port->grant_q8) {
		if (!port->let_go_q8 || port->spared < port->let_go_from)
			port->let_go_from = port->spared;
		if (!port->let_go_q8 || port->grant_q8 < port->let_go_q8)
			port->let_go_q8 = port->grant_q8;
	}
	port->spared = spared;
	if (port->let_go_from >= spared) // they are held again
		port->let_go_q8 = 0;
}

// Sets what ACKs are held to: the law's window; without user space, ever more of it, then nothing. A law
// that comes back begins anew: it saw a queue that it did not govern. Where not all flows are held, or
// were not just now, it is left to port_hold.
static __always_inline void port_grant(const struct control *control, const struct port_config *config,
				       struct port *port, __u64 now, __u64 gap, struct turn *turn)
{
	if (!control_is_live(control, now) || config->releasing) {
		port->enforced = 0;
		port->grant_q8 = released(port->grant_q8, gap);
		turn_grants(turn, GRANT_LET_GO);
		return;
	}
	if (!port->enforced) {
		fairq_restart(&config->law, &port->law);
		turn_calls(turn, LAW_RESTART, port, 0, 0);
	}
	port->enforced = 1;
	if (!(config->hold | port->hold | port->easing)) {
		port->grant_q8 = port->law.flows ? port->law.window_q8 : 0;
		turn_grants(turn, GRANT_LAW);
	}
}

// What ACKs are held to in another mode, or on the way to one. That may lower the grant at once, but not
// raise it: senders would burst.
__noinline int port_hold(__u32 id, __u64 gap)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	__u64 want = 0, most;
	struct turn turn;
	__u32 hold;

	if (!config || !port)
		return 0;
	hold = hold_of(config);
	turn_begins(&turn, id);
	bpf_spin_lock(&port->lock);
	port->let_go_q8 = released(port->let_go_q8, gap);
	if (!port->enforced)
		goto unlock;
	if (port->hold != hold) {
		port->easing = 1;
		if (hold == HOLD_ALL) {
			fairq_restart(&config->law, &port->law);
			turn_calls(&turn, LAW_RESTART, port, 0, 0);
		}
	}
	port->hold = hold;
	port->equilibrium_q8 = hold == HOLD_ALL ? 0 : port_equilibrium(config, port);
	port_spare(port, spared_of(config));
	if (port->law.flows && port->spared < LOTS)
		want = hold == HOLD_ALL ? port->law.window_q8 : port->equilibrium_q8;
	most = grown(port->grant_q8, gap);
	if (!port->easing || !port->grant_q8 || most >= want)
		port->easing = 0;
	else
		want = most;
	port->grant_q8 = want;
unlock:
	turn_grants(&turn, GRANT_HOLD);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	return 0;
}

// Whether port_hold has something to do.
static __always_inline int port_holds(const struct port_config *config, const struct port *port)
{
	return config->hold | port->hold | port->easing || port->let_go_q8;
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
	__u32 backlog, flows;
	struct turn turn;
	int alive;

	if (!config || !control || !port)
		return 0;
	alive = port_backlog(config, port, &backlog);
	turn_begins(&turn, id);
	bpf_spin_lock(&port->lock);
	if ((__s64)(now - port->ticked_ns) < 0) // a tick on another CPU was later and is through
		now = port->ticked_ns;
	if (by_packet)
		port->ticks_by_packet++;
	else
		port->ticks++;
	if (!alive && port->device) {
		port->device_refused++;
		port->device = 0; // until a packet leaves by the port again
	}
	port_turn(config, port, now);
	if (port->data_seen) {
		port->data_seen = 0;
		port->data_ns = now;
	} else if (count == COUNT_HANDSHAKE && port->registered && now - port->data_ns > config->idle_ns) {
		port->registered = 0;
		port->generation++;
	}
	flows = port_flows(port);
	fairq_flows(&config->law, &port->law, now, flows);
	turn_calls(&turn, LAW_FLOWS, port, now, flows);
	if (port->enforced && port->hold == HOLD_ALL && alive) {
		fairq_sample(&config->law, &port->law, now, backlog);
		turn_calls(&turn, LAW_SAMPLE, port, now, backlog);
	} else {
		port->law.last_sample_ns = now;
		turn_calls(&turn, LAW_NO_SAMPLE, port, now, 0);
	}
	port->backlog = backlog;
	if (backlog > port->backlog_max)
		port->backlog_max = backlog;
	gap = now - port->ticked_ns;
	port_grant(control, config, port, now, gap, &turn);
	port->ticked_ns = now;
	port->running = port->law.flows || port->grant_q8 || port->let_go_q8;
	next = port_next(config, port, now, backlog);
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
