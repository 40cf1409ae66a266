// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The ECN field between VMs and the network (core/vmecn.h). Tunnels: the outer header only (RFC 6040 leaves the inner one to the
// tunnel's end).
#ifndef WEIR_BPF_HOST_VMECN_H
#define WEIR_BPF_HOST_VMECN_H

#include "guest.h"
#include "../../core/vmecn.h"
#include "../lib/ecn.h"

const volatile __u32 ecn_mode = VMECN_NONE;

// Reports whether a packet of a VM belongs to a connection that agreed on ECN, and whether it has data.
static __always_inline int ecn_negotiated(struct __sk_buff *ctx, __u32 vm, int *data)
{
	struct host_connection *c;
	struct segment s = {};
	struct flow_key key;

	*data = 1;
	if (segment_read(ctx, &s) != SEGMENT_TCP)
		return 0;
	*data = s.payload > 0;
	if (s.flags & TCP_SYN)
		return 0;
	key = key_of(&s, vm);
	c = bpf_map_lookup_elem(&connections, &key);
	return c && c->ecn == ECN_AGREED;
}

// Writes the ECN field of a packet from or towards a VM. A function of its own, so that the verifier checks it once.
__noinline int vm_ecn(struct __sk_buff *ctx, __u32 vm, int towards)
{
	int negotiated = 0, data = 1;
	struct frame f = {};
	__u8 field;

	frame_read(ctx, &f);
	if (f.kind != FRAME_IPV4 && f.kind != FRAME_IPV6)
		return 0;
	if (ecn_mode == VMECN_NOT_NEGOTIATED)
		negotiated = ecn_negotiated(ctx, vm, &data);
	field = towards ? vmecn_in(ecn_mode, negotiated, f.ecn) : vmecn_out(ecn_mode, negotiated, data, f.ecn);
	if (field == f.ecn)
		return 0;
	return ecn_write(ctx, &f, field) ? -1 : 1;
}

#endif
