// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The trace of the differential run (docs/differential.md). It records, in order, every decision of core about a port's
// flows, windows and acknowledgements. The native build of core then makes the same decisions again, and the results
// are compared to the bit.
//
// datapath/fairq/lawtrace compiles it, with WEIR_LAW_TRACE. Without that macro everything here is empty, and the switch
// program has the same instructions as without this file.
//
//   turn    one change of a port under its lock (core/fairq/release.h), and the port after it
//   count   a direction that begins or ends to count at a port (core/fairq/slots.h)
//   look    whether a packet must sample
//   ack     an acknowledgement: the grant of its data's port, whether it is left to the edge, and what is written
//           (core/fairq/groups.h, window.h, edge.h)
//   paces, credit, asked    promises and credits (core/fairq/credit*.h): trace_credits.h
//
// Order: each port has a number that its lock guards. Each change of the port, and each decision that depends on it, takes
// the next number under the lock. Turns take it before they unlock; counts, looks and acks lock here for it. (Without a
// trace counts are atomic additions, and an ack reads the port without the lock.) So the numbers of a port are the
// order of its decisions on all CPUs. The ring may return records in another order; the reader sorts them. If the ring
// is full, the record is counted as lost and its number is missing: the reader refuses such a trace.
//
// The record holds all inputs of a decision: time, backlog, whether the lease is valid, data since the last tick,
// configurations, MSS, buckets, and the state of the end that sent the ACK.
#ifndef WEIR_BPF_TRACE_H
#define WEIR_BPF_TRACE_H

#include "flows.h"

// How an ACK leaves.
enum law_left {
	LEFT_WRITTEN = 0, // the program decides about its window
	LEFT_TO_EDGE = 1, // it passes unchanged: the edge has its window
	LEFT_NOT = 2,     // it is not left to the edge: another record of it follows
};

#ifdef WEIR_LAW_TRACE

#define LAW_TRACED 1

// core/fairq/slots.h, with the port's lock around it.
#define WEIR_SLOT_COMES(port, id, slot) law_slot_comes(id, slot)
#define WEIR_SLOT_GOES(port, id, slot) law_slot_goes(id, slot, 0)
#define WEIR_SLOT_TAKEN(id, order, old, new, counted, more) law_slot_taken(id, order, old, new, (counted) << 1 | (more))
#define WEIR_OPENING_GOES(port, id, registration) law_slot_goes(id, registration, 1)

__noinline int law_slot_comes(__u32 id, __u64 slot);
__noinline int law_slot_goes(__u32 id, __u64 slot, __u32 opening);
__noinline int law_slot_taken(__u32 id, __u32 number, __u64 old, __u64 new, __u32 answers);

#include "trace_turns.h"
#include "trace_counts.h"
#include "trace_looks.h"
#include "trace_acks.h"
#else
#include "trace_off.h"
#endif

#endif
