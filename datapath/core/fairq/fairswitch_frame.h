// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairSwitch on frames: bytes in, bytes out (docs/spec 1.3). There is no flow table: windows come from the registers of the
// queue that a segment came in by, scale shifts from the reserved bits (docs/spec 1.2). rtl/ is equal to it, frame by frame.
//
// Specification
//   frame     Ethernet II, at most two VLAN tags (0x8100, 0x88A8). IPv4 with options, or IPv6 without extension headers.
//             Other frames pass unchanged, and so do frames that end inside their IP header.
//   TCP       protocol 6, no fragment of any kind, at least 20 bytes of TCP header in the frame, data offset >= 5, and a
//             total length that holds both headers. The payload itself may be cut: its length is that of the IP header.
//   events    before a segment changes the count, its own window field is written from the earlier count.
//             SYN-ACK: FAIRSWITCH_OPENS at both queues. RST: FAIRSWITCH_ABORTS at both. FIN: FAIRSWITCH_CLOSES at the queue
//             that it leaves by. SYN with FIN or RST: none. Payload: data at the queue that it leaves by.
//   window    of a segment with ACK: min(field, max(1, ceil(window / 2^shift))) (FQ-13, FQ-16). A field of 0 stays. The shift
//             is that of the reserved bits, 15 acts as 14; 0 in a SYN (FQ-14). A window of 0 grants nothing: no change.
//   reserved  clear: 0 in every TCP segment. With keep_sum their checksum is not adapted: the paper's shim writes them without
//             a checksum (FQ-17). Ours adapts it, and so does the switch.
//   ECN       ECT(0) and ECT(1) become CE in a packet that finds more than ecn_words in the queue that it leaves by.
//   checksums RFC 1624, equation 3. A checksum that was wrong before stays as wrong.
#ifndef WEIR_CORE_FAIRSWITCH_FRAME_H
#define WEIR_CORE_FAIRSWITCH_FRAME_H

#include "../window.h"
#include "fairswitch.h"

enum fairswitch_clear {
	FAIRSWITCH_RESERVED_STAY = 0,
	FAIRSWITCH_RESERVED_CLEAR = 1,
	FAIRSWITCH_RESERVED_KEEP_SUM = 2,
};

// The values that decide about a frame.
struct fairswitch_now {
	weir_u32 window_bytes; // of the queue that the frame came in by; 0: none
	weir_u8 over;          // 1: more than ecn_words wait in the queue that it leaves by
	weir_u8 clear;         // enum fairswitch_clear
	weir_u8 zero[2];
};

// The findings in a frame.
struct fairswitch_seen {
	weir_u32 payload_bytes; // of TCP
	weir_u8 event;          // enum fairswitch_event; 0: none
	weir_u8 tcp;
	weir_u8 marked;
	weir_u8 rewritten; // the window field has changed
};

WEIR_INLINE weir_u16 fairswitch_get16(const weir_u8 *at)
{
	return (weir_u16)(at[0] << 8 | at[1]);
}

WEIR_INLINE void fairswitch_put16(weir_u8 *at, weir_u16 value)
{
	at[0] = (weir_u8)(value >> 8);
	at[1] = (weir_u8)value;
}

// Returns where the IP header begins, and its EtherType in *type; 0: the frame ends before.
WEIR_INLINE weir_u32 fairswitch_ip(const weir_u8 *frame, weir_u32 bytes, weir_u16 *type)
{
	weir_u32 at = 12;

	for (int tags = 0;; tags++) {
		if (bytes < at + 2)
			return 0;
		*type = fairswitch_get16(frame + at);
		if (tags == 2 || (*type != 0x8100 && *type != 0x88a8))
			return at + 2;
		at += 4;
	}
}

// Returns what a TCP header's flags mean for the count.
WEIR_INLINE weir_u8 fairswitch_event_of(weir_u8 flags)
{
	int fin = flags & 1, syn = flags & 2, rst = flags & 4, ack = flags & 16;

	if (syn)
		return ack && !fin && !rst ? FAIRSWITCH_OPENS : 0;
	if (rst)
		return FAIRSWITCH_ABORTS;
	return fin ? FAIRSWITCH_CLOSES : 0;
}

