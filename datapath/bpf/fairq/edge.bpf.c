// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The edge of edge mode (docs/fairq.md): a switch advertises a flow's window on some ACKs, and the edge writes it into all
// of them. edge.h describes the flag.
//
//                      port to a guest: a VM's, or a rack    a host's own device
//                      switch's to its server
//   weir_edge_apply    egress                                ingress (weir_edge_apply_in)
//   weir_edge_guard    ingress                               egress (weir_edge_guard_out)
//
//   apply  towards the sender of data. From a flagged ACK the edge takes the window, and clears the flag. Other ACKs are
//          limited to that window. `lease` after the last flagged ACK they pass unchanged: the switch that advertised
//          is gone.
//   guard  from the guest. It clears every flag: only switches may advertise windows.
//
// The guest's port is the boundary of trust. Between switches a flag is believed: an attacker who can forge packets
// there can forge anything. Without the guard, a guest could advertise windows of its own connections only, and it
// controls these windows anyway.
//
// The edge does not check signatures (TCP-MD5, TCP-AO). A switch flags no ACK of a signed flow: it checks this before
// it flags one. If a guest signs and sets the flag itself, the flag is cleared and the signature breaks. No honest end
// does both.
//
// Both programs read SYNs for the window scales: the least window and the right edge need them. If the handshake was not
// seen, windows are compared as the header has them. That is correct, because both fields come from the same end. A right
// edge cannot be kept then: with shrink: avoid such ACKs pass unchanged.
//
// Two tables hold the state, and each evicts its least recently used entry. Anybody can send SYNs, which fill
// `handshakes`. Only a flagged ACK makes an entry of `windows`, so a flood of SYNs evicts no limited flow.
#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../core/window.h"
#include "edge.h"
#include "../lib/counts.h"
#include "../lib/handshake.h"
#include "../lib/rewrite.h"
#include "../lib/segment.h"

#define EDGE_PORTS 1024

char _license[] SEC("license") = WEIR_LICENSE;

const volatile __u32 port_id = 0;
const volatile __u32 lease = 0;       // units of edge_clock
const volatile __u32 floor_bytes = 0; // least window of every flow; 0: from its own MSS
const volatile __u32 mss_max = 0;     // bytes: the port's MTU - 40
const volatile __u8 shrink = WINDOW_SHRINK_ALLOW;

// The key has the port, because tenants behind different ports may use the same addresses.
struct edge_key {
	struct flow_key flow;
	__u32 port; // in `windows`, the top bit is the side that sends the ACKs
	__u32 zero;
};

// Counts of segments towards the guest, as on the wire: a GSO packet counts as its segments. Each is counted in seen
// and in exactly one of the others up to unwritable.
struct edge_counts {
	__u64 seen;
	__u64 not_tcp;
	__u64 tunnel;
	__u64 fragment;
	__u64 short_;
	__u64 no_ack;  // SYN, RST, or nothing acknowledged
	__u64 advertised;   // flagged: its window was recorded
	__u64 applied; // limited to the window that was advertised
	__u64 smaller; // its window was small enough already
	__u64 unadvertised; // its flow has no advertised window
	__u64 expired; // the lease of the advertised window is over
	__u64 unwritable; // the kernel had no memory to make it writable
	__u64 forged;  // segments from the guest whose flag was cleared; not counted in seen
	__u64 learnt;  // handshakes seen, in either direction
	__u64 entered; // flows entered in `windows`
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EDGE_PORTS);
	__type(key, __u32);
	__type(value, struct edge_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct edge_key);
	__type(value, struct edge_handshake);
} handshakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct edge_key);
	__type(value, struct edge_window);
} windows SEC(".maps");

// Records a SYN or SYN-ACK, in either direction.
__noinline int on_handshake(struct __sk_buff *ctx, struct segment *s, struct edge_counts *stats)
{
	struct edge_key key = {.port = port_id};
	struct edge_handshake *known, h = {};
	struct tcp_options o = {};

	if (!s || !stats || s->flags & (TCP_RST | TCP_FIN))
		return 0;
	key.flow = s->key;
	known = bpf_map_lookup_elem(&handshakes, &key);
	segment_read_options(ctx, s, &o);
	if (!(s->flags & TCP_ACK)) {
		if (known)
			h = *known;
		if (handshake_asks(&h.seen, s, &o))
			bpf_map_update_elem(&handshakes, &key, &h, BPF_ANY);
		return 0;
	}
	if (!known || !handshake_answered(&known->seen, s, &o))
		return 0;
	edge_begins(known, s->side, s->ack, s->window);
	stats->learnt++;
	// A new connection of the same ends: windows advertised before belong to the older one.
	for (__u32 side = 0; side < 2; side++) {
		key.port = port_id | side << 31;
		bpf_map_delete_elem(&windows, &key);
	}
	return 0;
}

