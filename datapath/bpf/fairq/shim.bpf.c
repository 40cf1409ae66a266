// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// FairQ's end-host shim: it tells the switches how the windows of an end are scaled (docs/spec 1.2).
//
//                    sending side                          receiving side
//   where            uplink of a host or hypervisor        VM port, or the last switch port
//   weir_shim_hear   ingress: reads                        ingress: reads
//   weir_shim_send   egress: writes the reserved bits      -
//   weir_shim_clear  -                                     egress: clears them
//
// The 4 reserved bits of a segment that acknowledges hold its sender's window scale, so that a switch
// that did not see the handshake knows it all the same. The checksum always follows, so every switch on
// the path may read them, and only the last program takes them away (FQ-17).
//
// Who did not see both SYNs of a connection touches none of its segments. Both directions of a port are
// read for that: a scale counts only if both ends announced one (RFC 7323 1.3). Ingress is never
// rewritten: taps, and so a userspace Open vSwitch, have the packet before.
//
// A scale of 0 is written as 0, which reads as "nobody told". The switch then takes what it learnt: the
// same 0 if it saw the handshake; if not, the smallest scale that explains the bytes in flight, and those
// never exceed an unscaled field, so that is 0 as well.
//
// Left alone: signed segments (TCP-MD5, TCP-AO), which sign these bits too, and connections that
// negotiated AccECN, whose lowest reserved bit is a counter's (RFC 9768).
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../lib/segment.h"

#define SHIM_PORTS 1024
#define SHIM_ASKED_MAX 0xffffu // how far an answer may acknowledge beyond a SYN: data in it (RFC 7413)

char _license[] SEC("license") = WEIR_LICENSE;

const volatile __u32 port_id = 0;

// A port has a table of its own within the map: what tenants behind different ports have for addresses
// may be the same.
struct shim_key {
	struct flow_key flow;
	__u32 port;
};

enum shim_flags {
	SHIM_ASKED = 1, // a SYN was seen: asked, opener and asked_* are valid
	SHIM_KNOWN = 2, // and the SYN-ACK to one: shift is valid
	SHIM_SCALE = 4, // asked_flags: had a window scale
	SHIM_SIGNED = 8,
	SHIM_ACCECN = 16,
};

// What the handshake told. An entry goes when the table needs room and it is the one unused longest: it
// outlives the FIN, after which acknowledgements still flow. A SYN alone leaves what is known of the
// connection as it is: anyone can send one.
struct shim_connection {
	__u32 asked; // acknowledges the last SYN
	__u8 opener; // side that sent it
	__u8 asked_shift;
	__u8 asked_flags; // SHIM_SCALE, SHIM_SIGNED (every segment is, or none); SHIM_ACCECN if an answer agreed
	__u8 flags;       // SHIM_ASKED, SHIM_KNOWN, SHIM_SIGNED, SHIM_ACCECN
	__u8 shift[2];    // of the windows of each side
	__u8 zero[2];
};

// Packets that left by the port, as they are on the wire: a GSO packet counts its segments. Each is in
// seen and in one of the others up to unwritable.
struct shim_counts {
	__u64 seen;
	__u64 not_tcp;
	__u64 tunnel;
	__u64 fragment;
	__u64 short_;
	__u64 no_ack;  // SYN, or nothing acknowledged: no window that is scaled
	__u64 written; // the bits were changed
	__u64 same;    // they were right already
	__u64 unknown; // the handshake was not seen
	__u64 signed_; // TCP-MD5, TCP-AO
	__u64 accecn;
	__u64 unwritable; // the kernel had no memory to make it writable
	__u64 learnt;     // handshakes, in either direction
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SHIM_PORTS);
	__type(key, __u32);
	__type(value, struct shim_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct shim_key);
	__type(value, struct shim_connection);
} connections SEC(".maps");

// A SYN is only noted: its answer says whether it counts.
static __always_inline void on_asked(const struct shim_key *key, const struct shim_connection *known,
				     const struct segment *s, const struct tcp_options *o)
{
	struct shim_connection c = {};

	if (known)
		c = *known;
	if (c.flags & SHIM_ASKED && c.opener == (s->side & 1) && c.asked == s->seq + 1)
		return; // sent again
	c.asked = s->seq + 1;
	c.opener = s->side & 1;
	c.asked_shift = o->shift;
	c.asked_flags = (o->has_scale ? SHIM_SCALE : 0) | (o->is_signed ? SHIM_SIGNED : 0);
	c.flags |= SHIM_ASKED;
	bpf_map_update_elem(&connections, key, &c, BPF_ANY);
}

