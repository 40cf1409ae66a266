// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The trace of the differential run (docs/differential.md). It records, in order, every decision of core about a port's
// flows, windows and acknowledgements. The native build of core then makes the same decisions again, and the results
// are compared to the bit.
//
// datapath/fairq/lawtrace compiles it, with WEIR_LAW_TRACE. Without that macro everything here is empty, and the switch
// program has the same instructions as without this file.
//
//   turn    one change of a port under its lock (core/fairq/release.h), and the port after it
//   count   a direction that begins or ends to count at a port (core/fairq/seats.h)
//   look    whether a packet must sample
//   ack     an acknowledgement: the grant of its data's port, whether it is left to the edge, and what is written
//           (core/fairq/groups.h, window.h, edge.h)
//
// Order: each port has a number that its lock guards. Each change of the port, and each decision that depends on it, takes
// the next number under the lock. Turns take it before they unlock; counts, looks and acks lock here for it. (Without a
// trace counts are atomic additions, and an ack reads the port without the lock.) So the numbers of a port are the
// order of its decisions on all CPUs. The ring may return records in another order; the reader sorts them. If the ring
// is full, the record is counted as lost and its number is missing: the reader refuses such a trace.
//
// The record holds all inputs of a decision: time, backlog, whether the lease is valid, data since the last tick,
// configurations, MSS, buckets, and the state of the end that sent the ACK.
#ifndef WEIR_BPF_TRACE_H
#define WEIR_BPF_TRACE_H

#include "flows.h"

// How an ACK leaves.
enum law_left {
	LEFT_WRITTEN = 0, // the program decides about its window
	LEFT_TO_EDGE = 1, // it passes unchanged: the edge has its window
	LEFT_NOT = 2,     // it is not left to the edge: another record of it follows
};

#ifdef WEIR_LAW_TRACE

#define LAW_TRACED 1

// core/fairq/seats.h, with the port's lock around it.
#define WEIR_SEAT_COMES(port, id, seat) law_seat_comes(id, seat)
#define WEIR_SEAT_GOES(port, id, seat) law_seat_goes(id, seat, 0)
#define WEIR_SEAT_TAKEN(id, order, old, new, counted, more) law_seat_taken(id, order, old, new, (counted) << 1 | (more))
#define WEIR_OPENING_GOES(port, id, registration) law_seat_goes(id, registration, 1)

__noinline int law_seat_comes(__u32 id, __u64 seat);
__noinline int law_seat_goes(__u32 id, __u64 seat, __u32 opening);
__noinline int law_seat_taken(__u32 id, __u32 number, __u64 old, __u64 new, __u32 answers);

#include "../../core/fairq/edge.h"
#include "../../core/fairq/groups.h"

enum law_record {
	RECORD_TURN = 1,
	RECORD_LOOK = 2,
	RECORD_ACK = 3,
	RECORD_COUNT = 4,
};

enum law_turn_event {
	TURN_TICKED = 1,    // value: backlog, bytes
	TURN_RECOUNTED = 2,
	TURN_HELD = 3,      // now_ns: the gap
	TURN_SAW_MSS = 4,   // value: bytes
	TURN_STOPPED = 5,
	TURN_REUSED = 6,    // recorded after the change
};

enum law_count_event {
	COUNT_SEAT_TAKEN = 1,     // old, new; counted: the old slot still counted; answer: the port has one more flow
	COUNT_SEAT_GOES = 2,      // old; answer: it still counted
	COUNT_OPENING_COMES = 3,  // now_ns; answer: the registration
	COUNT_OPENING_GOES = 4,   // new: the registration; answer: it still counted
	COUNT_REGISTER_COMES = 5, // answer: the registration
	COUNT_REGISTER_GOES = 6,  // answer: the registration that leaves
};

struct law_head {
	__u64 number; // in the order of the port, from 1
	__u32 port;
	__u32 record; // enum law_record
};

struct law_turn {
	struct law_head head;
	struct port_config config; // without the name
	__u64 now_ns;
	__u16 event; // enum law_turn_event
	__u8 torn;   // 1: user space, which takes no lock, changed the configuration meanwhile
	__u8 zero;
	__u32 value;
	__u8 live;
	__u8 readable;
	__u8 data_seen; // as the tick found it
	__u8 count;     // enum count_mode
	__u32 running;  // after it
	__u64 after[51]; // the port from grant_q8 up to rtt_ns
};

_Static_assert(offsetof(struct port, rtt_ns) - offsetof(struct port, grant_q8) ==
	       sizeof(((struct law_turn *)0)->after), "the part of a port that is recorded");

