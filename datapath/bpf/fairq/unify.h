// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// scale: unify. Every SYN and SYN-ACK is rewritten to announce one window scale s* (`unify_shift`). Every later window is
// converted from its sender's own scale to s*, which the receiver assumes:
//
//   A --- SYN scale a ---> [switch: notes a] --- SYN scale s* ---> B
//   A --- field << a ----> [switch]          --- field' << s* ---> B
//
//   own      bytes of A's window: field << a
//   field'   own >> s*, rounded down: the field never promises more room than A has
//   law      a smaller grant is rounded up to s*, which does not exceed own rounded down
//
// So every switch behind the first one knows every scale without a table: it sees s*, and its conversion changes
// nothing. A SYN's window is never scaled and not converted.
//
// This cannot fail open: the ends use the announced scale until the connection ends. So the conversion goes on where
// nothing is granted (no flows counted, no heartbeat, windows released). If it stops (Close, a change of scale, a lost
// entry), it breaks the windows of open connections. Both directions must cross the switch, each once. Windows are
// multiples of 1 << s* bytes: a receiver with less room than one step appears closed.
//
// A port that observes (ENFORCE_NONE) passes SYNs unchanged. Connections whose SYN it rewrote before are still converted.
//
// Connections whose SYN was not rewritten keep their own scales, as with `learn`: those of observing ports, older ones,
// signed ones, and those with one end that lacks the option.
#ifndef WEIR_BPF_UNIFY_H
#define WEIR_BPF_UNIFY_H

#include "flows.h"
#include "port.h"
#include "../lib/options.h"
#include "../lib/rewrite.h"

// Writes a shift at scale_at, which may be either byte of a 16-bit word of the checksum. Returns 0 or an error.
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

	return config && mode_of(config) == ENFORCE_NONE;
}

// Rewrites the scale of a SYN, or of the SYN-ACK to a rewritten SYN, to s*. If the write fails, the sender keeps its own
// scale and its windows are not converted.
__noinline int unify_syn(struct __sk_buff *ctx, struct segment *s, struct end *e, struct tcp_options *o)
{
	if (!s || !e || !o || !o->scale_at || o->is_signed || observes() || unify_write(ctx, s, o->scale_at, unify_shift))
		return 0;
	e->announced = unify_shift;
	e->flags |= END_UNIFIED;
	return 0;
}

// Rewrites a SYN or SYN-ACK that was sent again.
__noinline int unify_again(struct __sk_buff *ctx, struct segment *s, struct end *e)
{
	struct tcp_options o = {};

	if (!s || !e || !(e->flags & END_UNIFIED))
		return 0;
	segment_read_options(ctx, s, &o);
	if (o.scale_at && !o.is_signed)
		unify_write(ctx, s, o.scale_at, e->announced);
	return 0;
}

// Handles a SYN-ACK, which decides for both ends: without the option neither scales.
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

// Returns the scale of the windows that an end sends. A scale from the SYNs counts before the reserved bits, which anybody
// can set. A value of 1 in the bits may also be AccECN's, because the handshake was not seen. Then the inferred scale is
// used: it is 1 at most, too, if a shim wrote the bits.
static __always_inline __u8 shift_of(const struct end *e, const struct segment *s)
{
	if (unlikely(e->flags & END_UNIFIED) && scale == SCALE_UNIFY)
		return e->announced;
	if (unlikely(!(e->flags & END_SCALE)) && scale == SCALE_SHIM && s->reserved > TCP_AE)
		return s->reserved;
	return e->shift;
}

// Returns the field of an end's window in the scale that the other end assumes.
__noinline int unify_field(const struct end *e, const struct segment *s)
{
	if (!e || !s)
		return 0;
	if (!(e->flags & END_UNIFIED) || s->flags & TCP_SYN)
		return s->window;
	return window_convert(s->window, e->shift, e->announced);
}

#endif