// Enters a flow in `windows` at the first window advertised for it.
__noinline int window_enter(struct edge_key *key, struct edge_counts *stats)
{
	struct edge_window w = {};
	struct edge_handshake *h;
	__u32 port, side;

	if (!key || !stats)
		return 0;
	port = key->port;
	side = port >> 31;
	key->port = port_id;
	h = bpf_map_lookup_elem(&handshakes, key);
	key->port = port;
	edge_enters(&w, h, side);
	bpf_map_update_elem(&windows, key, &w, BPF_ANY);
	stats->entered++;
	return 0;
}

static __always_inline void rules_of(struct edge_rules *rules)
{
	rules->lease = lease;
	rules->floor_bytes = floor_bytes;
	rules->mss_max = mss_max;
	rules->shrink = shrink;
}

// With shrink: avoid, records the right edge that an ACK grants which passes unchanged.
static __always_inline void window_note(const struct segment *s, struct edge_key *key, struct edge_window *w)
{
	__u32 port = key->port, side = port >> 31;
	struct edge_handshake *h;

	if (w) {
		if (w->known)
			edge_passes(&w->edge, w->shift, s->ack, s->window);
		return;
	}
	key->port = port_id;
	h = bpf_map_lookup_elem(&handshakes, key);
	key->port = port;
	if (h && h->seen.flags & HANDSHAKE_KNOWN)
		edge_passes(&h->edge[side & 1], h->seen.shift[side & 1], s->ack, s->window);
}

// Writes the field and clears the flag, if either changes.
static __always_inline void ack_write(struct __sk_buff *ctx, const struct segment *s, struct edge_counts *stats,
				      __u64 packets, __u16 field, __u64 *said)
{
	__u8 bits = s->reserved & ~EDGE_FLAG;

	if ((field != s->window || bits != s->reserved) && reserved_window_write(ctx, s, bits, field))
		said = &stats->unwritable;
	*said += packets;
}

// Handles an ACK towards the guest.
static __always_inline void on_ack(struct __sk_buff *ctx, struct segment *s, struct edge_counts *stats, __u64 packets)
{
	struct edge_key key = {.flow = s->key, .port = port_id | (__u32)(s->side & 1) << 31};
	struct edge_window *w = bpf_map_lookup_elem(&windows, &key);
	int flagged = s->reserved & EDGE_FLAG;
	__u32 now = edge_clock();
	struct edge_rules rules;
	__u16 field = s->window;

	rules_of(&rules);
	if (flagged) {
		if (!w) {
			window_enter(&key, stats);
			w = bpf_map_lookup_elem(&windows, &key);
		}
		if (w)
			field = edge_hears(&rules, w, s->ack, s->window, now);
		ack_write(ctx, s, stats, packets, field, &stats->advertised);
		return;
	}
	if (!w || !edge_remembers(&rules, w, now)) {
		if (shrink == WINDOW_SHRINK_AVOID)
			window_note(s, &key, w);
		if (w && w->field)
			stats->expired += packets;
		else
			stats->unadvertised += packets;
		return;
	}
	field = edge_limits(&rules, w, s->ack, s->window);
	ack_write(ctx, s, stats, packets, field, field == s->window ? &stats->smaller : &stats->applied);
}

static __always_inline int edge_apply(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct edge_counts *stats = bpf_map_lookup_elem(&counts, &id);
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
	} else if ((s.flags & (TCP_ACK | TCP_RST)) != TCP_ACK) {
		ack_write(ctx, &s, stats, packets, s.window, &stats->no_ack);
	} else {
		on_ack(ctx, &s, stats, packets);
	}
	return TCX_NEXT;
}

static __always_inline int edge_guard(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct edge_counts *stats = bpf_map_lookup_elem(&counts, &id);
	struct segment s = {};

	if (!stats || segment_read(ctx, &s) != SEGMENT_TCP)
		return TCX_NEXT;
	if (s.flags & TCP_SYN)
		on_handshake(ctx, &s, stats);
	else if (s.reserved & EDGE_FLAG && !reserved_write(ctx, &s, s.reserved & ~EDGE_FLAG))
		stats->forged += packets_of(ctx);
	return TCX_NEXT;
}

SEC("tcx/egress")
int weir_edge_apply(struct __sk_buff *ctx)
{
	return edge_apply(ctx);
}

SEC("tcx/ingress")
int weir_edge_guard(struct __sk_buff *ctx)
{
	return edge_guard(ctx);
}

SEC("tcx/ingress")
int weir_edge_apply_in(struct __sk_buff *ctx)
{
	return edge_apply(ctx);
}

SEC("tcx/egress")
int weir_edge_guard_out(struct __sk_buff *ctx)
{
	return edge_guard(ctx);
}
