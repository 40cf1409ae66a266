// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The ECN field between a VM and the network, for laws that use marks of switches (SPEC 1.6, GS-7). Every packet of a VM can be
// marked. No mark reaches a VM that does not know ECN.
//
//                       from the VM                                   towards the VM
//   VMECN_NONE          unchanged                                     unchanged
//   VMECN_ALL           ECT(0)                                        Not-ECT
//   VMECN_NOT_NEGOTIATED
//     not negotiated    ECT(0)                                        Not-ECT
//     negotiated        Not-ECT with data and CE become ECT(0),       unchanged
//                       others are unchanged
//
//   A VM that sends CE would have its neighbours limited, so its mark is taken away. One that sends its data as Not-ECT would
//   avoid marks. Packets without data (pure ACKs) stay Not-ECT in a connection that negotiated ECN: its other end would not
//   expect a mark there.
//   ecn          the two low bits of the TOS byte or traffic class: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE. Higher bits are ignored.
//   negotiated   1: a packet of a TCP connection whose SYN and SYN-ACK agreed on ECN (RFC 3168, 6.1.1), behind the handshake
#ifndef WEIR_CORE_VMECN_H
#define WEIR_CORE_VMECN_H

#include "types.h"

enum vmecn_mode {
	VMECN_NONE,
	VMECN_ALL,
	VMECN_NOT_NEGOTIATED,
};

enum vmecn_field {
	VMECN_NOT_ECT,
	VMECN_ECT1,
	VMECN_ECT0,
	VMECN_CE,
	VMECN_MASK = 3,
};

// How far the ends of a connection agreed on ECN.
enum vmecn_agreed {
	VMECN_NOT_ASKED,
	VMECN_ASKED,
	VMECN_AGREED,
};

// Returns enum vmecn_agreed after a SYN, or a SYN-ACK (answers), with these flags (RFC 3168, 6.1.1). before: until then. accecn: it
// is an answer of AccECN (RFC 9768), which is an agreement, too.
WEIR_INLINE weir_u8 vmecn_handshake(weir_u8 before, int answers, int ece, int cwr, int accecn)
{
	if (!answers)
		return ece && cwr ? VMECN_ASKED : VMECN_NOT_ASKED;
	return before != VMECN_NOT_ASKED && ((ece && !cwr) || accecn) ? VMECN_AGREED : before;
}

// Returns the ECN field that a packet of a VM leaves with.
WEIR_INLINE weir_u8 vmecn_out(weir_u8 mode, int negotiated, int has_data, weir_u8 ecn)
{
	ecn &= VMECN_MASK;
	if (mode == VMECN_NONE)
		return ecn;
	if (mode == VMECN_ALL || !negotiated || ecn == VMECN_CE)
		return VMECN_ECT0;
	return ecn == VMECN_NOT_ECT && has_data ? VMECN_ECT0 : ecn;
}

// Returns the ECN field that a VM sees.
WEIR_INLINE weir_u8 vmecn_in(weir_u8 mode, int negotiated, weir_u8 ecn)
{
	ecn &= VMECN_MASK;
	return mode == VMECN_NONE || (mode == VMECN_NOT_NEGOTIATED && negotiated) ? ecn : VMECN_NOT_ECT;
}

#endif
