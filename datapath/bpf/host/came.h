// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Marked packets that come to VMs from the network, by source, for a law that returns the counts to the host that sent them. They are
// counted before the field is cleared (vmecn.h). Packets of VMs of this host passed no switch, so they are not counted.
#ifndef WEIR_BPF_HOST_CAME_H
#define WEIR_BPF_HOST_CAME_H

#include "tables.h"
#include "../lib/frame.h"

const volatile __u32 count_came = 0;

// Counts a packet with CE. Returns the packets that were counted. A function of its own, so that the verifier checks it once.
__noinline int came_count(struct __sk_buff *ctx, __u32 vm)
{
	struct host_pair pair = {.vm = vm};
	__u64 packets = packets_of(ctx), *n;
	__u32 zero = 0, destination[4];
	struct frame f = {};

	frame_read(ctx, &f);
	if ((f.kind != FRAME_IPV4 && f.kind != FRAME_IPV6) || f.ecn != FRAME_ECN_CE ||
	    !frame_addresses(ctx, f.l3, f.kind == FRAME_IPV6, pair.peer, destination))
		return 0;
	n = bpf_map_lookup_elem(&came, &pair);
	// Another CPU may add the pair at the same moment.
	if (!n && bpf_map_update_elem(&came, &pair, &packets, BPF_NOEXIST))
		n = bpf_map_lookup_elem(&came, &pair);
	else if (!n)
		goto counted;
	if (!n)
		return 0;
	__sync_fetch_and_add(n, packets);
counted:
	n = bpf_map_lookup_elem(&came_total, &zero);
	if (n)
		__sync_fetch_and_add(n, packets);
	return packets;
}

#endif
