// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Edge mode (docs/fairq.md): a switch of the core tells a flow's window on some of its ACKs only, and the
// edge next to the flow's sender writes it into all of them. Here is what both know: how an ACK says
// that its window was told.
//
//   byte 12 of the TCP header: data offset 4 bits | FLAG . . AE
//
// The flag is the highest of TCP's reserved bits: IANA has assigned none of the three beside AE (RFC 9293
// 6, RFC 9768), IPv6 has it too, and Linux's receivers ignore it. The reserved bit of IPv4's fragment
// offset has no twin in IPv6, and another checksum. Who else uses these bits:
//   scale: shim  all four: the two exclude each other
//   AccECN       the lowest, which is never touched here
//   GRO, GSO     segments whose word of offset, flags and window differ are not joined, so a flagged
//                one never lends its flag to others; what a flagged packet is split into is all flagged
//   normalizers  (OpenBSD's pf) clear it: then the edge knows nothing, and ACKs pass as they are
// Never on a SYN, never on a segment of a signed flow: TCP-MD5 and TCP-AO sign it (signed.h).
#ifndef WEIR_BPF_EDGE_H
#define WEIR_BPF_EDGE_H

#include "../lib/segment.h"
#include "../../core/fairq/edge.h"

#define EDGE_FLAG 0x08 // in the reserved bits

// The clock of both: cheap, and as coarse as the kernel's tick. In units of 2^20 ns.
static __always_inline __u32 edge_clock(void) { return bpf_ktime_get_coarse_ns() >> EDGE_CLOCK_LOG2_NS; }

#endif
