// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The counts of a port between two readings, in memory that user space maps.
//
// Each port has two halves. `word` has the number of the half that counts now (its highest bit) and, in the bits below, how
// many packets have entered that half. A packet adds 1 to `word`, and the old value names its half: one atomic operation. At
// its end the packet adds 1 to the half's `done`.
// A reading swaps `word` for the other half and 0. The old value is the number of packets that will ever enter the old half.
// When its `done` has reached that number, no program writes there: user space reads the half and clears it. So each packet is
// in exactly one reading, with everything that was counted of it.
#ifndef WEIR_TELEMETRY_H
#define WEIR_TELEMETRY_H

#include "../lib/kernel.h"

#define TELEMETRY_PORTS 1024
#define TELEMETRY_VMS 64
#define TELEMETRY_PAIRS 64
#define TELEMETRY_PROBES 16 // places where a pair may stand: the same for all pairs of a source
#define TELEMETRY_SOURCE_PAIRS 8 // of one source: one that floods leaves the other places to others
#define TELEMETRY_FLOWS 65536
#define TELEMETRY_SOURCES 16384
#define TELEMETRY_HALF_SHIFT 63

enum telemetry_collect {
	COLLECT_MARKS = 1,
	COLLECT_ARRIVALS = 2,
};

// Packets as on the wire: a GSO packet counts as its segments.
struct vm_marks {
	__u32 vm; // 0: the place is free
	__u32 packets;
};

// Two addresses as on the wire, IPv4 as ::ffff:a.b.c.d. The last pair of a source that has TELEMETRY_SOURCE_PAIRS also stands
// for the source's further pairs.
struct pair {
	__u32 hash; // of the source; 0: the place is free
	__u32 kinds; // sum of enum arrival
	__u32 opened; // SYNs and SYN-ACKs
	__u32 resumed;
	__u32 requested;
	__u32 source[4];
	__u32 destination[4];
};

struct half {
	__u64 done;    // packets as the program saw them: a GSO packet is one
	__u64 packets;
	__u64 bytes;   // as the queue discipline counts them
	__u64 ce;      // packets with CE that a law at this port has set
	__u64 ce_unknown; // those of no configured source
	__u64 ce_rest;    // those of further VMs than TELEMETRY_VMS
	__u64 syn;
	__u64 syn_ack;
	__u64 fin;
	__u64 rst;
	__u64 resume;
	__u64 found;
	__u64 request;
	__u32 peak_bytes; // the largest backlog that a packet found
	__u32 vms;        // places taken
	__u32 pairs;      // places taken
	__u32 pairs_rest; // arrivals whose pair found no place
	struct vm_marks by_vm[TELEMETRY_VMS];
	struct pair pair[TELEMETRY_PAIRS];
};

struct port_counts {
	__u64 word;
	__u64 zero[7]; // word has a cache line of its own
	struct half half[2];
};

#endif
