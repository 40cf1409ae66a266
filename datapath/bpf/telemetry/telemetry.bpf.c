// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Telemetry of a port: a tcx egress program at the tail of the chain, behind the laws. It changes no packet and always
// returns TCX_NEXT. It counts the packets that the laws pass to the queue. A packet that a law drops does not reach it.
//
// One instance runs on each port; its port is a constant (mark.bpf.c says why). All ports share the table of connections,
// because both directions of a connection decide about its arrivals, and they leave by different ports.
//
// The table evicts the least recently used connection. Its entries are written without a lock: if two packets of one
// connection leave on two CPUs at the same moment, an arrival may be counted twice or not at all. All other counts are atomic.
#include "telemetry.h"
#include <bpf/bpf_helpers.h>
#include "../../core/arrivals.h"
#include "../lib/backlog.h"
#include "../lib/counts.h"
#include "../lib/frame.h"
#include "../lib/marked.h"
#include "../lib/segment.h"

char _license[] SEC("license") = WEIR_LICENSE;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TELEMETRY_PORTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct port_counts);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TELEMETRY_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct arrivals_flow);
} flows SEC(".maps");

struct address {
	__u32 word[4];
};

// The VM that has a source address.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TELEMETRY_SOURCES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} sources SEC(".maps");

const volatile __u32 port_id = 0;
const volatile __u32 collect = COLLECT_MARKS | COLLECT_ARRIVALS; // enum telemetry_collect
const volatile __u64 idle_ns = 20000000;

#define COUNT(p, n) ((void)__sync_fetch_and_add(p, n))

// Raises *most to bytes. Each failed try means that another CPU has raised it, so a few tries are enough.
static __always_inline void raise(__u32 *most, __u32 bytes)
{
	for (int i = 0; i < 8; i++) {
		__u32 old = *(volatile __u32 *)most;

		if (bytes <= old || __sync_val_compare_and_swap(most, old, bytes) == old)
			return;
	}
}

// Counts marked packets of a VM.
static __always_inline void count_vm(struct half *h, __u32 vm, __u64 packets)
{
	for (__u32 i = 0; i < TELEMETRY_VMS; i++) {
		struct vm_marks *m = &h->by_vm[(vm + i) & (TELEMETRY_VMS - 1)];
		__u32 has = *(volatile __u32 *)&m->vm;

		if (!has) {
			has = __sync_val_compare_and_swap(&m->vm, 0, vm);
			if (!has) {
				COUNT(&h->vms, 1);
				has = vm;
			}
		}
		if (has == vm) {
			COUNT(&m->packets, (__u32)packets);
			return;
		}
	}
	COUNT(&h->ce_rest, packets);
}

// Counts packets that a law at this port marked, by the VM that sent them. A function of its own, so that the verifier checks it once.
__noinline int count_marks(struct __sk_buff *ctx, struct half *h, const struct frame *f)
{
	struct address source, destination;
	__u64 packets;
	__u32 *vm;

	if (!h || !f)
		return 0;
	packets = packets_of(ctx);
	COUNT(&h->ce, packets);
	if (!frame_addresses(ctx, f->l3, f->kind == FRAME_IPV6, source.word, destination.word))
		return 0;
	vm = bpf_map_lookup_elem(&sources, &source);
	if (vm && *vm)
		count_vm(h, *vm, packets);
	else
		COUNT(&h->ce_unknown, packets);
	return 0;
}

static __always_inline __u32 source_hash(const __u32 *source)
{
	__u32 hash = 0x9e3779b9;

	for (int i = 0; i < 4; i++) {
		hash = (hash ^ source[i]) * 0x85ebca6b;
		hash ^= hash >> 15;
	}
	hash *= 0xc2b2ae35;
	hash ^= hash >> 13;
	return hash | 1;
}

