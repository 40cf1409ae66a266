// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a port grants the flows that it holds, and how windows are released: when user space is gone, and when other
// flows are held than before. A window never jumps to nothing at all: senders would burst, all at once.
//
//   enforced   user space is there: the law's window (fairq.h), or the equilibrium window where flows are held in part
//   released   it is not: each grant grows by e in RELEASE_NS, and at RELEASED_Q8 nothing is granted any more
//   easing     another mode is set: the grant may fall at once, and rises only as fast as a released one
//
// Numeric specification
//   grant_q8      u64, bytes with 8 fraction bits; 0: nothing is granted, and ACKs pass. A released grant is at least
//                 RELEASE_FROM_Q8, and below RELEASED_Q8 = 2^34.
//   growth        grant + floor(grant * min(gap, RELEASE_NS) / RELEASE_NS). No product wraps: 2^34 * 2^25.
//   equilibrium   floor((pipe_bytes + target) * 256 / flows), within the law's floor and cap: the window with which so
//                 many flows fill pipe and target. A port whose flows are held in part grants it: its queue says
//                 nothing about them, and the integrator would starve them.
//   hold_share    of LOTS. Flows with a lot below `spared` are free (groups.h).
//   gap           ns since the tick before; 0 where flows are counted between two ticks.
// A value outside an enumeration acts as its 0.
#ifndef WEIR_CORE_RELEASE_H
#define WEIR_CORE_RELEASE_H

#include "seats.h"
#include "switch.h"

#define RELEASE_NS 32000000ull      // while windows are released, they grow by e in this time
#define RELEASED_Q8 (1ull << 34)    // 64 MiB: no sender has more in flight; then nothing is granted
#define RELEASE_FROM_Q8 (1448 << 8) // a grant below this would grow too slowly

// Whether windows are held: user space has not said that it leaves, and its last heartbeat is less than lease_ns old.
WEIR_INLINE int lease_is_live(weir_u32 leaving, weir_u64 heartbeat_ns, weir_u64 lease_ns, weir_u64 now_ns)
{
	return !leaving && (long long)(now_ns - heartbeat_ns) < (long long)lease_ns;
}

// What an e-fold in RELEASE_NS makes of a grant after gap_ns.
WEIR_INLINE weir_u64 grown(weir_u64 grant_q8, weir_u64 gap_ns)
{
	if (grant_q8 < RELEASE_FROM_Q8)
		grant_q8 = RELEASE_FROM_Q8;
	if (grant_q8 >= RELEASED_Q8)
		return grant_q8;
	return grant_q8 + grant_q8 * (gap_ns < RELEASE_NS ? gap_ns : RELEASE_NS) / RELEASE_NS;
}

// The same of a grant that is released: at last, nothing.
WEIR_INLINE weir_u64 released(weir_u64 grant_q8, weir_u64 gap_ns)
{
	if (grant_q8)
		grant_q8 = grown(grant_q8, gap_ns);
	return grant_q8 < RELEASED_Q8 ? grant_q8 : 0;
}

WEIR_INLINE weir_u32 hold_of(const struct port_config *config)
{
	return config->hold == HOLD_PART || config->hold == HOLD_NONE ? config->hold : HOLD_ALL;
}

// Below which lot flows are not held.
WEIR_INLINE weir_u32 spared_of(const struct port_config *config)
{
	switch (hold_of(config)) {
	case HOLD_NONE:
		return LOTS;
	case HOLD_PART:
		return config->hold_share < LOTS ? LOTS - config->hold_share : 0;
	}
	return 0;
}

WEIR_INLINE weir_u64 port_equilibrium(const struct port_config *config, const struct port *port)
{
	weir_u64 floor_q8 = fairq_floor_q8(&config->law, &port->law), cap_q8 = fairq_cap_q8(&config->law, floor_q8);
	weir_u64 window_q8;

	if (!port->law.flows)
		return 0;
	window_q8 = (((weir_u64)config->pipe_bytes + fairq_target(&config->law)) << 8) / port->law.flows;
	if (window_q8 > cap_q8)
		window_q8 = cap_q8;
	return window_q8 > floor_q8 ? window_q8 : floor_q8;
}

// Another share of the flows is held. Those that are held no more are released, from what they had.
WEIR_INLINE void port_spare(struct port *port, weir_u32 spared)
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

// Whether port_held has something to do: flows are held in part or not at all, or a release goes on.
WEIR_INLINE int port_holds(const struct port_config *config, const struct port *port)
{
	return config->hold | port->hold | port->easing || port->let_go_q8;
}