struct law_count {
	struct law_head head;
	__u64 old;
	__u64 new;
	__u64 now_ns;
	__u64 epoch_ns; // of the port's configuration; 0: without effect
	__u64 answer;
	__u32 flows;    // number of flows at the port after it, in this count mode
	__u16 event;    // enum law_count_event
	__u8 counted;
	__u8 count;     // enum count_mode
};

struct law_look {
	struct law_head head;
	struct fairq_config config;
	__u64 now_ns;
	__u64 answer;
};

// State of the end that sends an ACK, as far as decisions use it.
struct law_end {
	__u32 edge_told;
	__u32 edge_told_at;
	__u32 upstream_at;
	__u16 upstream;
	__u16 mss;
	__u8 shift; // of its windows
	__u8 told;
	__u8 flags;
	__u8 zero;
};

struct law_ack {
	struct law_head head;
	struct port_config config; // without the name
	struct edge_config edge_config;
	__u64 now_ns;
	struct granted granted;
	struct law_end end, end_after;
	struct window_edge before, after;
	__u32 clock;  // of edge mode
	__u32 ack;
	__u32 lot;
	__u32 packets;
	__u32 floor;  // the least window of the flow
	__u16 own;    // the window field as it came
	__u16 gso;    // input of the floor
	__u16 law;    // the field under the port's window
	__u16 left;   // the field that the program reports
	__u16 wire;   // the field in the packet
	__u8 syn;
	__u8 shrink;
	__u8 apart;   // its data takes another of the port's equal paths
	__u8 flagged; // a switch before this one advertised
	__u8 tells;   // it advertises
	__u8 leaves;  // enum law_left
	__u8 live;    // the lease is valid; of a SYN-ACK with count: opening
	__u8 count;
	__u8 called;  // window_rewrite was called
	__u8 zero[5];
};

struct law_order {
	__u64 number; // under the port's lock
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12); // user space sets the size
} law_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct law_order);
} law_orders SEC(".maps");

static __always_inline struct law_order *order_of(__u32 id) { return bpf_map_lookup_elem(&law_orders, &id); }

static __always_inline void law_lost(struct law_order *order)
{
	if (order)
		__sync_fetch_and_add(&order->lost, 1);
}

static __always_inline void config_copy(struct port_config *to, const struct port_config *from)
{
	__builtin_memcpy(to, from, offsetof(struct port_config, name));
}

static __always_inline int config_differs(const struct port_config *a, const struct port_config *b)
{
	const volatile __u64 *x = (const volatile __u64 *)a, *y = (const volatile __u64 *)b;

	for (__u32 i = 0; i < offsetof(struct port_config, name) / 8; i++)
		if (x[i] != y[i])
			return 1;
	return 0;
}

// ---- turns ----

// Record and order are looked up before the lock is taken: no helper can be called under it.
struct turn {
	struct law_turn *record; // NULL: the ring is full
	struct law_order *order;
};

static __always_inline void turn_begins(struct turn *turn, __u32 id, __u32 event)
{
	struct law_turn *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	turn->order = order_of(id);
	turn->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, offsetof(struct law_turn, after));
	record->head.port = id;
	record->head.record = RECORD_TURN;
	record->event = event;
	record->count = count;
}

// Records the inputs of the turn. Call it first under the lock.
static __always_inline void turn_hears(struct turn *turn, const struct port_config *config, const struct port *port,
				       __u64 now, __u32 value, int live, int readable)
{
	struct law_turn *record = turn->record;

	if (!record)
		return;
	record->now_ns = now;
	record->value = value;
	record->live = live;
	record->readable = readable;
	config_copy(&record->config, config);
}

// Records the result of the turn. Call it last under the lock.
static __always_inline void turn_ends(struct turn *turn, const struct port_config *config, const struct port *port)
{
	struct law_turn *record = turn->record;
	__u64 number = 0;

	if (turn->order)
		number = ++turn->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->torn = config_differs(&record->config, config);
	record->running = port->running;
	// Packets write port->data_seen without the lock. The value that the tick read follows from data_ns.
	record->data_seen = record->event == TURN_TICKED && port->data_ns == port->ticked_ns;
	__builtin_memcpy(record->after, &port->grant_q8, sizeof(record->after));
}

static __always_inline void turn_told(struct turn *turn)
{
	if (turn->record)
		bpf_ringbuf_submit(turn->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(turn->order);
}

// A function of its own, so that the verifier checks it once: its caller is inlined into a loop.
__noinline int law_hears_mss(__u32 id, __u32 mss)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct turn turn;

	if (!config || !port)
		return 0;
	turn_begins(&turn, id, TURN_SAW_MSS);
	bpf_spin_lock(&port->lock);
	turn_hears(&turn, config, port, 0, mss, 0, 0);
	fairq_saw_mss(&config->law, &port->law, mss);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	return 0;
}

