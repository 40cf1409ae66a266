// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The window of one acknowledgement: what the port of its data grants it (groups.h), and the field that it leaves with
// (window.h). The switch program and the simulator take these steps; each finds the flow and its port by itself.
//
//   1 ack_opens         whether the grant depends on open handshakes; only then time and heartbeat matter
//   2 ack_granted       what the port grants the flow
//   3 ack_is_limitable  whether that is, or would be, a limit
//   4 ack_limit         the field under the limit, and the field that leaves: an unlimited flow keeps its own
//
// A world may define these before it includes this file:
//
//   ACK_CLOCK(now_ns, live)       reads the time and whether user space is running, only where they matter
//   ACK_KEEPS_EDGE(window, edge)  calls window_rewrite for shrink: avoid
#ifndef WEIR_CORE_ACK_H
#define WEIR_CORE_ACK_H

#include "groups.h"

#ifndef ACK_CLOCK
#define ACK_CLOCK(now_ns, live) ((void)(now_ns), (void)(live))
#endif
#ifndef ACK_KEEPS_EDGE
#define ACK_KEEPS_EDGE(window, edge) window_rewrite(window, edge)
#endif

// Reports whether an ACK is a SYN-ACK that is limited to the share with open handshakes counted: with count: opening, if
// its data leaves by a port of this switch that does so. count_mode: enum count_mode. *live: user space is running. It
// matters only in that case, and then ACK_CLOCK may set both.
WEIR_INLINE int ack_opens(const struct port_config *config, const struct port *port, weir_u8 count_mode, int syn,
			  int data_is_here, weir_u64 *now_ns, int *live)
{
	if (count_mode != COUNT_OPENING || !syn || !data_is_here)
		return 0;
	ACK_CLOCK(*now_ns, *live);
	return port_limits_opening(config, port, *live);
}

// Sets what a port grants an ACK. opens: ack_opens; now_ns has no effect without it.
WEIR_INLINE void ack_granted(const struct port_config *config, const struct port *port, weir_u32 bucket, int opens,
			     int data_is_here, weir_u64 now_ns, struct granted *granted)
{
	grant_of(config, port, bucket, opens, grant_divisor(config, data_is_here), now_ns, granted);
}

// Reports whether an ACK is limited, or would be if its flow were.
WEIR_INLINE int ack_is_limitable(const struct granted *granted) { return granted->window_q8 || granted->would_q8; }

// Returns the limit of an ACK; of an unlimited flow, the limit that it would have.
WEIR_INLINE weir_u64 ack_limit_q8(const struct granted *granted)
{
	return granted->window_q8 ? granted->window_q8 : granted->would_q8;
}

// Returns the field that an ACK leaves with. *limited is its field under the limit, also of an unlimited flow, which keeps
// its own field. a has the ACK; its limit and floor are set here. mss, gso: as for grant_floor. avoid: a->shrink is
// WINDOW_SHRINK_AVOID; a parameter, so that a world whose mode is constant has no code of the other. edge is used with
// avoid only, and changes as the ACK that leaves needs it.
WEIR_INLINE weir_u16 ack_limit(struct window_ack *a, const struct port_config *config, const struct granted *granted,
			       weir_u32 mss, weir_u32 gso, int avoid, struct window_edge *edge, weir_u16 *limited)
{
	struct window_edge kept = {0};
	weir_u16 own = a->field;

	a->window_q8 = ack_limit_q8(granted);
	a->floor_bytes = grant_floor(config, mss, gso);
	if (avoid) {
		struct window_ack copy = *a; // the address of *a could keep it in memory

		kept = *edge;
		*limited = (weir_u16)ACK_KEEPS_EDGE(&copy, &kept);
	} else {
		*limited = window_rewrite(a, &kept);
	}
	if (!granted->window_q8) { // an unlimited flow passes, and grants what it offers
		if (avoid)
			window_granted(edge, a->ack, (weir_u32)own << window_shift(a->shift, a->syn));
		return own;
	}
	if (avoid)
		*edge = kept;
	return *limited;
}

#endif
