// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Writes the ECN field of an IP header.
#ifndef WEIR_BPF_ECN_H
#define WEIR_BPF_ECN_H

#include "frame.h"

// Rewrites the ECN field of f. Returns 0, or an error of the kernel: the frame is then unchanged.
//
// Checksums. Neither TCP's nor UDP's covers the ECN field, so CHECKSUM_PARTIAL needs nothing.
// IPv4: the header checksum is updated by the change of the field (RFC 1624). So the header's 16-bit sum, checksum
// included, stays the same, and with it skb->csum of a CHECKSUM_COMPLETE packet: the store must not change it (flag 0).
// IPv6 has no header checksum to compensate: skb->csum must follow (BPF_F_RECOMPUTE_CSUM).
// bpf_skb_ecn_set_ce cannot be used: it does nothing to a cloned skb, and local TCP sends clones.
static __always_inline long ecn_write(struct __sk_buff *ctx, const struct frame *f, __u8 ecn)
{
	int ipv4 = f->kind == FRAME_IPV4;
	__u32 shift = ipv4 ? FRAME_IPV4_ECN_SHIFT : FRAME_IPV6_ECN_SHIFT;
	__be16 old = bpf_htons(f->word);
	__be16 new = bpf_htons((f->word & ~(FRAME_ECN_CE << shift)) | ecn << shift);
	long err;

	if (!ipv4)
		return bpf_skb_store_bytes(ctx, f->l3, &new, sizeof(new), BPF_F_RECOMPUTE_CSUM);
	err = bpf_l3_csum_replace(ctx, f->l3 + FRAME_IPV4_CHECK, old, new, sizeof(new));
	// The checksum's write has made the header writable: the store cannot fail after it.
	return err ? err : bpf_skb_store_bytes(ctx, f->l3, &new, sizeof(new), 0);
}

// Rewrites the ECN field of f to CE, as ecn_write does.
static __always_inline long ecn_set_ce(struct __sk_buff *ctx, const struct frame *f)
{
	return ecn_write(ctx, f, FRAME_ECN_CE);
}

#endif
