// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The differential run (docs/differential.md): every call of the law, recorded in its order, so that the
// native build of core/ can be asked the same and its answers compared to the bit.
//
// Only with WEIR_LAW_TRACE, which datapath/fairq/lawtrace is compiled with. Without it everything here is empty,
// and the switch program is the same to the instruction.
//
//   turn    what is done under a port's lock in one go: calls that change its law, and what is granted then
//   look    a packet asks whether it shall sample
//   ack     an acknowledgement, what its data's port grants, and what is written
//
// Order: each port has a number that its lock guards. A turn takes the next one before it gives the lock
// back, and so do looks and acks, which take the lock here to read what they are decided by (without a
// trace they read it bare: it is one word). So the numbers of a port are the order in which its law was
// called, whichever CPU called. Records may come out of the ring in another order, and are sorted.
// A record that finds the ring full is counted, and its number is missing: such a trace is refused.
//
// What is not the law's is taken from the record: time, backlog, the count of flows, the MSS of SYNs, which
// flows are held, and a grant while windows are let go or held in part.
#ifndef WEIR_BPF_TRACE_H
#define WEIR_BPF_TRACE_H

#include "flows.h"

#ifdef WEIR_LAW_TRACE

#define LAW_CALLS 4 // in a turn, at most: flows, sample, restart

enum law_record {
	RECORD_TURN = 1,
	RECORD_LOOK = 2,
	RECORD_ACK = 3,
};

enum law_event {
	LAW_RESTART = 1,
	LAW_FLOWS = 2,     // value: how many
	LAW_SAMPLE = 3,    // value: backlog, bytes
	LAW_NO_SAMPLE = 4, // the queue does not count, and its time passes
	LAW_SAW_MSS = 5,   // value: bytes
};

enum law_grant {
	GRANT_SAME = 0,   // as it was before the turn
	GRANT_LAW = 1,    // the law's window
	GRANT_LET_GO = 2, // of windows that are let go
	GRANT_HOLD = 3,   // of a port whose flows are held in part, or on the way to it
};

struct law_head {
	__u64 number; // of the port, from 1
	__u32 port;
	__u32 record; // enum law_record
};

struct law_call {
	__u64 now_ns;
	__u64 window_q8; // after it
	__u64 aggregate_q8;
	__u32 event; // enum law_event
	__u32 value;
};

struct law_turn {
	struct law_head head;
	struct fairq_config config;
	struct fairq_state state; // after all of them
	__u64 grant_q8;
	__u32 grant; // enum law_grant
	__u32 calls;
	__u32 running; // of the port, when the law was first called: 0 with a grant of 0 that is the same is user space's
	__u32 zero;
	struct law_call call[LAW_CALLS];
};

struct law_look {
	struct law_head head;
	struct fairq_config config;
	__u64 now_ns;
	__u64 answer;
};

struct law_ack {
	struct law_head head;
	__u64 grant_q8; // of held flows, when it was asked
	__u64 let_go_q8; // of one that is free
	__u64 would_q8;
	struct window_ack ack; // as window_rewrite gets it
	struct window_edge before, after;
	__u32 mss, gso; // as window_floor got them
	__u32 divisor;
	__u32 packets;
	__u16 own;    // the window as it came
	__u16 answer; // of window_rewrite
	__u16 left;   // as the program says that it left
	__u16 wire;   // as it stands in the packet
	__u8 called;  // window_rewrite was
	__u8 held;
	__u8 running; // of its port: 0 with a grant is 0 that user space wrote, which stopped it
	__u8 opens;   // it is a SYN-ACK that is held to the share beside open handshakes
	__u32 openings; // so many
};

struct law_order {
	__u64 number; // under the port's lock
	__u64 lost;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 12); // user space says how much
} law_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct law_order);
} law_orders SEC(".maps");

static __always_inline struct law_order *order_of(__u32 id) { return bpf_map_lookup_elem(&law_orders, &id); }

// ---- turns ----

// Both are had before the port's lock: no call can be made under it.
struct turn {
	struct law_turn *record; // NULL: the ring is full
	struct law_order *order;
};

static __always_inline void turn_begins(struct turn *turn, __u32 id)
{
	struct law_turn *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	turn->order = order_of(id);
	turn->record = record;
	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->head.port = id;
	record->head.record = RECORD_TURN;
}

// The law was called: with what, and what it gave.
static __always_inline void turn_calls(struct turn *turn, __u32 event, const struct port *port, __u64 now, __u32 value)
{
	struct law_turn *record = turn->record;
	__u32 n;

	if (!record)
		return;
	n = record->calls;
	if (!n)
		record->running = port->running;
	record->calls = n + 1;
	if (n >= LAW_CALLS) // user space refuses such a record
		return;
	record->call[n].event = event;
	record->call[n].now_ns = now;
	record->call[n].value = value;
	record->call[n].window_q8 = port->law.window_q8;
	record->call[n].aggregate_q8 = port->law.aggregate_q8;
}

static __always_inline void turn_grants(struct turn *turn, __u32 how)
{
	if (turn->record)
		turn->record->grant = how;
}

// The last thing under the lock.
static __always_inline void turn_ends(struct turn *turn, const struct port_config *config, const struct port *port)
{
	struct law_turn *record = turn->record;
	__u64 number = 0;

	if (turn->order)
		number = ++turn->order->number;
	if (!record)
		return;
	record->head.number = number;
	record->config = config->law;
	record->state = port->law;
	record->grant_q8 = port->grant_q8;
}

