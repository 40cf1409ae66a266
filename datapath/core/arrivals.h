// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Arrivals: which packet of a TCP connection begins or ends something that a control law wants to know.
//
// Numeric specification
//   now_ns     u64, a clock that does not go back. A packet that is older than the latest one has waited 0 ns.
//   idle_ns    u64. A flow is idle when none of its data left for idle_ns or longer. Choose more than the RTT: a sender that
//              waits for an ACK is not idle.
//   seq, ack   u32, compared modulo 2^32. Data is new if its end is neither `behind` nor up to 2^30 bytes before it: the
//              largest window (RFC 7323 2.3). So data that is sent again is never an arrival.
//   payload    u32, bytes; of a GSO packet those of all segments
//   side       0 or 1: the end that sent the packet. A higher bit is ignored.
//
//   SYN        a SYN that was not sent again: the end has sent no SYN since the connection ended, or its number is not in the
//              65536 before `behind`. It begins the connection anew
//   SYN-ACK    the same of a SYN with ACK
//   FIN, RST   the first of the connection; of FIN the first of each end
//   RESUME     new data of an end that was idle. A SYN and a SYN-ACK count as data of their end
//   FOUND      data of an end of which nothing was seen: the connection is older than the table, or was evicted from it
//   REQUEST    new data of the opener in a new turn, to an end with nothing in flight. The opener is the end that sent the
//              SYN; if none was seen, the end that was first seen to send data. A turn is new if the other end sent new data
//              last, or nobody did. Nothing is in flight if the packet acknowledges all that the other end was seen to send
//
// A packet can be several of them: FOUND and RESUME exclude each other. A packet without payload, SYN, FIN and RST is none, and
// changes nothing. SYN with FIN is no valid packet (RFC 9293 3.10.7) and is none; RST counts with any other flags.
//
// A guest can send what it wants. The state has a fixed size, and a wrong number at most adds or hides arrivals of that guest's
// own connection.
#ifndef WEIR_CORE_ARRIVALS_H
#define WEIR_CORE_ARRIVALS_H

#include "types.h"

#define ARRIVALS_WINDOW_MAX (1u << 30)
#define ARRIVALS_SYN_REACH (1u << 16)

enum arrival {
	ARRIVAL_SYN = 1,
	ARRIVAL_SYN_ACK = 2,
	ARRIVAL_FIN = 4,
	ARRIVAL_RST = 8,
	ARRIVAL_RESUME = 16,
	ARRIVAL_FOUND = 32,
	ARRIVAL_REQUEST = 64,
};

// Flags of a TCP header that matter here, at their place there.
enum arrivals_tcp {
	ARRIVALS_FIN = 1,
	ARRIVALS_SYN = 2,
	ARRIVALS_RST = 4,
	ARRIVALS_ACK = 16,
};

enum arrivals_state {
	ARRIVALS_SEEN = 1, // behind and data_ns are valid
	ARRIVALS_SENT_SYN = 2,
	ARRIVALS_SENT_FIN = 4,
	ARRIVALS_ENDED = 8, // by a RST of any end
};

struct arrivals_config {
	weir_u64 idle_ns;
};

// One direction of a connection. All zero: nothing was seen.
struct arrivals_end {
	weir_u64 data_ns; // when its data last left
	weir_u32 behind;  // sequence number behind its furthest data
	weir_u8 state;    // enum arrivals_state
	weir_u8 zero[3];
};

struct arrivals_flow {
	struct arrivals_end end[2];
	weir_u8 opener; // side + 1; 0: unknown
	weir_u8 last;   // side + 1 of the end that sent new data last; 0: nobody
	weir_u8 zero[6];
};

struct arrivals_packet {
	weir_u64 now_ns;
	weir_u32 seq;
	weir_u32 ack;
	weir_u32 payload;
	weir_u8 flags; // as in the TCP header
	weir_u8 side;
	weir_u8 zero[2];
};

// Reports whether a packet can be an arrival. If not, its connection need not be looked up.
WEIR_INLINE int arrivals_matter(weir_u32 payload, weir_u8 flags)
{
	return payload || flags & (ARRIVALS_SYN | ARRIVALS_FIN | ARRIVALS_RST);
}