// SYN or SYN-ACK, in either direction.
__noinline int on_handshake(struct __sk_buff *ctx, struct segment *s, struct shim_counts *stats)
{
	struct shim_key key = {.port = port_id};
	struct tcp_options o = {};
	struct shim_connection *c;
	int scaled;

	if (!s || !stats || s->flags & (TCP_RST | TCP_FIN))
		return 0;
	key.flow = s->key;
	c = bpf_map_lookup_elem(&connections, &key);
	segment_read_options(ctx, s, &o);
	if (!(s->flags & TCP_ACK)) {
		on_asked(&key, c, s, &o);
		return 0;
	}
	if (!c || !(c->flags & SHIM_ASKED) || c->opener == (s->side & 1) || s->ack - c->asked > SHIM_ASKED_MAX)
		return 0;
	scaled = o.has_scale && c->asked_flags & SHIM_SCALE;
	c->shift[!c->opener] = scaled ? o.shift : 0;
	c->shift[c->opener & 1] = scaled ? c->asked_shift : 0;
	if (segment_answers_accecn(s))
		c->asked_flags |= SHIM_ACCECN;
	c->flags = SHIM_ASKED | SHIM_KNOWN | (c->asked_flags & (SHIM_SIGNED | SHIM_ACCECN));
	stats->learnt++;
	return 0;
}

// Puts bits in the place of the reserved ones. The helper knows the states of a checksum: whole, partial
// (the device adds the rest), complete (the sum over the packet, which stays: bits and checksum change it
// to and fro).
static __always_inline long bits_write(struct __sk_buff *ctx, const struct segment *s, __u8 bits)
{
	__u16 word = s->header / 4 << 12 | s->flags;
	__be16 old = bpf_htons(word | s->reserved << 8), new = bpf_htons(word | bits << 8);
	__u8 byte = word >> 8 | bits;
	long err = bpf_l4_csum_replace(ctx, s->l4 + TCP_CHECK, old, new, sizeof(new));

	// The checksum's write has made the header writable: the store cannot fail after it.
	return err ? err : bpf_skb_store_bytes(ctx, s->l4 + TCP_RESERVED, &byte, sizeof(byte), 0);
}

static __always_inline void count_not_tcp(struct shim_counts *stats, enum segment_kind kind, __u64 packets)
{
	if (kind == SEGMENT_OTHER)
		stats->not_tcp += packets;
	else if (kind == SEGMENT_TUNNEL)
		stats->tunnel += packets;
	else if (kind == SEGMENT_FRAGMENT)
		stats->fragment += packets;
	else
		stats->short_ += packets;
}

// A segment that acknowledges leaves by the port: it gets the scale of its sender, or 0.
static __always_inline void on_segment(struct __sk_buff *ctx, const struct segment *s, struct shim_counts *stats,
				       __u64 packets, int clear)
{
	struct shim_key key = {.port = port_id};
	struct shim_connection *c;
	__u8 bits;

	if (clear && !s->reserved) { // mostly, and no lookup is needed to know it
		stats->same += packets;
		return;
	}
	key.flow = s->key;
	c = bpf_map_lookup_elem(&connections, &key);
	if (!c || !(c->flags & SHIM_KNOWN)) {
		stats->unknown += packets;
		return;
	}
	if (c->flags & SHIM_ACCECN) {
		stats->accecn += packets;
		return;
	}
	bits = clear ? 0 : c->shift[s->side & 1];
	if (c->flags & SHIM_SIGNED)
		stats->signed_ += packets;
	else if (bits == s->reserved)
		stats->same += packets;
	else if (segment_is_signed(ctx, s)) // since its handshake
		stats->signed_ += packets;
	else if (bits_write(ctx, s, bits))
		stats->unwritable += packets;
	else
		stats->written += packets;
}

static __always_inline int shim_packet(struct __sk_buff *ctx, int clear)
{
	__u32 id = port_id;
	struct shim_counts *stats = bpf_map_lookup_elem(&counts, &id);
	__u64 packets = ctx->gso_segs > 1 ? ctx->gso_segs : 1;
	struct segment s = {};
	enum segment_kind kind;

	if (!stats)
		return TCX_NEXT;
	stats->seen += packets;
	kind = segment_read(ctx, &s);
	if (kind != SEGMENT_TCP) {
		count_not_tcp(stats, kind, packets);
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
