// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The limit of one acknowledgement: the group of its flow, the port whose window counts, and the part of that window.
//
//   treatment  limited to the grant of the port that its data leaves by (release.h)
//   control    unlimited: the ACK passes unchanged; the limit that it would have is recorded
//   SYN-ACK    count: opening: limited to the share that is left if all open handshakes become flows (slots.h)
//   equal paths (ECMP)  its data takes another switch: limited to 1/divisor of the window of the port that the ACK came
//                       in by (docs/spec 1.1; docs/fairq.md). With `undivided` the divisor is 1
//
// A connection's bucket, 0 .. 65535, decides its group. The bucket is a hash of the connection's key that no sender
// can choose. Flows with a bucket below port->spared are unlimited. Those of them from bucket release_from on were limited
// until recently, and are released.
//
// Windows are _q8: bytes with 8 fraction bits; 0 is no limit. Divisions round towards 0.
#ifndef WEIR_CORE_GROUPS_H
#define WEIR_CORE_GROUPS_H

#include "release.h"
#include "slots.h"
#include "switch.h"
#include "../window.h"

// The limit of an ACK.
struct granted {
	weir_u64 window_q8; // 0: no limit
	weir_u64 would_q8;  // of an unlimited flow: the limit that it would have; 0: none
	weir_u32 opens;     // 1: it is a SYN-ACK, limited to the share with open handshakes counted
	weir_u32 zero;
};

// Reports whether a flow of this bucket is limited.
WEIR_INLINE int bucket_is_limited(const struct port *port, weir_u32 bucket) { return bucket >= port->spared; }

// Reports whether a port limits SYN-ACKs to the share with open handshakes counted: only if the law alone sets its grant.
WEIR_INLINE int port_limits_opening(const struct port_config *config, const struct port *port, int live)
{
	return live && !config->releasing && !(config->mode | port->mode | port->easing) &&
	       (port->enforced || !port->running);
}

// Returns the divisor of an ACK's window: above 1 only if its data takes another of the port's equal paths.
WEIR_INLINE weir_u32 grant_divisor(const struct port_config *config, int data_is_here)
{
	return !data_is_here && config->divisor ? config->divisor : 1;
}

// Reports whether ACKs may be limited to the window of the port that they came in by. The data's sender must be unseen,
// and the receiver's SYN-ACK seen: its scale is then certain, because a SYN-ACK has the option only if the SYN had it.
// With an unknown scale the limit could be far too small.
WEIR_INLINE int end_may_assume(const struct end *receiver, const struct end *sender)
{
	const weir_u8 known = END_SYN | END_SCALE;

	return (receiver->flags & known) == known && !(sender->flags & END_SEEN) && !sender->port;
}

// Sets the limit of an ACK whose flow has this bucket. opens: it is a SYN-ACK, the port counts open handshakes, and
// port_limits_opening is true.
WEIR_INLINE void grant_of(const struct port_config *config, const struct port *port, weir_u32 bucket, int opens,
			  weir_u32 divisor, weir_u64 now_ns, struct granted *granted)
{
	granted->window_q8 = port->grant_q8;
	granted->would_q8 = 0;
	granted->opens = 0;
	if (!bucket_is_limited(port, bucket)) {
		granted->window_q8 = bucket >= port->release_from ? port->release_q8 : 0;
		granted->would_q8 = port->equilibrium_q8;
	} else if (opens) {
		granted->window_q8 = fairq_opening_q8(&config->law, &port->law, port_openings(config, port, now_ns));
		granted->opens = 1;
	}
	if (divisor > 1) { // rare: a division takes as long as a lookup
		granted->window_q8 /= divisor;
		granted->would_q8 /= divisor;
	}
}

// Limits an ACK to the promise of the data's sender instead, in bytes (credit.h).
WEIR_INLINE void grant_promised(const struct port *port, weir_u32 bucket, weir_u32 promise, struct granted *granted)
{
	if (!promise || !bucket_is_limited(port, bucket))
		return;
	granted->window_q8 = (weir_u64)promise << 8;
	granted->would_q8 = 0;
	granted->opens = 0;
}

// Reports whether an ACK may advertise its grant to the edge (edge.h). ACKs of an unlimited flow pass unchanged, also
// with the window that another switch advertised. port: 0 if the port of the data is not known.
WEIR_INLINE int grant_advertises(const struct port *port, weir_u32 bucket, const struct granted *granted)
{
	return granted->window_q8 || !port || bucket_is_limited(port, bucket);
}

// Returns the least window of a flow in bytes: the port's, or one more than the flow's own MSS. The MSS counts up to what
// the port can carry (FQ-12). mss_option_bytes: of the ACK's sender; gso_size_bytes: of packets to it; 0: not seen.
WEIR_INLINE weir_u32 grant_floor(const struct port_config *config, weir_u32 mss_option_bytes, weir_u32 gso_size_bytes)
{
	weir_u32 most = config->mss_unknown;

	if (config->law.floor_bytes)
		return config->law.floor_bytes;
	if (gso_size_bytes > mss_option_bytes)
		mss_option_bytes = gso_size_bytes;
	if (!mss_option_bytes || mss_option_bytes > most)
		mss_option_bytes = most;
	return window_floor(mss_option_bytes, 0);
}

#endif