static __always_inline void turn_told(struct turn *turn)
{
	if (turn->record)
		bpf_ringbuf_submit(turn->record, BPF_RB_NO_WAKEUP);
	else if (turn->order)
		__sync_fetch_and_add(&turn->order->lost, 1);
}

// Checked by the verifier once: it is inlined into a loop.
__noinline int law_hears_mss(__u32 id, __u32 mss)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);
	struct port *port = bpf_map_lookup_elem(&ports, &id);
	struct turn turn;

	if (!config || !port)
		return 0;
	turn_begins(&turn, id);
	bpf_spin_lock(&port->lock);
	fairq_saw_mss(&config->law, &port->law, mss);
	turn_calls(&turn, LAW_SAW_MSS, port, 0, mss);
	turn_ends(&turn, config, port);
	bpf_spin_unlock(&port->lock);
	turn_told(&turn);
	return 0;
}

#define law_saw_mss(id, config, port, mss) law_hears_mss(id, mss)

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
		__sync_fetch_and_add(&order->lost, 1);
	return look.answer;
}

#define law_may_sample(id, config, port, now) law_looks(id, now)

// ---- acks ----

struct asked {
	struct law_ack *record; // NULL: nothing governs it, or the ring is full
	struct law_order *order;
};

// What is granted is read under the lock, with its place in the order: from here to asked_grants.
static __always_inline void asked_begins(struct asked *asked, __u32 id, struct port *port)
{
	struct law_ack *record = bpf_ringbuf_reserve(&law_records, sizeof(*record), 0);

	asked->order = order_of(id);
	asked->record = record;
	if (record) {
		__builtin_memset(record, 0, sizeof(*record));
		record->head.port = id;
		record->head.record = RECORD_ACK;
	}
	bpf_spin_lock(&port->lock);
}

static __always_inline void asked_grants(struct asked *asked, struct port *port, int held, __u64 grant, __u64 would)
{
	struct law_ack *record = asked->record;
	__u64 now_q8 = port->grant_q8, number = 0;
	__u32 running = port->running;

	if (asked->order)
		number = ++asked->order->number;
	bpf_spin_unlock(&port->lock);
	if (!record)
		return;
	record->head.number = number;
	record->grant_q8 = now_q8;
	record->running = running;
	record->held = held;
	record->let_go_q8 = held ? 0 : grant;
	record->would_q8 = would;
}

// Before asked_grants, under its lock.
static __always_inline void asked_opens(struct asked *asked, __u32 openings)
{
	if (!asked->record)
		return;
	asked->record->opens = 1;
	asked->record->openings = openings;
}

static __always_inline __u32 asked_floor(struct asked *asked, __u32 mss, __u32 gso)
{
	if (asked->record) {
		asked->record->mss = mss;
		asked->record->gso = gso;
	}
	return window_floor(mss, gso);
}

static __always_inline void asked_window(struct asked *asked, const struct window_edge *edge)
{
	if (!asked->record)
		return;
	asked->record->called = 1;
	asked->record->before = *edge;
}

static __always_inline void asked_answer(struct asked *asked, __u16 field, const struct window_edge *edge)
{
	if (!asked->record)
		return;
	asked->record->answer = field;
	asked->record->after = *edge;
}

// The acknowledgement is through, and has the field `left`. What stands in the packet is read from it.
static __always_inline void asked_told(struct asked *asked, struct __sk_buff *ctx, const struct segment *s,
				       const struct window_ack *a, __u32 divisor, __u64 packets, __u16 left)
{
	struct law_ack *record = asked->record;
	__be16 wire = 0;

	if (!record) {
		if (asked->order)
			__sync_fetch_and_add(&asked->order->lost, 1);
		return;
	}
	bpf_skb_load_bytes(ctx, s->l4 + TCP_WINDOW, &wire, sizeof(wire));
	record->ack = *a;
	record->divisor = divisor;
	record->packets = packets;
	record->own = s->window;
	record->left = left;
	record->wire = bpf_ntohs(wire);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#else

struct turn {
};

struct asked {
};

#define turn_begins(turn, id) ((void)(turn))
#define turn_calls(turn, event, port, now, value) ((void)(turn))
#define turn_grants(turn, how) ((void)(turn))
#define turn_ends(turn, config, port) ((void)(turn))
#define turn_told(turn) ((void)(turn))
#define law_saw_mss(id, config, port, mss)                       \
	do {                                                     \
		bpf_spin_lock(&(port)->lock);                    \
		fairq_saw_mss(&(config)->law, &(port)->law, mss); \
		bpf_spin_unlock(&(port)->lock);                  \
	} while (0)
#define law_may_sample(id, config, port, now) fairq_packet_may_sample(&(config)->law, &(port)->law, now)
#define asked_begins(asked, id, port) ((void)(asked))
#define asked_grants(asked, port, held, grant, would) ((void)(asked))
#define asked_opens(asked, openings) ((void)(asked))
#define asked_floor(asked, mss, gso) window_floor(mss, gso)
#define asked_window(asked, edge) ((void)(asked))
#define asked_answer(asked, field, edge) ((void)(asked))
#define asked_told(asked, ctx, s, a, divisor, packets, left) ((void)(asked))

#endif
#endif