// Sets what ACKs are held to: the law's window; without user space ever more of it, then nothing. A law that comes back
// begins anew: it saw a queue that it did not govern. Where not all flows are held, or were not just now, it is left to
// port_held.
WEIR_INLINE void port_grant(const struct port_config *config, struct port *port, int live, weir_u64 gap_ns)
{
	if (!live || config->releasing) {
		port->enforced = 0;
		port->grant_q8 = released(port->grant_q8, gap_ns);
		return;
	}
	if (!port->enforced) {
		fairq_restart(&config->law, &port->law);
	}
	port->enforced = 1;
	if (!(config->hold | port->hold | port->easing))
		port->grant_q8 = port->law.flows ? port->law.window_q8 : 0;
}

// ---- events, each under the port's lock ----

// Event: the port may have another number of flows. Its law learns now, and not with the next tick: what a newcomer is
// granted first must be its share. Gives 1 if the port's timer is to be started. port_held comes next, if port_holds.
WEIR_INLINE int port_recounted(const struct port_config *config, struct port *port, weir_u8 count, int live,
			       weir_u64 now_ns)
{
	int start = !port->running;

	if (start) {
		port->ticked_ns = now_ns;
		port->epoch_began_ns = now_ns;
		port->data_ns = now_ns;
	}
	fairq_flows(&config->law, &port->law, now_ns, port_flows(port, count));
	port_grant(config, port, live, 0);
	port->running |= port->law.flows != 0;
	return start && port->running;
}

// Event: the timer, or a packet in its place. backlog_bytes wait in the port's queue, if it could be read. Gives the
// gap, in ns, that port_held gets, if port_holds. The port is not `running` any more when it grants nothing and has no
// flows: then its timer stops.
WEIR_INLINE weir_u64 port_ticked(const struct port_config *config, struct port *port, weir_u8 count, int live,
				 weir_u64 now_ns, weir_u32 backlog_bytes, int readable)
{
	weir_u64 gap_ns;

	if ((long long)(now_ns - port->ticked_ns) < 0) // a tick on another CPU was later and is through
		now_ns = port->ticked_ns;
	port_turn(config, port, now_ns);
	port_hears(config, port, count, now_ns);
	fairq_flows(&config->law, &port->law, now_ns, port_flows(port, count));
	if (port->enforced && port->hold == HOLD_ALL && readable) {
		fairq_sample(&config->law, &port->law, now_ns, backlog_bytes);
	} else {
		port->law.last_sample_ns = now_ns;
	}
	port->backlog = backlog_bytes;
	if (backlog_bytes > port->backlog_max)
		port->backlog_max = backlog_bytes;
	gap_ns = now_ns - port->ticked_ns;
	port_grant(config, port, live, gap_ns);
	port->ticked_ns = now_ns;
	port->running = port->law.flows || port->grant_q8 || port->let_go_q8;
	return gap_ns;
}

// Event: a port whose mode is another than HOLD_ALL, or was, grants. The grant may fall at once, but not rise.
WEIR_INLINE void port_held(const struct port_config *config, struct port *port, weir_u64 gap_ns)
{
	weir_u32 hold = hold_of(config);
	weir_u64 want = 0, most;

	port->let_go_q8 = released(port->let_go_q8, gap_ns);
	if (!port->enforced)
		return;
	if (port->hold != hold) {
		port->easing = 1;
		if (hold == HOLD_ALL) {
			fairq_restart(&config->law, &port->law);
		}
	}
	port->hold = hold;
	port->equilibrium_q8 = hold == HOLD_ALL ? 0 : port_equilibrium(config, port);
	port_spare(port, spared_of(config));
	if (port->law.flows && port->spared < LOTS)
		want = hold == HOLD_ALL ? port->law.window_q8 : port->equilibrium_q8;
	most = grown(port->grant_q8, gap_ns);
	if (!port->easing || !port->grant_q8 || most >= want)
		port->easing = 0;
	else
		want = most;
	port->grant_q8 = want;
}

// Event: user space has stopped the port's timer. Nothing is granted; connections may still name the port.
WEIR_INLINE void port_stopped(struct port *port)
{
	port->grant_q8 = 0;
	port->let_go_q8 = 0;
	port->running = 0;
	port->enforced = 0;
}

// Event: the port's id is another port's from now on. Its state is cleared, but for what connections of the former port
// still take from: they sit in epochs and registers that are over then.
WEIR_INLINE void port_reused(struct port *port)
{
	weir_u32 *words = (weir_u32 *)port;

	port->generation++;
	port->epoch += FLOWS_WHEEL;
	for (weir_u32 i = __builtin_offsetof(struct port, running) / 4; i < sizeof(*port) / 4; i++) {
		if (i == __builtin_offsetof(struct port, epoch) / 4 || i == __builtin_offsetof(struct port, epoch) / 4 + 1 ||
		    i == __builtin_offsetof(struct port, generation) / 4 || i == __builtin_offsetof(struct port, owned) / 4)
			continue;
		words[i] = 0;
	}
}

#endif
