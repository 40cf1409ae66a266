// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The window field of an ACK, and its checksum (docs/spec 1.1 and 1.2, items FQ-12 ... FQ-16; RFC 9293 3.1,
// RFC 7323 2, RFC 1624). All laws that grant windows share it.
//
// Numeric specification
//   window_q8        u64, the law's window in bytes with 8 fraction bits. Rounded down to bytes.
//   floor_bytes,     u32. The window is at most cap_bytes and at least floor_bytes; the floor wins,
//   cap_bytes        because below its MSS a Linux sender sends nothing useful (FQ-12). cap 0: no cap.
//   field            u16, the window field of the header, in host order.
//   shift            the window scale that the ACK's sender announced, 0 .. 14; values above act as 14
//                    (RFC 7323 2.3). A SYN's window is never scaled: 0 (FQ-14).
//   The field written is ceil(bytes / 2^shift) (FQ-13), 1 .. 65535. It is written only if it is smaller
//   than the ACK's own field, both shifted (FQ-16). So a field of 0 stays, and 0 is never written.
//   Sequence numbers are u32 and compared modulo 2^32 (RFC 9293 3.4). b is ahead of a by b - a if that
//   is at most 2^30, which is above any window (65535 << 14); otherwise b is not ahead of a.
#ifndef WEIR_CORE_WINDOW_H
#define WEIR_CORE_WINDOW_H

#include "types.h"

#define WINDOW_SHIFT_MAX 14u
#define WINDOW_FIELD_MAX 65535u
#define WINDOW_EDGE_MAX (1u << 30)
// MSS in bytes of a flow whose MSS was not seen. Too large is safe, too small is not: for an MTU above 1500 the
// caller passes MTU - 40 instead.
#define WINDOW_MSS_DEFAULT 1460u

// Whether a window's right edge (acknowledgement + window) may move to the left.
enum window_shrink {
	WINDOW_SHRINK_ALLOW = 0, // legal (RFC 9293 3.8.6)
	WINDOW_SHRINK_AVOID = 1, // for stacks that handle it badly (gVisor's netstack)
};

// The furthest right edge that a flow's sender was granted. Kept with WINDOW_SHRINK_AVOID only.
struct window_edge {
	weir_u32 right; // sequence number
	weir_u32 known; // 1: right is valid
};

// One ACK, and the grant of its flow.
struct window_ack {
	weir_u64 window_q8;
	weir_u32 floor_bytes;
	weir_u32 cap_bytes;
	weir_u32 ack;   // acknowledgement number
	weir_u16 field; // its window field
	weir_u8 shift;  // of its sender; without effect in a SYN
	weir_u8 syn;    // 1: SYN-ACK
	weir_u8 shrink; // enum window_shrink; another value acts as ALLOW
	weir_u8 zero[7];
};

// Returns the least window of a flow in bytes: one more than the larger of its MSS option and the gso_size of its
// packets; 0: not seen (FQ-12). The path may carry less than the option. A packet's length is no measure: it may hold
// many segments. The additional byte lets a second segment follow the first: without it the receiver, waiting for the
// second, delays each ACK by 40 ms.
WEIR_INLINE weir_u32 window_floor(weir_u32 mss_option_bytes, weir_u32 gso_size_bytes)
{
	weir_u32 floor = mss_option_bytes > gso_size_bytes ? mss_option_bytes : gso_size_bytes;

	return (floor ? floor : WINDOW_MSS_DEFAULT) + 1;
}

// Returns the window in bytes, within floor and cap.
WEIR_INLINE weir_u32 window_effective(weir_u64 window_q8, weir_u32 floor_bytes, weir_u32 cap_bytes)
{
	weir_u64 bytes = window_q8 >> 8;

	if (cap_bytes && bytes > cap_bytes)
		bytes = cap_bytes;
	if (bytes < floor_bytes)
		bytes = floor_bytes;
	return bytes < 0xffffffff ? (weir_u32)bytes : 0xffffffff;
}

