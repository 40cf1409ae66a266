// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The measuring program records the events at the queues of given ports, independent of the law there. It reads
// the kernel's own counters at the kernel's own trace points, shares no map with a law, and changes no packet.
//
//   weir_arrival    tcx egress, before every law: notes in the packet's control block whether it arrived
//                   with CE
//   weir_departure  tcx egress, after every law: counts the packet if it has CE now and had not
//   weir_enqueue    tp_btf/qdisc_enqueue, the port's root queue accepted a packet
//   weir_dequeue    tp_btf/qdisc_dequeue, the port's root queue released one (or none: it waits for tokens)
//   weir_drop       tp_btf/kfree_skb, with the kernel's reason
//
// Samples are on a fixed grid of time. The state of a queue changes only at one of the two queue events, under the
// queue's lock. So each event reports the previous state for all grid points since the previous event: no timer,
// no device pointer, no grid point missing or late. A point at exactly the nanosecond of an event has the state
// before it. Bytes and drops are the queue discipline's own counters; this program does not count what the kernel
// counts itself.
//
// Marks are packets that arrived at the port without CE and entered the queue with it. weir_departure counts them
// before the queue accepts them; weir_drop subtracts those that the queue then drops, segment by segment. This
// works because the kernel keeps the first 28 bytes of the control block through tbf, htb and the fifos, and
// copies them to each segment of a packet that the queue splits.
//
// Missed events: the kernel does not run a trace point's program recursively, and on some machines it does not run
// it in the context of some processes at all. The next event repairs a missed queue event, because counters are
// read and not kept. A missed drop is a difference between the queue's counter and the events; user space reports
// it as a drop of no known flow.
#include "../../../datapath/bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "../../../datapath/bpf/lib/frame.h"
#include "records.h"
#include "packet.h"

#define MEASURE_PORTS 4096
#define ECN_CE 3

char _license[] SEC("license") = WEIR_LICENSE;

// An ifindex is unique only within its network namespace.
struct port_key {
	__u64 netns_cookie;
	__u32 ifindex;
	__u32 zero;
};

// A port and the state of its queue at the last event there. Written under the queue's lock, except marks.
struct port {
	__u64 next_ns;       // the first grid point not reported yet
	__u64 sent_bytes;    // released by the queue since the start
	__u64 counter_bytes; // the queue discipline's own counter
	__u64 marks;         // packets that got CE here; atomic
	__u64 marks_dropped; // those of them that the queue dropped; atomic
	__u32 drops;         // by the queue since the start
	__u32 counter_drops; // the queue discipline's own counter
	__u32 backlog_bytes;
	__u32 id;
	__u32 sample; // 0: only its drops are recorded
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MEASURE_PORTS);
	__type(key, struct port_key);
	__type(value, struct port);
} ports SEC(".maps");

// User space sets the size. It polls, so the program never wakes it.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

const volatile __u64 step_ns = 500000;
__u64 lost_records;

// For the declarations in Go.
const struct sample *unused_sample __attribute__((unused));
const struct drop *unused_drop __attribute__((unused));

static __always_inline struct port *port_of(const struct net_device *dev)
{
	struct port_key key = {.netns_cookie = dev->nd_net.net->net_cookie, .ifindex = dev->ifindex};

	return bpf_map_lookup_elem(&ports, &key);
}

// ---- around the laws ----

// __sk_buff's cb[4], whose bytes no qdisc but choke uses: a tag, the offset of the IP header, its version and the
// ECN field on arrival. The tag is needed because control blocks contain old data of other users.
#define NOTE_CB 4
#define NOTE_TAG 0x57650000
#define NOTE_TAG_MASK 0xffff0000
#define NOTE_L3_SHIFT 8
#define NOTE_IPV6 4

SEC("tcx/egress")
int weir_arrival(struct __sk_buff *ctx)
{
	struct frame f = {};
	__u32 note = 0;

	frame_read(ctx, &f);
	if (f.kind == FRAME_IPV4 || f.kind == FRAME_IPV6)
		note = NOTE_TAG | f.l3 << NOTE_L3_SHIFT | (f.kind == FRAME_IPV6 ? NOTE_IPV6 : 0) | f.ecn;
	ctx->cb[NOTE_CB] = note;
	return TCX_NEXT;
}

// Reports whether a packet with this note arrived without CE.
static __always_inline int came_without_ce(__u32 note)
{
	return (note & NOTE_TAG_MASK) == NOTE_TAG && (note & 3) != ECN_CE;
}

static __always_inline __u32 note_l3(__u32 note)
{
	return note >> NOTE_L3_SHIFT & 0xff;
}

// Reports whether the first 16 bits of the IP header, in host order, have CE.
static __always_inline int says_ce(__u32 note, __u16 word)
{
	return (word >> (note & NOTE_IPV6 ? FRAME_IPV6_ECN_SHIFT : FRAME_IPV4_ECN_SHIFT) & 3) == ECN_CE;
}

SEC("tcx/egress")
int weir_departure(struct __sk_buff *ctx)
{
	__u32 note = ctx->cb[NOTE_CB];
	struct sk_buff *skb;
	struct port *p;
	__be16 word;

	if (!came_without_ce(note) || bpf_skb_load_bytes(ctx, note_l3(note), &word, sizeof(word)) ||
	    !says_ce(note, bpf_ntohs(word)))
		return TCX_NEXT;
	// bpf_get_netns_cookie would return the socket's namespace, and the first one for a forwarded packet.
	skb = bpf_cast_to_kern_ctx(ctx);
	p = port_of(skb->dev);
	if (p)
		__sync_fetch_and_add(&p->marks, ctx->gso_segs > 1 ? ctx->gso_segs : 1);
	return TCX_NEXT;
}

