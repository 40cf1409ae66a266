// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// scale: unify. Every SYN and SYN-ACK is made to announce one window scale s* (`unify_shift`), and every
// later window is converted from its sender's own scale to s*, which is what the receiver takes it for:
//
//   A --- SYN scale a ---> [switch: notes a] --- SYN scale s* ---> B
//   A --- field << a ----> [switch]          --- field' << s* ---> B
//
//   own      bytes of A's window: field << a
//   field'   own >> s*, rounded down: no more is promised than A has room for
//   law      a smaller grant is rounded up to s*, which does not exceed own rounded down
//
// So every switch behind the first one knows every scale without a table; there own is s*, and the
// conversion changes nothing. A SYN's window is never scaled and not converted.
//
// This cannot fail open. The ends believe what they were told for as long as the connection lives, so
// the conversion goes on where nothing is granted (no flows counted, no heartbeat, windows let go), and
// stopping it (Close, a change of scale, an entry that is forgotten) breaks windows of connections that
// live. Both directions must cross the switch, each once. Windows are kept in steps of 1 << s* bytes: a
// receiver with less room than a step reads as closed.
//
// A port that observes (HOLD_NONE) lets the SYNs that leave by it pass as they are. Connections whose SYN
// it rewrote before go on.
//
// Connections whose SYN was not rewritten (those, older ones, signed ones, one end without the option) have
// their own scales, as with `learn`.
#ifndef WEIR_BPF_UNIFY_H
#define WEIR_BPF_UNIFY_H

#include "flows.h"
#include "port.h"
#include "../lib/options.h"
#include "../lib/rewrite.h"

// Puts a shift in the place of the one at scale_at. It may stand in either half of a checksummed word.
static __always_inline long unify_write(struct __sk_buff *ctx, struct segment *s, __u32 scale_at, __u8 shift)
{
	__u32 at = scale_at & ~1u;
	__be16 old, new, mask;

	if (bpf_skb_load_bytes(ctx, s->l4 + at, &old, sizeof(old)))
		return -1;
	mask = scale_at & 1 ? bpf_htons(0x00ff) : bpf_htons(0xff00);
	new = (old & ~mask) | ((__be16)(shift << 8 | shift) & mask);
	return new == old ? 0 : option_write(ctx, s, at, old, new);
}

static __always_inline int observes(void)
{
	__u32 id = port_id;
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);

	return config && hold_of(config) == HOLD_NONE;
}

// The sender of a SYN, or of a SYN-ACK that takes up its option, announces s* from here on. If it cannot
// be written the sender keeps its own scale, and nothing of it is converted.
__noinline int unify_syn(struct __sk_buff *ctx, struct segment *s, struct end *e, struct tcp_options *o)
{
	if (!s || !e || !o || !o->scale_at || o->is_signed || observes() || unify_write(ctx, s, o->scale_at, unify_shift))
		return 0;
	e->told = unify_shift;
	e->flags |= END_UNIFIED;
	return 0;
}

// The same SYN or SYN-ACK sent again.
__noinline int unify_again(struct __sk_buff *ctx, struct segment *s, struct end *e)
{
	struct tcp_options o = {};

	if (!s || !e || !(e->flags & END_UNIFIED))
		return 0;
	segment_read_options(ctx, s, &o);
	if (o.scale_at && !o.is_signed)
		unify_write(ctx, s, o.scale_at, e->told);
	return 0;
}

// A SYN-ACK decides for both: without the option nobody scales.
__noinline int unify_syn_ack(struct __sk_buff *ctx, struct segment *s, struct end *opener, struct end *e,
			     struct tcp_options *o)
{
	if (!s || !opener || !e || !o)
		return 0;
	if (!o->has_scale)
		opener->flags &= ~END_UNIFIED;
	if (opener->flags & END_UNIFIED)
		unify_syn(ctx, s, e, o);
	return 0;
}

// How the windows are scaled that an end sends. What the SYNs told counts before the reserved bits, which
// anybody can set. 1 in the bits may as well be AccECN's, as nobody here saw the handshake: the scale that
// was inferred is then 1 at most, too, if a shim wrote it.
static __always_inline __u8 shift_of(const struct end *e, const struct segment *s)
{
	if (scale == SCALE_UNIFY && e->flags & END_UNIFIED)
		return e->told;
	if (scale == SCALE_SHIM && s->reserved > TCP_AE && !(e->flags & END_SCALE))
		return s->reserved;
	return e->shift;
}

// The field of an end's window in the unit that the other end takes it for.
__noinline int unify_field(const struct end *e, const struct segment *s)
{
	if (!e || !s)
		return 0;
	if (!(e->flags & END_UNIFIED) || s->flags & TCP_SYN)
		return s->window;
	return window_convert(s->window, e->shift, e->told);
}

#endif
