// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The table of flows.bpf.c. User space reads it whole, so it is small.
#ifndef WEIR_FLOWS_H
#define WEIR_FLOWS_H

#include "../lib/kernel.h"

#define FLOWS_MOST 4096

// A flow at a port: addresses as on the wire, IPv4 as ::ffff:a.b.c.d.
struct sent_key {
	__u32 port;  // the switch's number of it
	__u32 ports; // as on the wire: the sender's, the receiver's
	__u32 source[4];
	__u32 destination[4];
};

struct sent_flow {
	__u64 bytes;      // of payload, without what was sent again
	__u32 behind;     // sequence number behind the furthest data
	__u32 connection; // rises with each new connection of these ends
	__u32 ended;      // FIN or RST
	__u32 zero;
};

#endif
