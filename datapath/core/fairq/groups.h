// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What one acknowledgement is held to: which group its flow is in, which port's window counts, and what of it.
//
//   treatment  held: its window is the grant of the port that its data leaves by (release.h)
//   control    free: nothing of it is touched; what it would be held to is known
//   SYN-ACK    count: opening: the share that is left if all open handshakes become flows (seats.h)
//   equal paths (ECMP)  its data takes another switch: a divisor-th of the window of the port that it came in by
//                       (docs/spec 1.1; docs/fairq.md). With `undivided` the divisor is 1
//
// Which group a connection is in, its lot says, 0 .. LOTS - 1: a hash of its key that no sender can choose. Flows with a
// lot below port->spared are free. Of those, the ones from let_go_from on were held a moment ago, and are released.
//
// Windows are _q8: bytes with 8 fraction bits; 0 is no limit. They are divided towards 0.
#ifndef WEIR_CORE_GROUPS_H
#define WEIR_CORE_GROUPS_H

#include "release.h"
#include "seats.h"
#include "switch.h"
#include "../window.h"

// What an ACK is held to.
struct granted {
	weir_u64 window_q8; // 0: nothing
	weir_u64 would_q8;  // of a free flow: what it would be held to; 0: nothing
	weir_u32 opens;     // 1: it is a SYN-ACK, held to the share beside open handshakes
	weir_u32 zero;
};

// Whether a flow with this lot is held.
WEIR_INLINE int lot_is_held(const struct port *port, weir_u32 lot) { return lot >= port->spared; }

// Whether a port holds SYN-ACKs to the share beside open handshakes: where its law alone grants.
WEIR_INLINE int port_holds_opening(const struct port_config *config, const struct port *port, int live)
{
	return live && !config->releasing && !(config->hold | port->hold | port->easing) &&
	       (port->enforced || !port->running);
}

// What part of a window ACKs have whose data takes another of the port's equal paths.
WEIR_INLINE weir_u32 grant_divisor(const struct port_config *config, int data_is_here)
{
	return !data_is_here && config->divisor ? config->divisor : 1;
}

// Whether the ACKs of an end may be held to the window of the port that they came in by: its data was never heard, and
// its peer's SYN-ACK was. That alone tells the peer's scale, as an answer has the option only if the question had it.
// Any other could be held to far less than is meant.
WEIR_INLINE int end_may_assume(const struct end *receiver, const struct end *sender)
{
	const weir_u8 known = END_SYN | END_SCALE;

	return (receiver->flags & known) == known && !(sender->flags & END_SEEN) && !sender->port;
}

// Decides what an ACK is held to whose flow has this lot. opens: it is a SYN-ACK, the port counts open handshakes, and
// port_holds_opening.
WEIR_INLINE void grant_of(const struct port_config *config, const struct port *port, weir_u32 lot, int opens,
			  weir_u32 divisor, weir_u64 now_ns, struct granted *granted)
{
	granted->window_q8 = port->grant_q8;
	granted->would_q8 = 0;
	granted->opens = 0;
	if (!lot_is_held(port, lot)) {
		granted->window_q8 = lot >= port->let_go_from ? port->let_go_q8 : 0;
		granted->would_q8 = port->equilibrium_q8;
	} else if (opens) {
		granted->window_q8 = fairq_opening_q8(&config->law, &port->law, port_openings(config, port, now_ns));
		granted->opens = 1;
	}
	if (divisor > 1) { // seldom, and a division takes as long as a lookup
		granted->window_q8 /= divisor;
		granted->would_q8 /= divisor;
	}
}

// Whether an ACK may advertise what it is granted to the edge (edge.h). A free flow passes as it is, also with what
// another switch advertises. port: 0 where the port of the data is not known.
WEIR_INLINE int grant_advertises(const struct port *port, weir_u32 lot, const struct granted *granted)
{
	return granted->window_q8 || !port || lot_is_held(port, lot);
}

// The least window of a flow in bytes: the port's, or a byte over the flow's own MSS, of which no more is believed than
// the port can carry (FQ-12). mss_option_bytes: of the ACK's sender; gso_size_bytes: of packets to it; 0: not seen.
WEIR_INLINE weir_u32 grant_floor(const struct port_config *config, weir_u32 mss_option_bytes, weir_u32 gso_size_bytes)
{
	weir_u32 most = config->mss_unknown;

	if (config->law.floor_bytes)
		return config->law.floor_bytes;
	if (mss_option_bytes > most)
		mss_option_bytes = most;
	if (gso_size_bytes > most)
		gso_size_bytes = most;
	return window_floor(mss_option_bytes || gso_size_bytes ? mss_option_bytes : most, gso_size_bytes);
}

#endif