// ---- queue events ----

static __always_inline __u64 counter_bytes(struct Qdisc *q)
{
	return *(__u64 *)&q->bstats.bytes;
}

// Reports the state since the last event for the grid points since then.
static __always_inline void report(struct port *p)
{
	__u64 now = bpf_ktime_get_ns();
	struct sample *s;
	__u64 count;

	if (now < p->next_ns)
		return;
	count = (now - p->next_ns) / step_ns + 1;
	s = bpf_ringbuf_reserve(&records, sizeof(*s), 0);
	if (s) {
		s->kind = RECORD_SAMPLE;
		s->port = p->id;
		s->first_ns = p->next_ns;
		s->marks = p->marks - p->marks_dropped;
		s->sent_bytes = p->sent_bytes;
		s->count = count;
		s->backlog_bytes = p->backlog_bytes;
		s->drops = p->drops;
		s->zero = 0;
		bpf_ringbuf_submit(s, BPF_RB_NO_WAKEUP);
	} else {
		__sync_fetch_and_add(&lost_records, 1);
	}
	p->next_ns += count * step_ns;
}

// Updates the state of port p from its queue. A queue discipline that was replaced counts from 0 again.
static __always_inline void update(struct port *p, struct Qdisc *q)
{
	__u64 bytes = counter_bytes(q);
	__u32 drops = q->qstats.drops;

	p->backlog_bytes = q->qstats.backlog;
	p->sent_bytes += bytes >= p->counter_bytes ? bytes - p->counter_bytes : bytes;
	p->counter_bytes = bytes;
	p->drops += drops >= p->counter_drops ? drops - p->counter_drops : drops;
	p->counter_drops = drops;
}

static __always_inline int queue_event(struct Qdisc *q, const struct netdev_queue *txq)
{
	struct port *p = port_of(txq->dev);

	if (p && p->sample) {
		report(p);
		update(p, q);
	}
	return 0;
}

SEC("tp_btf/qdisc_enqueue")
int BPF_PROG(weir_enqueue, struct Qdisc *q, const struct netdev_queue *txq)
{
	// The packet is not an argument of this program: tbf has freed it if it split it.
	return queue_event(q, txq);
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(weir_dequeue, struct Qdisc *q, const struct netdev_queue *txq, int packets, struct sk_buff *skb)
{
	// A shaper is called more often than it releases packets; then nothing has changed.
	return skb ? queue_event(q, txq) : 0;
}

// ---- drops ----

enum skb_drop_reason {
	SKB_DROP_REASON_TC_EGRESS = 1,
	SKB_DROP_REASON_QDISC_DROP,
	SKB_DROP_REASON_QDISC_OVERLIMIT, // 6.14
	SKB_DROP_REASON_QDISC_CONGESTED, // 6.14
};

#define IS_REASON(reason, name)                                        \
	(bpf_core_enum_value_exists(enum skb_drop_reason, name) && \
	 (reason) == bpf_core_enum_value(enum skb_drop_reason, name))

// Returns how many packets skb stands for on the line.
static __always_inline __u64 wire_packets(struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)(skb->head + skb->end);
	__u16 segments = 0;

	bpf_core_read(&segments, sizeof(segments), &shared->gso_segs);
	return segments > 1 ? segments : 1;
}

// Reports whether weir_departure has counted skb as marked.
static __always_inline int was_marked(struct sk_buff *skb)
{
	struct qdisc_skb_cb *cb = (void *)skb->cb;
	__u32 note = *(__u32 *)&cb->data[NOTE_CB * 4];
	__be16 word;

	return came_without_ce(note) && !load(skb, note_l3(note), &word, sizeof(word)) && says_ce(note, bpf_ntohs(word));
}

// Called for every packet that is dropped: each packet of a list separately (kfree_skb_list_reason), and each
// segment that tbf could not queue.
SEC("tp_btf/kfree_skb")
int BPF_PROG(weir_drop, struct sk_buff *skb, void *location, enum skb_drop_reason reason)
{
	int law = IS_REASON(reason, SKB_DROP_REASON_TC_EGRESS);
	struct net_device *dev = skb->dev;
	struct port *p;
	struct drop *d;

	if (!dev)
		return 0;
	p = port_of(dev);
	if (!p)
		return 0;
	if (!law && !IS_REASON(reason, SKB_DROP_REASON_QDISC_DROP) &&
	    !IS_REASON(reason, SKB_DROP_REASON_QDISC_OVERLIMIT) &&
	    !IS_REASON(reason, SKB_DROP_REASON_QDISC_CONGESTED))
		return 0;
	if (!law && p->sample && was_marked(skb))
		__sync_fetch_and_add(&p->marks_dropped, wire_packets(skb));
	d = bpf_ringbuf_reserve(&records, sizeof(*d), 0);
	if (!d) {
		__sync_fetch_and_add(&lost_records, 1);
		return 0;
	}
	__builtin_memset(d, 0, sizeof(*d));
	d->kind = RECORD_DROP;
	d->port = p->id;
	d->at_ns = bpf_ktime_get_ns();
	d->bytes = ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
	d->packets = wire_packets(skb);
	d->law = law;
	read_key(skb, d);
	bpf_ringbuf_submit(d, BPF_RB_NO_WAKEUP);
	return 0;
}
