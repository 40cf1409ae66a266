// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The ECN field between VMs and the network (core/vmecn.h). Tunnels: the outer header only (RFC 6040 leaves the inner one to the
// tunnel's end).
#ifndef WEIR_BPF_HOST_VMECN_H
#define WEIR_BPF_HOST_VMECN_H

#include "guest.h"
#include "../lib/ecn.h"

// Returns what ecn_agreed does, of a packet that a VM sends.
static __always_inline __u32 ecn_sent(struct __sk_buff *ctx, __u32 vm)
{
	struct segment s = {};

	if (ecn_mode != VMECN_NOT_NEGOTIATED || segment_read(ctx, &s) != SEGMENT_TCP)
		return ECN_DATA;
	return ecn_agreed(&s, vm);
}

// Writes the ECN field of a packet from or towards a VM. state: what ecn_agreed returns. Returns 1 if it was changed. A function of
// its own, so that the verifier checks it once.
__noinline int vm_ecn(struct __sk_buff *ctx, __u32 state, int towards)
{
	struct frame f = {};
	__u8 field;

	frame_read(ctx, &f);
	if (f.kind != FRAME_IPV4 && f.kind != FRAME_IPV6)
		return 0;
	if (towards)
		field = vmecn_in(ecn_mode, !!(state & ECN_IS_AGREED), f.ecn);
	else
		field = vmecn_out(ecn_mode, !!(state & ECN_IS_AGREED), !!(state & ECN_DATA), f.ecn);
	return field != f.ecn && !ecn_write(ctx, &f, field);
}

#endif