WEIR_INLINE weir_u32 window_shift(weir_u8 shift, weir_u8 syn)
{
	if (syn)
		return 0;
	return shift < WINDOW_SHIFT_MAX ? shift : WINDOW_SHIFT_MAX;
}

// Returns the field that grants at least this many bytes: rounded up, never 0, at most 65535.
WEIR_INLINE weir_u16 window_field(weir_u32 bytes, weir_u32 shift)
{
	weir_u64 field = ((weir_u64)bytes + (1u << shift) - 1) >> shift;

	if (field > WINDOW_FIELD_MAX)
		return WINDOW_FIELD_MAX;
	return field ? (weir_u16)field : 1;
}

// Returns the least window at ack, in bytes, that is not below `bytes` and does not move the right edge to the left. An
// edge behind ack is ignored, and so is one further ahead than any window (the flow took another path for a while).
WEIR_INLINE weir_u32 window_keep_edge(const struct window_edge *edge, weir_u32 ack, weir_u32 bytes)
{
	weir_u32 granted = edge->right - ack;

	return edge->known && granted <= WINDOW_EDGE_MAX && granted > bytes ? granted : bytes;
}

// Records that a window of this many bytes was granted at ack.
WEIR_INLINE void window_granted(struct window_edge *edge, weir_u32 ack, weir_u32 bytes)
{
	if (window_keep_edge(edge, ack, bytes) != bytes)
		return;
	edge->right = ack + bytes;
	edge->known = 1;
}

// Returns the field to write into an ACK; its own field if nothing must be written. With WINDOW_SHRINK_AVOID every ACK of
// the flow must pass through here. The first ACK of a flow adopted in mid-stream passes unchanged, because the earlier
// grants are unknown. A SYN-ACK grants for the first time.
WEIR_INLINE weir_u16 window_rewrite(const struct window_ack *a, struct window_edge *edge)
{
	weir_u32 bytes = window_effective(a->window_q8, a->floor_bytes, a->cap_bytes);
	weir_u32 shift = window_shift(a->shift, a->syn);
	int avoid = a->shrink == WINDOW_SHRINK_AVOID;
	int pass = 0;
	weir_u16 field = a->field;

	if (avoid) {
		if (a->syn)
			edge->known = 0;
		pass = !edge->known && !a->syn;
		bytes = window_keep_edge(edge, a->ack, bytes);
	}
	if (!pass && bytes < (weir_u32)field << shift)
		field = window_field(bytes, shift);
	if (avoid)
		window_granted(edge, a->ack, (weir_u32)field << shift);
	return field;
}

// Reports whether an ACK's own window is within its grant. A floor only adds to a grant, so window_rewrite then returns the
// ACK's own field, if there is no cap and the right edge may move to the left.
WEIR_INLINE int window_fits(const struct window_ack *a)
{
	return a->window_q8 >> 8 >= (weir_u64)a->field << window_shift(a->shift, a->syn);
}

// Returns a window field in another scale, rounded down so that it never promises more room than its sender has
// (scale: unify). Only the low 4 bits of both shifts count. Above 65535 the result is 65535.
WEIR_INLINE weir_u16 window_convert(weir_u16 field, weir_u8 from_shift, weir_u8 to_shift)
{
	weir_u32 converted = (weir_u32)field << (from_shift & 15) >> (to_shift & 15);

	return converted < WINDOW_FIELD_MAX ? (weir_u16)converted : (weir_u16)WINDOW_FIELD_MAX;
}

// Returns the checksum after one 16-bit word that it covers has changed: RFC 1624, equation 3, HC' = ~(~HC + ~m + m').
// (FQ-15: the paper adds m' - m to HC, which has the wrong sign.) All three values are in the same byte order, either
// one. Not for a packet whose checksum the device adds later (bpf/lib/rewrite.h).
WEIR_INLINE weir_u16 window_checksum(weir_u16 check, weir_u16 old_word, weir_u16 new_word)
{
	weir_u32 sum = (weir_u16)~check + (weir_u32)(weir_u16)~old_word + new_word;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (weir_u16)~sum;
}

#endif
