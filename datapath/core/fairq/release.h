// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The grant of a port to its limited flows, and the release of windows: when the lease of user space expires, and when
// other flows are limited than before. A limit never ends at once: all senders would burst together.
//
//   enforced   the lease is valid: the law's window (fairq.h), or the equilibrium window if a part of the flows is limited
//   released   the lease has expired: each grant grows by a factor e in RELEASE_NS, and ends at RELEASED_Q8
//   easing     the mode has changed: the grant may fall at once, but rises only as fast as a released one
//
// Numeric specification
//   grant_q8      u64, bytes with 8 fraction bits; 0: no grant, and ACKs pass. A released grant is at least
//                 RELEASE_FROM_Q8, and below RELEASED_Q8 = 2^34.
//   growth        grant + floor(grant * min(gap, RELEASE_NS) / RELEASE_NS). No product wraps: 2^34 * 2^25.
//   equilibrium   floor((pipe_bytes + target) * 256 / flows), within the law's floor and cap: the window with which all
//                 flows together fill the BDP and the target. A port that limits a part of its flows grants it: the
//                 unlimited flows fill its queue, and the integrator would starve the limited ones.
//   limited_buckets    number of limited buckets, of 65536. Flows with a bucket below `spared` are unlimited (groups.h).
//   gap           ns since the previous tick; 0 if flows are counted between two ticks.
// A value outside an enumeration acts as its 0.
#ifndef WEIR_CORE_RELEASE_H
#define WEIR_CORE_RELEASE_H

#include "../lease.h"
#include "slots.h"
#include "switch.h"

WEIR_INLINE weir_u32 mode_of(const struct port_config *config)
{
	return config->mode == ENFORCE_PART || config->mode == ENFORCE_NONE ? config->mode : ENFORCE_ALL;
}

// Returns the bucket below which flows are unlimited.
WEIR_INLINE weir_u32 spared_of(const struct port_config *config)
{
	switch (mode_of(config)) {
	case ENFORCE_NONE:
		return BUCKETS;
	case ENFORCE_PART:
		return config->limited_buckets < BUCKETS ? BUCKETS - config->limited_buckets : 0;
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

// Sets the bucket below which flows are unlimited. Flows that were limited until now are released from their last grant.
WEIR_INLINE void port_spare(struct port *port, weir_u32 spared)
{
	if (spared > port->spared && port->grant_q8) {
		if (!port->release_q8 || port->spared < port->release_from)
			port->release_from = port->spared;
		if (!port->release_q8 || port->grant_q8 < port->release_q8)
			port->release_q8 = port->grant_q8;
	}
	port->spared = spared;
	if (port->release_from >= spared) // they are limited again
		port->release_q8 = 0;
}

// Reports whether port_limited must run: the mode is not ENFORCE_ALL, or was not, or a release goes on.
WEIR_INLINE int port_must_limit(const struct port_config *config, const struct port *port)
{
	return config->mode | port->mode | port->easing || port->release_q8;
}

// Sets the grant: the law's window. Without a valid lease the grant grows and then ends. When the lease is valid again,
// the law restarts, because it had no influence on the queue meanwhile. If not all flows are limited, or were not until
// now, port_limited sets the grant instead.
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
	if (!(config->mode | port->mode | port->easing))
		port->grant_q8 = port->law.flows ? port->law.window_q8 : 0;
}

// ---- events, each under the port's lock ----

// Event: the port may have another number of flows. Its law gets the number now, before the next tick: the first grant of
// a new flow must be its share. Returns 1 if the port's timer must be started. If port_must_limit, call port_limited next.
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

// Event: the timer ticks, or a packet samples in its place. backlog_bytes wait in the port's queue; readable: the queue
// could be read. Returns the gap in ns; if port_must_limit, call port_limited with it next. A port without flows and grants is no
// longer `running`: its timer stops.
WEIR_INLINE weir_u64 port_ticked(const struct port_config *config, struct port *port, weir_u8 count, int live,
				 weir_u64 now_ns, weir_u32 backlog_bytes, int readable)
{
	weir_u64 gap_ns;

	if ((long long)(now_ns - port->ticked_ns) < 0) // a later tick on another CPU has finished
		now_ns = port->ticked_ns;
	port_turn(config, port, now_ns);
	port_hears(config, port, count, now_ns);
	fairq_flows(&config->law, &port->law, now_ns, port_flows(port, count));
	if (port->enforced && port->mode == ENFORCE_ALL && readable) {
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
	port->running = port->law.flows || port->grant_q8 || port->release_q8;
	return gap_ns;
}

// Event: sets the grant of a port whose mode is not ENFORCE_ALL, or was not. The grant may fall at once, but rises
// gradually.
WEIR_INLINE void port_limited(const struct port_config *config, struct port *port, weir_u64 gap_ns)
{
	weir_u32 mode = mode_of(config);
	weir_u64 want = 0, most;

	port->release_q8 = released(port->release_q8, gap_ns);
	if (!port->enforced)
		return;
	if (port->mode != mode) {
		port->easing = 1;
		if (mode == ENFORCE_ALL) {
			fairq_restart(&config->law, &port->law);
		}
	}
	port->mode = mode;
	port->equilibrium_q8 = mode == ENFORCE_ALL ? 0 : port_equilibrium(config, port);
	port_spare(port, spared_of(config));
	if (port->law.flows && port->spared < BUCKETS)
		want = mode == ENFORCE_ALL ? port->law.window_q8 : port->equilibrium_q8;
	most = grown(port->grant_q8, gap_ns);
	if (!port->easing || !port->grant_q8 || most >= want)
		port->easing = 0;
	else
		want = most;
	port->grant_q8 = want;
}

// Event: user space has stopped the port's timer. Clears its grants; connections may still refer to the port.
WEIR_INLINE void port_stopped(struct port *port)
{
	port->grant_q8 = 0;
	port->release_q8 = 0;
	port->running = 0;
	port->enforced = 0;
}

// Event: the port's id belongs to another port from now on. Clears the state, except the counts from which connections of
// the former port still subtract. Epoch and generation move on, so that the slots and registrations of those
// connections no longer count.
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
