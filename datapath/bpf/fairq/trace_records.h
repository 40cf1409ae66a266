// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The records of a trace, and the maps that pass them to user space (trace.h).
#ifndef WEIR_BPF_TRACE_RECORDS_H
#define WEIR_BPF_TRACE_RECORDS_H

#include "flows.h"
#include "../../core/fairq/credit_ack.h"
#include "../../core/fairq/edge.h"
#include "../../core/fairq/groups.h"

enum law_record {
	RECORD_TURN = 1,
	RECORD_LOOK = 2,
	RECORD_ACK = 3,
	RECORD_COUNT = 4,
	RECORD_PACES = 5,
	RECORD_CREDIT = 6, // in the order of the port's credits
	RECORD_ASKED = 7,  // the same
};

enum law_turn_event {
	TURN_TICKED = 1,    // value: backlog, bytes
	TURN_RECOUNTED = 2,
	TURN_LIMITED = 3,   // now_ns: the gap
	TURN_SAW_MSS = 4,   // value: bytes
	TURN_STOPPED = 5,
	TURN_REUSED = 6,    // recorded after the change
	TURN_PACES = 7,     // value: 1 if the port begins to pace, 0 if it ends
};

enum law_count_event {
	COUNT_SLOT_TAKEN = 1,     // old, new; counted: the old slot still counted; answer: the port has one more flow
	COUNT_SLOT_GOES = 2,      // old; answer: it still counted
	COUNT_OPENING_COMES = 3,  // now_ns; answer: the registration
	COUNT_OPENING_GOES = 4,   // new: the registration; answer: it still counted
	COUNT_REGISTER_COMES = 5, // answer: the registration
	COUNT_REGISTER_GOES = 6,  // answer: the registration that leaves
};

enum law_credit_event {
	CREDIT_ACKNOWLEDGED = 1, // ack, left_ns; answer, and the promise
	CREDIT_RESTED = 2,       // ack; bytes: the promise before it; answer, and the promise
	CREDIT_USED = 3,         // now_ns, left_ns, promise, bytes; life: of the promise
	CREDIT_COUNTED = 4,      // now_ns; bytes: 1 if the port paces; promise: 1 if the frame is charged
	CREDIT_OTHER = 5,        // now_ns, bytes
	CREDIT_REFUSED = 6,      // now_ns; answer: of CREDIT_ACKNOWLEDGED
	CREDIT_RETURNED = 7,     // now_ns, left_ns, promise, bytes: the backlog, life: a held request; mark: the answer
	CREDIT_LATER = 8,        // now_ns: flight_until
};

enum law_asked_event {
	ASKED_TURN = 1,     // side, payload, gso, turn, longest, sent: behind it, una; again, begins, longest_after, answer: the turn
	ASKED_OPENS = 2,    // syn, opener, begins, completes, sent, ack; answer: enum credit_opens
	ASKED_ANSWERED = 3, // opener, turn, side; answer
	ASKED_ADVANCE = 4,  // una, ack; answer
	ASKED_CONCERN = 5,  // promise, opens, pacing, behind, answered: of an acknowledgement that is not charged
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
	__u8 pacing; // of the port, after it
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
	__u32 edge_advertised;
	__u32 edge_advertised_at;
	__u32 upstream_at;
	__u16 upstream;
	__u16 mss;
	__u8 shift; // of its windows
	__u8 announced;
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
	__u32 bucket;
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
	__u8 advertises; // it advertises
	__u8 leaves;  // enum law_left
	__u8 live;    // the lease is valid; of a SYN-ACK with count: opening
	__u8 count;
	__u8 called;  // window_rewrite was called
	__u8 credit;  // 1: promises and credits limit it, too
	__u16 promise; // of the data's sender
	__u8 zero[2];
};

struct law_paces {
	struct law_head head;
	struct port_config config; // without the name
	__u8 live;
	__u8 count;
	__u8 answer;
	__u8 zero[5];
};

struct law_credit {
	struct law_head head;
	struct credit_config config;
	struct credit_state after;
	struct credit_ack ack;
	struct credit_answer answer;
	__u64 now_ns;
	__s64 left_ns; // until the end of the promise's life
	__u32 promise;
	__u32 bytes;
	__u32 event; // enum law_credit_event
	__u32 mark;  // what an end remembers of its request
	__u32 life;  // as the event says
	__u32 zero;
};

struct law_asked {
	struct law_head head;
	__u32 event; // enum law_asked_event
	__u32 ack;
	__u32 sent;
	__u32 una;
	__u32 payload;
	__u32 gso;
	__u32 promise;
	__u32 answer;
	__u16 longest;
	__u16 longest_after;
	__u8 syn;
	__u8 opener;
	__u8 begins;
	__u8 completes;
	__u8 turn;
	__u8 side;
	__u8 opens;
	__u8 pacing;
	__u8 behind;
	__u8 answered;
	__u8 again;
	__u8 zero;
};

struct law_order {
	__u64 number;  // under the port's lock
	__u64 credits; // under the lock of the port's credits
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

#endif
