// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode (docs/fairq.md): a switch of the core advertises a flow's window on some ACKs only, and the edge next to the
// flow's sender writes it into all of them. This file has the flag by which both mark an ACK that advertises.
//
//   byte 12 of the TCP header: data offset 4 bits | FLAG . . AE
//
// The flag is the highest of TCP's reserved bits. IANA has assigned none of the three above AE (RFC 9293 6, RFC 9768),
// and Linux's receivers ignore it. The reserved bit in IPv4's fragment offset was no alternative: IPv6 lacks it, and
// another checksum covers it. Other users of the reserved bits:
//   scale: shim  uses all four: it and edge mode exclude each other
//   AccECN       uses the lowest, which edge mode never changes
//   GRO, GSO     GRO joins no segments that differ in offset, flags or window, so the flag does not spread. GSO copies
//                the flag of a packet to all its segments
//   normalizers  (OpenBSD's pf) clear it: then the edge learns nothing, and ACKs pass unchanged
// The flag is never set on a SYN, nor on a segment of a signed flow: TCP-MD5 and TCP-AO sign it (signed.h).
#ifndef WEIR_BPF_EDGE_H
#define WEIR_BPF_EDGE_H

#include "../lib/segment.h"
#include "../../core/fairq/edge.h"

#define EDGE_FLAG 0x08 // in the reserved bits

// Returns the time for switch and edge in units of 2^20 ns. It is cheap, and as coarse as the kernel's tick.
static __always_inline __u32 edge_clock(void) { return bpf_ktime_get_coarse_ns() >> EDGE_CLOCK_LOG2_NS; }

#endif
