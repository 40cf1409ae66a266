// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairQ's end-host shim: it writes the window scale of an end where switches can read it (docs/spec 1.2).
//
//                    sending side                          receiving side
//   where            uplink of a host or hypervisor        VM port, or the last switch port
//   weir_shim_hear   ingress: reads                        ingress: reads
//   weir_shim_send   egress: writes the reserved bits      -
//   weir_shim_clear  -                                     egress: clears them
//
// The 4 reserved bits of an ACK carry its sender's window scale, for switches that did not see the handshake. The
// checksum is always updated, so every switch on the path may read the bits. Only the last program clears them (FQ-17).
//
// The shim changes a segment only if it saw both SYNs of the connection, because a scale counts only if both ends
// announced one (RFC 7323 1.3). For that it reads both directions of a port. It never rewrites at ingress: taps, and so
// a userspace Open vSwitch, get the packet before the program does.
//
// A scale of 0 is written as 0, which switches read as "no scale given". A switch that saw the handshake then has the
// same 0. Any other switch infers the smallest scale that explains the bytes in flight. These never exceed an unscaled
// field, so it infers 0 as well.
//
// Two kinds pass unchanged. Signed segments (TCP-MD5, TCP-AO) sign these bits, too. Connections that negotiated AccECN
// use the lowest reserved bit for a counter (RFC 9768).
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../lib/counts.h"
#include "../lib/handshake.h"
#include "../lib/rewrite.h"
#include "../lib/segment.h"

#define SHIM_PORTS 1024

char _license[] SEC("license") = WEIR_LICENSE;

const volatile __u32 port_id = 0;

// The key has the port, because tenants behind different ports may use the same addresses.
struct shim_key {
	struct flow_key flow;
	__u32 port;
	__u32 zero;
};

// Counts of packets that left by the port, as on the wire: a GSO packet counts as its segments. Each is counted in
// seen and in exactly one of the others up to unwritable.
struct shim_counts {
	__u64 seen;
	__u64 not_tcp;
	__u64 tunnel;
	__u64 fragment;
	__u64 short_;
	__u64 no_ack;  // a SYN, or no ACK: it has no scaled window
	__u64 written; // the bits were changed
	__u64 same;    // the bits were right already
	__u64 unknown; // the handshake was not seen
	__u64 signed_; // TCP-MD5, TCP-AO
	__u64 accecn;
	__u64 unwritable; // the kernel had no memory to make it writable
	__u64 learnt;     // handshakes seen, in either direction
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHIM_PORTS);
	__type(key, __u32);
	__type(value, struct shim_counts);
} counts SEC(".maps");

// Handshakes by port and connection. The map evicts the least recently used entry when it is full. No entry is removed
// at a FIN, because ACKs still pass after it.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct shim_key);
	__type(value, struct handshake);
} connections SEC(".maps");

// Records a SYN or SYN-ACK, in either direction.
__noinline int on_handshake(struct __sk_buff *ctx, struct segment *s, struct shim_counts *stats)
{
	struct shim_key key = {.port = port_id};
	struct tcp_options o = {};
	struct handshake *known, h = {};

	if (!s || !stats || s->flags & (TCP_RST | TCP_FIN))
		return 0;
	key.flow = s->key;
	known = bpf_map_lookup_elem(&connections, &key);
	segment_read_options(ctx, s, &o);
	if (s->flags & TCP_ACK) {
		if (known && handshake_answered(known, s, &o))
			stats->learnt++;
		return 0;
	}
	if (known)
		h = *known;
	if (handshake_asks(&h, s, &o))
		bpf_map_update_elem(&connections, &key, &h, BPF_ANY);
	return 0;
}

// Writes the sender's scale, or 0, into an ACK that leaves by the port.
static __always_inline void on_segment(struct __sk_buff *ctx, const struct segment *s, struct shim_counts *stats,
				       __u64 packets, int clear)
{
	struct shim_key key = {.port = port_id};
	struct handshake *c;
	__u8 bits;

	if (clear && !s->reserved) { // the usual case: it needs no lookup
		stats->same += packets;
		return;
	}
	key.flow = s->key;
	c = bpf_map_lookup_elem(&connections, &key);
	if (!c || !(c->flags & HANDSHAKE_KNOWN)) {
		stats->unknown += packets;
		return;
	}
	if (c->flags & HANDSHAKE_ACCECN) {
		stats->accecn += packets;
		return;
	}
	bits = clear ? 0 : c->shift[s->side & 1];
	if (c->flags & HANDSHAKE_SIGNED)
		stats->signed_ += packets;
	else if (bits == s->reserved)
		stats->same += packets;
	else if (segment_is_signed(ctx, s)) // although its SYNs were not
		stats->signed_ += packets;
	else if (reserved_write(ctx, s, bits))
		stats->unwritable += packets;
	else
		stats->written += packets;
}

static __always_inline int shim_packet(struct __sk_buff *ctx, int clear)
{
	__u32 id = port_id;
	struct shim_counts *stats = bpf_map_lookup_elem(&counts, &id);
	__u64 packets = packets_of(ctx);
	struct segment s = {};
	enum segment_kind kind;

	if (!stats)
		return TCX_NEXT;
	stats->seen += packets;
	kind = segment_read(ctx, &s);
	if (kind != SEGMENT_TCP) {
		count_not_tcp(&stats->not_tcp, kind, packets);
	} else if (s.flags & TCP_SYN) {
		stats->no_ack += packets;
		on_handshake(ctx, &s, stats);
	} else if (!(s.flags & TCP_ACK)) {
		stats->no_ack += packets;
	} else {
		on_segment(ctx, &s, stats, packets, clear);
	}
	return TCX_NEXT;
}

SEC("tcx/egress")
int weir_shim_send(struct __sk_buff *ctx)
{
	return shim_packet(ctx, 0);
}

SEC("tcx/egress")
int weir_shim_clear(struct __sk_buff *ctx)
{
	return shim_packet(ctx, 1);
}

SEC("tcx/ingress")
int weir_shim_hear(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct shim_counts *stats = bpf_map_lookup_elem(&counts, &id);
	struct segment s = {};

	if (stats && segment_read(ctx, &s) == SEGMENT_TCP && s.flags & TCP_SYN)
		on_handshake(ctx, &s, stats);
	return TCX_NEXT;
}
