// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Signed segments: TCP-MD5 (option 19, RFC 2385) and TCP-AO (option 29, RFC 5925). The signature covers the window, so the
// receiver would discard a rewritten segment.
//
// The option alone proves nothing: the switch has no key, and an end without a key ignores the option. A guest could
// add it to escape the limit. So both ends must agree:
//
//   both SYNs were seen, both signed    CONNECTION_SIGNED: a segment with the option passes unchanged
//   both were seen, one or none signed  CONNECTION_BARE: an end accepts segments without the option, so nothing is
//                                       signed. The option is not looked for; every ACK is rewritten
//   a SYN was not seen (adopted)        a segment with the option passes unchanged while the other end signs, too.
//                                       That is: its last segment had the option, and none without it left in this
//                                       sweep or the sweep before. An honest end without a key never sends the option,
//                                       so its data keeps its peer from escaping the limit
//   the other end was never seen here   (`paths`) the option is believed
//
// A segment without the option is rewritten in every flow: in a signed flow its receiver discards it anyway.
//
// signed_mode decides what else happens to signed segments. All modes count them by their sources, and count their flows
// as active flows. Ports that observe drop nothing, nor do ports whose lease has expired.
#ifndef WEIR_BPF_SIGNED_H
#define WEIR_BPF_SIGNED_H

#include "canary.h"
#include "flows.h"
#include "port.h"
#include "../lib/options.h"

enum signed_mode {
	SIGNED_PASS = 0,  // they pass unchanged
	SIGNED_LIMIT = 1, // data beyond the granted window is dropped: the sender cannot learn the window
	SIGNED_DROP = 2,  // they are dropped
};

// Bits of connection.signs: what an end of an adopted connection sent.
enum signs {
	SIGNS_LAST = 1,        // its last segment had the option
	SIGNS_BARE = 2,        // a segment without it left in this sweep
	SIGNS_BARE_BEFORE = 4, // and in the sweep before
	SIGNS_HEARD = 8,       // any segment left
};

const volatile __u8 signed_mode = SIGNED_PASS;

struct source_key {
	__u32 address[4]; // as in flow_ends
	__u32 vlans;
};

struct source_counts {
	__u64 segments; // signed segments, as on the wire
	__u64 dropped;  // those of them that were dropped
};

// Evicts the least recently used source: a flood of forged sources loses nothing but these counts.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct source_key);
	__type(value, struct source_counts);
} signed_sources SEC(".maps");

static __always_inline __u8 signs_later(__u8 signs)
{
	return (signs & (SIGNS_HEARD | SIGNS_LAST)) | (signs & SIGNS_BARE) << 1;
}

static __always_inline __u8 signs_heard(__u8 signs, int has)
{
	return SIGNS_HEARD | (has ? signs | SIGNS_LAST : (signs & ~SIGNS_LAST) | SIGNS_BARE);
}

// Decides from both SYNs whether the connection is signed.
static __always_inline void signed_by_syns(struct connection *c)
{
	c->flags &= ~(CONNECTION_SIGNED | CONNECTION_BARE);
	c->flags |= c->end[0].flags & c->end[1].flags & END_SIGNED ? CONNECTION_SIGNED : CONNECTION_BARE;
}

// Records whether an end signs. Returns whether this segment's signature counts.
__noinline int signature_counts(struct __sk_buff *ctx, const struct segment *s, struct connection *c)
{
	__u8 was, is, other;
	int has;

	if (!s || !c || c->flags & CONNECTION_BARE)
		return 0;
	has = segment_is_signed(ctx, s);
	if (c->flags & CONNECTION_SIGNED)
		return has;
	was = c->signs[s->side & 1];
	is = signs_heard(was, has);
	if (is != was)
		c->signs[s->side & 1] = is;
	other = c->signs[!s->side];
	return has && (!(other & SIGNS_HEARD) || other == (SIGNS_HEARD | SIGNS_LAST));
}

__noinline int source_counted(struct __sk_buff *ctx, const struct segment *s, __u64 packets, __u32 dropped)
{
	struct source_counts *counted, first = {};
	struct source_key key = {};
	struct flow_ends ends = {};

	if (!s || !segment_ends(ctx, s, &ends))
		return 0;
	if (s->side)
		__builtin_memcpy(key.address, ends.address[1], sizeof(key.address));
	else
		__builtin_memcpy(key.address, ends.address[0], sizeof(key.address));
	key.vlans = ends.vlans;
	counted = bpf_map_lookup_elem(&signed_sources, &key);
	if (!counted) {
		bpf_map_update_elem(&signed_sources, &key, &first, BPF_NOEXIST);
		counted = bpf_map_lookup_elem(&signed_sources, &key);
	}
	if (!counted)
		return 0;
	__sync_fetch_and_add(&counted->segments, packets);
	if (dropped)
		__sync_fetch_and_add(&counted->dropped, packets);
	return 0;
}

// Reports whether this port limits connections of this bucket: the lease is valid, and the mode includes them.
static __always_inline int port_governs(__u32 bucket)
{
	__u32 id = port_id;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct control *control = control_of();

	return config && control && !config->releasing && control_is_live(control, bpf_ktime_get_ns()) &&
	       bucket >= spared_of(config);
}

// Reports whether a segment's data is beyond the window that its sender would have got: with it, more bytes would be in
// flight. One packet in flight is always allowed, and so is data that is sent again. If no new acknowledgement has
// passed for a second, the bytes in flight are unknown, and nothing is beyond.
static __always_inline int is_beyond(const struct segment *s, const struct connection *c)
{
	__u32 id = port_id, side = s->side & 1, floor, ahead;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = port_of(id);
	struct granted granted;

	if (!s->payload || !config || !port || !c->acks_lately[side])
		return 0;
	grant_of(config, port, c->bucket, 0, 1, 0, &granted);
	ahead = s->seq - c->acks[!side].una;
	if (!granted.window_q8 || !ahead || ahead > REACH)
		return 0;
	floor = grant_floor(config, c->end[!side].mss, c->end[side].gso);
	return ahead + s->payload > window_effective(granted.window_q8, floor, 0);
}

// Handles a segment of a connection in a table that is not CONNECTION_BARE. Sets is_signed. Returns 1 if it must be
// dropped.
__noinline int on_signed(struct __sk_buff *ctx, struct segment *s, struct connection *c, __u64 packets)
{
	int drop = 0;

	if (!s || !c || !signature_counts(ctx, s, c))
		return 0;
	s->is_signed = 1;
	if (signed_mode == SIGNED_DROP)
		drop = port_governs(c->bucket);
	else if (signed_mode == SIGNED_LIMIT)
		drop = is_beyond(s, c);
	source_counted(ctx, s, packets, drop);
	return drop;
}

// Handles a segment whose connection is in no table, also a SYN. Returns 1 if it must be dropped.
__noinline int on_signed_unknown(struct __sk_buff *ctx, struct segment *s, __u64 packets)
{
	if (!s || signed_mode != SIGNED_DROP || !segment_is_signed(ctx, s) || !port_governs(segment_bucket(ctx, s)))
		return 0;
	source_counted(ctx, s, packets, 1);
	return 1;
}

#endif