static __always_inline int same_address(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

// TCP has no such address. A guest may send from it (DHCP), and no VM has it, so nobody would be charged for such arrivals.
static __always_inline int unspecified(const __u32 *a)
{
	return !(a[0] | a[1] | a[3]) && (!a[2] || a[2] == bpf_htonl(0xffff));
}

static __always_inline void count_pair(struct pair *p, __u32 kinds)
{
	if ((p->kinds & kinds) != kinds)
		__sync_fetch_and_or(&p->kinds, kinds);
	if (kinds & (ARRIVAL_SYN | ARRIVAL_SYN_ACK))
		COUNT(&p->opened, 1);
	if (kinds & ARRIVAL_RESUME)
		COUNT(&p->resumed, 1);
	if (kinds & ARRIVAL_REQUEST)
		COUNT(&p->requested, 1);
}

// Notes the pair of an arrival. Two CPUs that note a new pair at the same moment may note it twice. A function of its own, so
// that the verifier checks it once.
__noinline int note_pair(struct half *h, const struct address *from, const struct address *to, __u32 kinds)
{
	const __u32 *source, *destination;
	__u32 hash, of_source = 0;

	if (!h || !from || !to)
		return 0;
	source = from->word;
	destination = to->word;
	hash = source_hash(source);

	for (__u32 i = 0; i < TELEMETRY_PROBES; i++) {
		struct pair *p = &h->pair[(hash >> 1 ^ i) & (TELEMETRY_PAIRS - 1)];
		__u32 has = *(volatile __u32 *)&p->hash;

		if (!has && !__sync_val_compare_and_swap(&p->hash, 0, hash)) {
			for (int n = 0; n < 4; n++) {
				p->source[n] = source[n];
				p->destination[n] = destination[n];
			}
			count_pair(p, kinds);
			COUNT(&h->pairs, 1);
			return 0;
		}
		if (has != hash || !same_address(p->source, source))
			continue;
		if (same_address(p->destination, destination) || ++of_source == TELEMETRY_SOURCE_PAIRS) {
			count_pair(p, kinds);
			return 0;
		}
	}
	COUNT(&h->pairs_rest, 1);
	return 0;
}

static __always_inline void count_kinds(struct half *h, __u32 kinds)
{
	if (kinds & ARRIVAL_SYN)
		COUNT(&h->syn, 1);
	if (kinds & ARRIVAL_SYN_ACK)
		COUNT(&h->syn_ack, 1);
	if (kinds & ARRIVAL_FIN)
		COUNT(&h->fin, 1);
	if (kinds & ARRIVAL_RST)
		COUNT(&h->rst, 1);
	if (kinds & ARRIVAL_RESUME)
		COUNT(&h->resume, 1);
	if (kinds & ARRIVAL_FOUND)
		COUNT(&h->found, 1);
	if (kinds & ARRIVAL_REQUEST)
		COUNT(&h->request, 1);
}

// Returns what a segment is: a sum of enum arrival.
static __always_inline __u32 arrival_of(const struct segment *s)
{
	struct arrivals_config config = {.idle_ns = idle_ns};
	struct arrivals_packet p = {.seq = s->seq, .ack = s->ack, .payload = s->payload, .flags = s->flags, .side = s->side};
	struct arrivals_flow *flow, fresh = {};
	__u32 kinds;

	p.now_ns = bpf_ktime_get_ns();
	flow = bpf_map_lookup_elem(&flows, &s->key);
	if (flow)
		return arrivals_see(&config, flow, &p);
	kinds = arrivals_see(&config, &fresh, &p);
	bpf_map_update_elem(&flows, &s->key, &fresh, BPF_NOEXIST);
	return kinds;
}

#define BEGINS (ARRIVAL_SYN | ARRIVAL_SYN_ACK | ARRIVAL_RESUME | ARRIVAL_FOUND | ARRIVAL_REQUEST)

// Counts the arrivals of a packet. A function of its own, so that the verifier checks it once.
__noinline int count_arrivals(struct __sk_buff *ctx, struct half *h, const struct frame *f)
{
	struct segment s = {};
	struct address source, destination;
	__u32 kinds;

	if (!h || !f || segment_read(ctx, &s) != SEGMENT_TCP || !arrivals_matter(s.payload, s.flags))
		return 0;
	kinds = arrival_of(&s);
	if (!kinds)
		return 0;
	if (kinds & BEGINS) {
		if (!frame_addresses(ctx, f->l3, f->kind == FRAME_IPV6, source.word, destination.word) || unspecified(source.word) || unspecified(destination.word))
			return 0;
		note_pair(h, &source, &destination, kinds & BEGINS);
	}
	count_kinds(h, kinds);
	return 0;
}

SEC("tcx/egress")
int weir_telemetry(struct __sk_buff *ctx)
{
	__u32 id = port_id;
	struct port_counts *p = bpf_map_lookup_elem(&ports, &id);
	struct frame f = {};
	struct half *h;

	if (!p)
		return TCX_NEXT;
	h = __sync_fetch_and_add(&p->word, 1) >> TELEMETRY_HALF_SHIFT ? &p->half[1] : &p->half[0];
	raise(&h->peak_bytes, BACKLOG(ctx));
	COUNT(&h->packets, packets_of(ctx));
	COUNT(&h->bytes, ctx->wire_len);
	if (collect) {
		frame_read(ctx, &f);
		if (f.kind == FRAME_IPV4 || f.kind == FRAME_IPV6) {
			if (collect & COLLECT_MARKS && f.ecn == FRAME_ECN_CE && was_marked_here(ctx))
				count_marks(ctx, h, &f);
			if (collect & COLLECT_ARRIVALS)
				count_arrivals(ctx, h, &f);
		}
	}
	// An atomic add whose old value is used is ordered behind the counts (BPF_FETCH). Another may overtake them on arm64.
	asm volatile("" : : "r"(__sync_fetch_and_add(&h->done, 1)));
	return TCX_NEXT;
}
