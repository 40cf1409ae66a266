// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads a packet in a trace point's program, where its data are only memory of the kernel.
#ifndef WEIR_MEASURE_PACKET_H
#define WEIR_MEASURE_PACKET_H

#include "../../../datapath/bpf/lib/kernel.h"
#include "../../../datapath/bpf/lib/frame.h"
#include <bpf/bpf_helpers.h>
#include "records.h"

// Copies bytes of the packet's linear part. Returns 0, or not 0 if the packet does not have them.
static __always_inline long load(struct sk_buff *skb, __u32 off, void *to, __u32 bytes)
{
	if (off + bytes > skb->len - skb->data_len)
		return -1;
	return bpf_probe_read_kernel(to, bytes, skb->data + off);
}

#define PROTO_TCP 6
#define PROTO_UDP 17

// Reads the transport connection of the Ethernet frame skb, if it is TCP or UDP directly over IP.
static __always_inline void read_key(struct sk_buff *skb, struct drop *d)
{
	__u32 off = 12, l4;
	__be16 ethertype = 0;
	__be16 ports[2] = {};
	__u8 ip[FRAME_IPV6_BYTES] = {};
	int later_fragment = 0;

	if (load(skb, off, &ethertype, 2))
		return;
	for (int i = 0; i < FRAME_TAGS && frame_is_tag(ethertype); i++) {
		off += FRAME_TAG_BYTES;
		if (load(skb, off, &ethertype, 2))
			return;
	}
	off += 2;
	if (ethertype == bpf_htons(FRAME_ETH_P_IPV4)) {
		if (load(skb, off, ip, FRAME_IPV4_BYTES))
			return;
		d->proto = ip[9];
		l4 = off + (ip[0] & 15) * 4;
		later_fragment = (ip[6] & 0x1f) || ip[7];
		__builtin_memcpy(d->src, ip + 12, 4);
		__builtin_memcpy(d->dst, ip + 16, 4);
		d->family = 4;
	} else if (ethertype == bpf_htons(FRAME_ETH_P_IPV6)) {
		if (load(skb, off, ip, FRAME_IPV6_BYTES))
			return;
		d->proto = ip[6];
		l4 = off + FRAME_IPV6_BYTES;
		__builtin_memcpy(d->src, ip + 8, 16);
		__builtin_memcpy(d->dst, ip + 24, 16);
		d->family = 6;
	} else {
		return;
	}
	if (d->proto != PROTO_TCP && d->proto != PROTO_UDP) {
		d->family = 0;
		return;
	}
	if (!later_fragment && !load(skb, l4, ports, sizeof(ports))) {
		d->src_port = ports[0];
		d->dst_port = ports[1];
	}
}

#endif
