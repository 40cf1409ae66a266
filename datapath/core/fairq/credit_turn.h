// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Questions of promises and credits about a segment: whose turn it is to send data, which flight the segment may begin, and
// whether it acknowledges an answer. credit_ack.h uses the answers.
#ifndef WEIR_CORE_CREDIT_TURN_H
#define WEIR_CORE_CREDIT_TURN_H

#include "credit_ack.h"

// A connection's turn. The low two bits are 1 + the side that sent data last; 0: nobody has.
enum credit_turn {
	CREDIT_TURN_SIDE = 3,
	CREDIT_TURN_SHORT = 4, // its latest segment was shorter than others
};

#define CREDIT_STREAM (1u << 30) // bytes, the largest window: an ACK that advances by as much or more belongs to another stream

// Reports whether data of a side begins a turn: the other side sent last, or nobody.
WEIR_INLINE int credit_begins(weir_u8 turn, weir_u32 side) { return (turn & CREDIT_TURN_SIDE) != side + 1; }

// Reports whether all of a segment's data was acknowledged before. Such data is of a request or an answer that is over, begins no turn and
// uses no promise. end: the sequence number behind the data; una: the furthest acknowledgement of its receiver.
WEIR_INLINE int credit_was_acknowledged(weir_u32 end, weir_u32 una) { return una - end < CREDIT_STREAM; }

// Returns the length of the longest segment of a packet's data. gso_bytes: of each of its segments but the last; 0: it is one.
WEIR_INLINE weir_u32 credit_segment_of(weir_u32 payload_bytes, weir_u32 gso_bytes)
{
	return gso_bytes && gso_bytes < payload_bytes ? gso_bytes : payload_bytes;
}

// Returns the longest segment that an end has sent, after one more.
WEIR_INLINE weir_u16 credit_longest(weir_u16 longest_bytes, weir_u32 segment_bytes)
{
	if (segment_bytes <= longest_bytes)
		return longest_bytes;
	return segment_bytes < 0xffff ? (weir_u16)segment_bytes : 0xffff;
}

// Returns the turn after data of a side. segment_bytes: credit_segment_of; longest_bytes: credit_longest after it.
WEIR_INLINE weir_u8 credit_turn(weir_u32 side, weir_u32 payload_bytes, weir_u32 segment_bytes, weir_u32 longest_bytes)
{
	int is_short = segment_bytes < payload_bytes ? payload_bytes % segment_bytes != 0 : payload_bytes < longest_bytes;

	return (weir_u8)((side + 1) | (is_short ? CREDIT_TURN_SHORT : 0));
}

// Returns what a segment may open: enum credit_opens.
//
//   opener     1: its sender opened the connection
//   begins     1: its data begins a turn
//   completes  1: it completes the handshake, and has no data
//   sent       sequence number behind the furthest data of the other end
//   ack        its acknowledgement number
WEIR_INLINE weir_u8 credit_opens(int syn, int opener, int begins, int completes, weir_u32 sent, weir_u32 ack)
{
	if (syn)
		return CREDIT_ACCEPTS;
	if (!opener)
		return CREDIT_OPENS_NOTHING;
	if (begins && credit_is_request(ack, sent))
		return CREDIT_OPENS;
	return completes ? CREDIT_COMPLETES : CREDIT_OPENS_NOTHING;
}

// Reports whether a segment of a side acknowledges an answer whose latest segment was shorter than others.
WEIR_INLINE int credit_answered(int opener, weir_u8 turn, weir_u32 side)
{
	return opener && (turn & (CREDIT_TURN_SIDE | CREDIT_TURN_SHORT)) == ((!side + 1) | CREDIT_TURN_SHORT);
}

// Returns how much further an acknowledgement is than the furthest before it, in bytes; 0 if it is not.
WEIR_INLINE weir_u32 credit_advance(weir_u32 una, weir_u32 ack) { return ack - una < CREDIT_STREAM ? ack - una : 0; }

#endif