WEIR_INLINE weir_u16 fairswitch_field(weir_u32 window_bytes, weir_u8 flags, weir_u8 reserved, weir_u16 field)
{
	weir_u16 granted;

	if (!window_bytes || !(flags & 16))
		return field;
	granted = window_field(window_bytes, window_shift(reserved, (flags & 2) != 0));
	return granted < field ? granted : field;
}

// Rewrites a TCP header and returns 1; 0 if it is not one. `whole` bytes of the frame and `length` bytes of the packet are
// behind its first byte.
WEIR_INLINE int fairswitch_tcp(weir_u8 *tcp, weir_u32 whole, weir_u32 length, const struct fairswitch_now *now,
			       struct fairswitch_seen *seen)
{
	weir_u16 word, field, check, cleared;
	weir_u32 header;

	if (whole < 20 || length < 20)
		return 0;
	word = fairswitch_get16(tcp + 12);
	field = fairswitch_get16(tcp + 14);
	check = fairswitch_get16(tcp + 16);
	header = (weir_u32)(word >> 12) * 4;
	if (header < 20 || header > length)
		return 0;
	seen->tcp = 1;
	seen->payload_bytes = length - header;
	seen->event = fairswitch_event_of((weir_u8)word);
	cleared = now->clear == FAIRSWITCH_RESERVED_STAY ? word : word & 0xf0ff;
	fairswitch_put16(tcp + 12, cleared);
	if (cleared != word && now->clear != FAIRSWITCH_RESERVED_KEEP_SUM)
		check = window_checksum(check, word, cleared);
	word = fairswitch_field(now->window_bytes, (weir_u8)word, word >> 8 & 15, field);
	if (word != field) {
		seen->rewritten = 1;
		check = window_checksum(check, field, word);
		fairswitch_put16(tcp + 14, word);
	}
	fairswitch_put16(tcp + 16, check);
	return 1;
}

WEIR_INLINE void fairswitch_ip4(weir_u8 *ip, weir_u32 whole, const struct fairswitch_now *now,
				struct fairswitch_seen *seen)
{
	weir_u32 header = (weir_u32)(ip[0] & 15) * 4, total;
	weir_u16 word;

	if (whole < 20 || ip[0] >> 4 != 4 || header < 20)
		return;
	word = fairswitch_get16(ip);
	if (now->over && ((word & 3) == 1 || (word & 3) == 2)) {
		seen->marked = 1;
		fairswitch_put16(ip, word | 3);
		fairswitch_put16(ip + 10, window_checksum(fairswitch_get16(ip + 10), word, word | 3));
	}
	total = fairswitch_get16(ip + 2);
	if (ip[9] == 6 && !(fairswitch_get16(ip + 6) & 0x3fff) && whole >= header && total >= header)
		fairswitch_tcp(ip + header, whole - header, total - header, now, seen);
}

WEIR_INLINE void fairswitch_ip6(weir_u8 *ip, weir_u32 whole, const struct fairswitch_now *now,
				struct fairswitch_seen *seen)
{
	weir_u8 ecn;

	if (whole < 40 || ip[0] >> 4 != 6)
		return;
	ecn = ip[1] >> 4 & 3;
	if (now->over && (ecn == 1 || ecn == 2)) {
		seen->marked = 1;
		ip[1] |= 0x30;
	}
	if (ip[6] == 6)
		fairswitch_tcp(ip + 40, whole - 40, fairswitch_get16(ip + 4), now, seen);
}

// Rewrites a frame in place, and returns what it means for the count.
WEIR_INLINE struct fairswitch_seen fairswitch_frame(weir_u8 *frame, weir_u32 bytes, const struct fairswitch_now *now)
{
	struct fairswitch_seen seen = {0};
	weir_u16 type = 0;
	weir_u32 at = fairswitch_ip(frame, bytes, &type);

	if (!at || bytes <= at)
		return seen;
	if (type == 0x0800)
		fairswitch_ip4(frame + at, bytes - at, now, &seen);
	else if (type == 0x86dd)
		fairswitch_ip6(frame + at, bytes - at, now, &seen);
	return seen;
}

#endif