// Handles a SYN or SYN-ACK.
WEIR_INLINE weir_u32 arrivals_syn(struct arrivals_flow *f, const struct arrivals_packet *p)
{
	weir_u8 side = p->side & 1, answer = p->flags & ARRIVALS_ACK;
	struct arrivals_end *e = &f->end[side];
	const struct arrivals_flow none = {0};

	if (e->state & ARRIVALS_SENT_SYN && !(e->state & (ARRIVALS_SENT_FIN | ARRIVALS_ENDED)) &&
	    e->behind - (p->seq + 1) < ARRIVALS_SYN_REACH)
		return 0;
	if (!answer) {
		*f = none;
		f->opener = side + 1;
	} else if (!f->opener) {
		f->opener = !side + 1;
	}
	e->state = ARRIVALS_SEEN | ARRIVALS_SENT_SYN;
	e->behind = p->seq + 1 + p->payload;
	e->data_ns = p->now_ns;
	if (p->payload)
		f->last = side + 1;
	return answer ? ARRIVAL_SYN_ACK : ARRIVAL_SYN;
}

// Reports whether data up to `behind` was not seen before.
WEIR_INLINE int arrivals_new(const struct arrivals_end *e, weir_u32 behind)
{
	return !(e->state & ARRIVALS_SEEN) || e->behind - behind > ARRIVALS_WINDOW_MAX;
}

// Reports whether new data of the opener is a request.
WEIR_INLINE int arrivals_request(const struct arrivals_flow *f, const struct arrivals_packet *p)
{
	const struct arrivals_end *other = &f->end[!(p->side & 1)];

	return f->last != (p->side & 1) + 1 && p->flags & ARRIVALS_ACK &&
	       (!(other->state & ARRIVALS_SEEN) || (int)(other->behind - p->ack) <= 0);
}

// Handles new data, or data that is sent again.
WEIR_INLINE weir_u32 arrivals_data(const struct arrivals_config *config, struct arrivals_flow *f, const struct arrivals_packet *p)
{
	weir_u8 side = p->side & 1;
	struct arrivals_end *e = &f->end[side];
	weir_u32 behind = p->seq + p->payload, result = 0;

	if (arrivals_new(e, behind)) {
		if (!(e->state & ARRIVALS_SEEN))
			result = ARRIVAL_FOUND;
		else if (p->now_ns > e->data_ns && p->now_ns - e->data_ns >= config->idle_ns)
			result = ARRIVAL_RESUME;
		if (!f->opener)
			f->opener = side + 1;
		if (f->opener == side + 1 && arrivals_request(f, p))
			result |= ARRIVAL_REQUEST;
		f->last = side + 1;
		e->behind = behind;
	}
	e->state |= ARRIVALS_SEEN;
	e->data_ns = p->now_ns;
	return result;
}

// Event: a packet leaves. Returns what it is, a sum of enum arrival, and updates the state of its connection.
WEIR_INLINE weir_u32 arrivals_see(const struct arrivals_config *config, struct arrivals_flow *f, const struct arrivals_packet *p)
{
	struct arrivals_end *e = &f->end[p->side & 1];
	weir_u32 result = 0;

	if (p->flags & ARRIVALS_RST) {
		if (f->end[0].state & ARRIVALS_ENDED)
			return 0;
		f->end[0].state |= ARRIVALS_ENDED;
		f->end[1].state |= ARRIVALS_ENDED;
		return ARRIVAL_RST;
	}
	if (p->flags & ARRIVALS_SYN)
		return p->flags & ARRIVALS_FIN ? 0 : arrivals_syn(f, p);
	if (p->payload)
		result = arrivals_data(config, f, p);
	if (p->flags & ARRIVALS_FIN && !(e->state & ARRIVALS_SENT_FIN)) {
		result |= ARRIVAL_FIN;
		e->behind = p->seq + p->payload + 1;
		e->state |= ARRIVALS_SEEN | ARRIVALS_SENT_FIN;
		if (!p->payload)
			e->data_ns = p->now_ns;
	}
	return result;
}

#endif