#define law_saw_mss(id, config, port, mss) law_hears_mss(id, mss)

// ---- counts ----

struct count_told {
	struct law_count *record;
	struct law_order *order;
};

static __always_inline void count_begins(struct count_told *told, __u32 id, __u32 event)
{
	struct law_count *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	told->order = order_of(id);
	told->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->head.port = id;
	record->head.record = RECORD_COUNT;
	record->event = event;
	record->count = count;
}

// Records the result of a count. Call it last under the lock.
static __always_inline void count_ends(struct count_told *told, const struct port_config *config,
				       const struct port *port, __u64 now, __u64 answer)
{
	struct law_count *record = told->record;
	__u64 number = 0;

	if (told->order)
		number = ++told->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->now_ns = now;
	record->epoch_ns = config ? config->epoch_ns : 0;
	record->answer = answer;
	record->flows = port->registered;
}

static __always_inline void count_is_told(struct count_told *told)
{
	if (told->record)
		bpf_ringbuf_submit(told->record, BPF_RB_NO_WAKEUP);
	else
		law_lost(told->order);
}

__noinline int law_counts(struct law_count *record)
{
	struct law_order *order;

	if (!record)
		return 0;
	order = order_of(record->head.port);
	record->head.record = RECORD_COUNT;
	record->count = count;
	if (bpf_ringbuf_output(&law_records, record, sizeof(*record), BPF_RB_NO_WAKEUP))
		law_lost(order);
	return 0;
}

__noinline int law_seat_taken(__u32 id, __u32 number, __u64 old, __u64 new, __u32 answers)
{
	struct law_count record = {.head = {.number = number, .port = id}, .old = old, .new = new};

	record.event = COUNT_SEAT_TAKEN;
	record.counted = answers >> 1;
	record.answer = answers & 1;
	return law_counts(&record);
}

// Returns the number of the record, cut to 32 bits: the verifier allows a global function no wider result.
__noinline int law_seat_comes(__u32 id, __u64 seat)
{
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);
	__u64 number;

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	seat_comes(port, seat);
	number = ++order->number;
	bpf_spin_unlock(&port->lock);
	return number;
}

__noinline int law_seat_goes(__u32 id, __u64 seat, __u32 opening)
{
	struct law_count record = {.head = {.port = id}};
	struct port *port = port_of(id);
	struct law_order *order = order_of(id);

	if (!port || !order)
		return 0;
	bpf_spin_lock(&port->lock);
	record.answer = opening ? opening_goes(port, seat) : seat_goes(port, seat);
	record.head.number = ++order->number;
	bpf_spin_unlock(&port->lock);
	record.event = opening ? COUNT_OPENING_GOES : COUNT_SEAT_GOES;
	record.old = seat;
	law_counts(&record);
	return record.answer;
}

// ---- looks ----

__noinline int law_looks(__u32 id, __u64 now)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct law_order *order = order_of(id);
	struct law_look look = {};

	if (!config || !port || !order)
		return 0;
	look.head.port = id;
	look.head.record = RECORD_LOOK;
	look.config = config->law;
	look.now_ns = now;
	bpf_spin_lock(&port->lock);
	look.answer = fairq_packet_may_sample(&config->law, &port->law, now);
	look.head.number = ++order->number;
	bpf_spin_unlock(&port->lock);
	if (bpf_ringbuf_output(&law_records, &look, sizeof(look), BPF_RB_NO_WAKEUP))
		law_lost(order);
	return look.answer;
}

#define law_may_sample(id, config, port, now) law_looks(id, now)

// ---- acks ----

struct asked {
	struct law_ack *record; // NULL: no port governs the ACK, or the ring is full
	struct law_order *order;
};

static __always_inline void asked_end(struct law_end *to, const struct end *e)
{
	to->edge_told = e->edge_told;
	to->edge_told_at = e->edge_told_at;
	to->upstream_at = e->upstream_at;
	to->upstream = e->upstream;
	to->mss = e->mss;
	to->shift = e->shift;
	to->told = e->told;
	to->flags = e->flags;
}

// Takes the port's lock until asked_grants: the grant is read under it, together with its number in the order.
static __always_inline void asked_begins(struct asked *asked, __u32 id, struct port *port)
{
	struct law_ack *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	asked->order = order_of(id);
	asked->record = record;
	if (record) {
		__builtin_memset(record, 0, sizeof(*record));
		record->head.port = id;
		record->head.record = RECORD_ACK;
		record->count = count;
	}
	bpf_spin_lock(&port->lock);
}

