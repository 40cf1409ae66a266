// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The key of a connection without its VLAN tags. A bridge that filters VLANs tags the packets of some ports only. So where the directions of a
// connection leave by different ports, their tags differ, and with them it would have two keys.
#ifndef WEIR_BPF_VLANS_H
#define WEIR_BPF_VLANS_H

#include "segment.h"

// Takes the VLAN tags of a segment that has some out of its key.
static __always_inline void key_without_vlans(struct flow_key *key, const struct segment *s)
{
	const volatile __u32 *k = flow_digest_key + DIGEST_WORDS - 2; // the term of segment_digest that has the tags
	__u32 ports = s->side ? ports_swapped(s->ports) : s->ports;

	if (!s->is_ipv6) {
		key->word[1] = (__u32)key->word[1];
		return;
	}
	for (int n = 0; n < 2; n++, k += DIGEST_WORDS)
		key->word[n] += (__u64)(ports + k[0]) * k[1] - (__u64)(ports + k[0]) * (s->vlans + k[1]);
}

#endif
