// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The sweep over the flow table, which user space runs with every heartbeat (250 ms). It removes connections that
// ended. It counts what no single packet shows: a port's limited flows, its live promises (credit.h), and its one-sided
// directions.
//
//   data, no acks   the ACKs return through another switch: their windows are out of reach
//   acks, no data   the data leaves by another switch: the port that it fills is not known
//
// A direction is one-sided if it sent new data for LATELY sweeps, and no new acknowledgement passed in them. The same
// holds for acknowledgements that advance without data. Such a connection is usually in `pending`, because its other
// end was never seen.
#ifndef WEIR_BPF_SWEEP_H
#define WEIR_BPF_SWEEP_H

#include "canary.h"
#include "connection.h"
#include "credit.h"
#include "flows.h"
#include "port.h"
#include "table.h"

struct swept {
	__u32 connections;
	__u32 removed;
	__u32 idle_sweeps;
	__u32 now;
	__u32 watched; // from user space: 1: the counts of flows are read until the next sweep
	__u32 time;    // credit_time of the sweep
};

#define CLOSED_SWEEPS 2 // how many a closed connection stays: its last ACKs are still on the way

static __always_inline struct port_swept *swept_of(__u32 id, __u32 now)
{
	struct port *port = port_of(id);
	struct port_swept *swept;

	if (!port)
		return NULL;
	swept = &port->swept[now & 1];
	if (swept->sweep != now) {
		__builtin_memset(swept, 0, sizeof(*swept));
		swept->sweep = now;
	}
	return swept;
}

static __always_inline void sweep_one_sided(struct connection *c, __u32 side, __u32 now)
{
	__u8 data = c->data_lately[side & 1], acks = c->acks_lately[side & 1];
	struct port_swept *swept;

	if (data + 1 >= LATELY && !acks) {
		swept = swept_of((__u32)c->end[side & 1].port - 1, now);
		if (swept)
			swept->one_sided_data++;
	} else if (acks + 1 >= LATELY && !data) {
		swept = swept_of((__u32)c->end[!(side & 1)].port - 1, now);
		if (swept)
			swept->one_sided_acks++;
	}
	if (data)
		c->data_lately[side & 1] = data - 1;
	if (acks)
		c->acks_lately[side & 1] = acks - 1;
}

// Counts a direction in its group, if it is an active flow.
static __always_inline void sweep_group(const struct connection *c, __u32 side, __u32 now)
{
	const struct end *e = &c->end[side & 1];
	__u32 id = count == COUNT_HANDSHAKE ? e->registered_at : (__u32)(e->slot >> 48) - 1;
	struct port *port = port_of(id);
	struct port_swept *swept;

	if (!port)
		return;
	if (count == COUNT_HANDSHAKE ? !e->registration || e->registration != port->generation
				     : !slot_is_live(port, e->slot))
		return;
	swept = swept_of(id, now);
	if (swept)
		swept->flows[is_limited(port, c)]++;
}

#define LONG_AGO (1 << 30) // units of 1024 ns, 18 minutes: half of the time after which a time in 32 bits would be in the future again

// Keeps the times of an end from becoming times in the future.
static __always_inline void sweep_times(struct end *e, __u32 now)
{
	if (e->promise && (__s32)(e->promise_until - now) < -LONG_AGO)
		e->promise_until = now - LONG_AGO;
	if (e->waits_until && (__s32)(e->waits_until - now) < 0)
		e->waits_until = 0;
}

static __always_inline void sweep_promise(struct end *e, const struct swept *swept)
{
	struct port_swept *of;

	sweep_times(e, swept->time);
	if (!e->promise || (__s32)(e->promise_until - swept->time) <= 0)
		return;
	of = swept_of((__u32)e->port - 1, swept->now);
	if (of)
		of->promised_bytes += e->promise;
}

// Adds the live promises of a connection to those of its ports. A global function, which the verifier checks once. As part
// of the loops in its callers, clang no longer unrolls them, and Linux 6.18 does not load the program (EFAULT).
__noinline int sweep_promises(struct connection *c, const struct swept *swept)
{
	if (!c || !swept)
		return 0;
	sweep_promise(&c->end[0], swept);
	sweep_promise(&c->end[1], swept);
	return 0;
}

static long sweep_flow(void *map, struct flow_key *key, struct connection *c, struct swept *swept)
{
	__u32 unseen = swept->now - c->seen;
	struct flow_key copy;

	swept->connections++;
	sweep_promises(c, swept);
	for (__u32 side = 0; side < 2; side++) {
		sweep_one_sided(c, side, swept->now);
		sweep_group(c, side, swept->now);
		if (unseen == 1) // includes data that was not acknowledged in this sweep
			flight_is(&c->acks[!side], c->acks[side].sent - c->acks[!side].una);
	}
	if (unseen < CLOSED_SWEEPS || (!connection_is_closed(c) && unseen < swept->idle_sweeps))
		return 0;
	copy = *key;
	connection_remove(&copy, c);
	swept->removed++;
	return 0;
}

static long sweep_place(void *map, __u32 *place, struct near_place *at, struct swept *swept)
{
	return (at->holder & PHASE_MASK) == PHASE_HOLDS ? sweep_flow(map, &at->key, &at->c, swept) : 0;
}

static long sweep_pending(void *map, struct flow_key *key, struct connection *c, struct swept *swept)
{
	sweep_promises(c, swept);
	for (__u32 side = 0; side < 2; side++)
		sweep_one_sided(c, side, swept->now);
	return 0;
}

SEC("syscall")
int weir_fairq_sweep(struct swept *result)
{
	struct control *control = control_of();
	struct swept swept = {};

	if (!control)
		return 1;
	control->watched = result->watched;
	swept.now = __sync_fetch_and_add(&control->sweep, 1) + 1;
	swept.idle_sweeps = control->idle_sweeps;
	swept.time = credit_time(bpf_ktime_get_ns());
	bpf_for_each_map_elem(&near, sweep_place, &swept, 0);
	bpf_for_each_map_elem(&flows, sweep_flow, &swept, 0);
	bpf_for_each_map_elem(&pending, sweep_pending, &swept, 0);
	control->swept = swept.now;
	result->connections = swept.connections;
	result->removed = swept.removed;
	return 0;
}

#endif
