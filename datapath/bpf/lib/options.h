// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Reads the options of a TCP segment: MSS, window scale, signatures.
#ifndef WEIR_BPF_OPTIONS_H
#define WEIR_BPF_OPTIONS_H

#include "segment.h"

#define TCP_OPTIONS_MAX 40

struct tcp_options {
	__u16 mss;      // 0: no such option
	__u8 shift;     // of the window scale option; values above 14 become 14 (RFC 7323 2.3)
	__u8 has_scale;
	__u8 is_signed; // TCP-MD5 or TCP-AO (RFC 2385, RFC 5925): they sign the window
	__u8 scale_at;  // offset of the shift from the TCP header; 0: no such option
};

enum {
	OPTION_END = 0,
	OPTION_NOP = 1,
	OPTION_MSS = 2,
	OPTION_SCALE = 3,
	OPTION_MD5 = 19,
	OPTION_AO = 29,
};

struct option_walk {
	__u8 list[TCP_OPTIONS_MAX + 4];
	__u32 bytes;
	__u32 at;
	struct tcp_options found;
};

// Reads one option. Returns 1 at the end of the list, or if the list contradicts itself.
static __always_inline int option_read(struct option_walk *w)
{
	__u32 at = w->at;
	__u8 kind, length;

	if (at >= w->bytes || at >= TCP_OPTIONS_MAX)
		return 1;
	kind = w->list[at];
	if (kind == OPTION_END)
		return 1;
	if (kind == OPTION_NOP) {
		w->at = at + 1;
		return 0;
	}
	length = w->list[at + 1];
	if (length < 2 || at + length > w->bytes)
		return 1;
	if (kind == OPTION_MSS && length == 4)
		w->found.mss = w->list[at + 2] << 8 | w->list[at + 3];
	if (kind == OPTION_SCALE && length == 3) {
		w->found.shift = w->list[at + 2] < 14 ? w->list[at + 2] : 14;
		w->found.has_scale = 1;
		w->found.scale_at = TCP_BYTES + at + 2;
	}
	if (kind == OPTION_MD5 || kind == OPTION_AO)
		w->found.is_signed = 1;
	w->at = at + length;
	return 0;
}

#define OPTIONS_A_STEP 3 // options per call of the loop: a call takes longer than an option

static long option_step(__u32 i, struct option_walk *w)
{
	for (int n = 0; n < OPTIONS_A_STEP; n++)
		if (option_read(w))
			return 1;
	return 0;
}

// Reads a segment's options. A function of its own, so that the verifier checks it once.
__noinline int segment_read_options(struct __sk_buff *ctx, const struct segment *s, struct tcp_options *o)
{
	struct option_walk w = {};
	__u32 bytes;

	if (!s || !o)
		return 0;
	bytes = s->header - TCP_BYTES;
	if (bytes == 0 || bytes > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(ctx, s->l4 + TCP_BYTES, w.list, bytes))
		return 0;
	w.bytes = bytes;
	// This is 0, but the verifier does not know it. With a constant it would walk the list again from every byte.
	w.at = s->l4 >> 16;
	bpf_loop(TCP_OPTIONS_MAX / OPTIONS_A_STEP + 1, option_step, &w, 0);
	*o = w.found;
	return 0;
}

__noinline int segment_options_sign(struct __sk_buff *ctx, const struct segment *s)
{
	struct tcp_options o = {};

	if (!s)
		return 0;
	segment_read_options(ctx, s, &o);
	return o.is_signed;
}

// Reports whether the segment has an option that signs its header. Most segments have no options, or timestamps only.
static __always_inline int segment_is_signed(struct __sk_buff *ctx, const struct segment *s)
{
	const __be32 timestamps = bpf_htonl(0x0101080a); // NOP NOP kind 8 length 10
	__u8 *head = (__u8 *)(long)ctx->data;

	if (s->header == TCP_BYTES)
		return 0;
	if (s->header == TCP_BYTES + 12 && s->l4 < 256 &&
	    head + s->l4 + TCP_BYTES + 4 <= (__u8 *)(long)ctx->data_end &&
	    *(__be32 *)(head + s->l4 + TCP_BYTES) == timestamps)
		return 0;
	return segment_options_sign(ctx, s);
}

#endif