static __always_inline void asked_grants(struct asked *asked, const struct port_config *config, struct port *port,
					 const struct granted *granted)
{
	struct law_ack *record = asked->record;
	__u64 number = 0;

	if (asked->order)
		number = ++asked->order->number;
	bpf_spin_unlock(&port->lock);
	if (!record)
		return;
	record->head.number = number;
	config_copy(&record->config, config);
	record->granted = *granted;
}

// Records the ACK and its end before the decision. shift: the scale that the program uses, which may differ from the
// end's.
static __always_inline void asked_about(struct asked *asked, const struct segment *s, const struct connection *c,
					__u32 shift, __u64 now, int live, __u64 packets)
{
	struct law_ack *record = asked->record;
	const struct end *sender = &c->end[!s->side];

	if (!record)
		return;
	asked_end(&record->end, &c->end[s->side & 1]);
	if (!(record->end.flags & END_UNIFIED))
		record->end.shift = shift;
	record->before = c->acks[s->side & 1].edge;
	record->now_ns = now;
	record->ack = s->ack;
	record->lot = c->lot;
	record->packets = packets;
	record->own = s->window;
	record->gso = sender->gso;
	record->syn = !!(s->flags & TCP_SYN);
	record->shrink = shrink;
	record->apart = !sender->port;
	record->live = live;
}

// Records the inputs of edge mode, and whether the ACK advertises.
static __always_inline void asked_edge(struct asked *asked, const struct edge_ack *a, int tells)
{
	struct law_ack *record = asked->record;

	if (!record)
		return;
	record->edge_config.interval = edge_interval;
	record->edge_config.lease = edge_lease;
	record->edge_config.change = edge_change;
	record->clock = a->now;
	record->flagged = a->flagged;
	record->tells = tells;
}

static __always_inline void asked_law(struct asked *asked, const struct window_ack *window, __u16 field)
{
	if (!asked->record)
		return;
	asked->record->called = 1;
	asked->record->floor = window->floor_bytes;
	asked->record->law = field;
}

static __always_inline void asked_ends(struct asked *asked, const struct segment *s, const struct connection *c,
				       __u16 left, __u16 wire, int leaves)
{
	struct law_ack *record = asked->record;
	__u8 shift = record->end.shift;

	asked_end(&record->end_after, &c->end[s->side & 1]);
	record->end_after.shift = shift;
	record->after = c->acks[s->side & 1].edge;
	record->left = left;
	record->leaves = leaves;
	record->wire = wire;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

// Records that the ACK leaves with the field `left`, and the field that is in the packet.
static __always_inline void asked_told(struct asked *asked, struct __sk_buff *ctx, const struct segment *s,
				       const struct connection *c, __u16 left)
{
	__be16 wire = 0;

	if (!asked->record) {
		law_lost(asked->order);
		return;
	}
	bpf_skb_load_bytes(ctx, s->l4 + TCP_WINDOW, &wire, sizeof(wire));
	asked_ends(asked, s, c, left, bpf_ntohs(wire), LEFT_WRITTEN);
}

// Records that the ACK passes unchanged, or is not left to the edge (enum law_left).
static __always_inline void asked_left(struct asked *asked, const struct segment *s, const struct connection *c, int leaves)
{
	if (asked->record)
		asked_ends(asked, s, c, s->window, s->window, leaves);
	else
		law_lost(asked->order);
}

#else

#define LAW_TRACED 0

struct turn {
};

struct asked {
};

struct count_told {
};

#define turn_begins(turn, id, event) ((void)(turn))
#define turn_hears(turn, config, port, now, value, live, readable) ((void)(turn))
#define turn_ends(turn, config, port) ((void)(config))
#define turn_told(turn) ((void)(turn))
#define count_begins(told, id, event) ((void)(told))
#define count_ends(told, config, port, now, answer) ((void)(told))
#define count_is_told(told) ((void)(told))
#define law_saw_mss(id, config, port, mss)                       \
	do {                                                     \
		bpf_spin_lock(&(port)->lock);                    \
		fairq_saw_mss(&(config)->law, &(port)->law, mss); \
		bpf_spin_unlock(&(port)->lock);                  \
	} while (0)
#define law_may_sample(id, config, port, now) fairq_packet_may_sample(&(config)->law, &(port)->law, now)
#define asked_begins(asked, id, port) ((void)(asked))
#define asked_grants(asked, config, port, granted) ((void)(asked))
#define asked_about(asked, s, c, shift, now, live, packets) ((void)(asked))
#define asked_edge(asked, a, tells) ((void)(asked))
#define asked_law(asked, window, field) ((void)(asked))
#define asked_told(asked, ctx, s, c, left) ((void)(asked))
#define asked_left(asked, s, c, leaves) ((void)(asked))

#endif
#endif
