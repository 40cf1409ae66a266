// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The two groups of a port's flows: bytes sent, sent again and acknowledged are counted for each group.
//
//   1  treatment: limited. Their ACKs carry the port's window (port.h)
//   0  control: unlimited. Their ACKs pass unchanged; those that a limit would have changed are counted
//
// A connection's bucket decides its group. The bucket is a hash under a key that no sender knows. It stays the same
// while the tables exist, also when the connection is forgotten and adopted again.
//
// Bytes are counted by sequence numbers, as they pass here. Data at or below the furthest byte sent before is sent
// again (or was overtaken on its way here). Acknowledged bytes count up to the furthest byte sent: a receiver that
// acknowledges more than it got adds nothing.
#ifndef WEIR_BPF_CANARY_H
#define WEIR_BPF_CANARY_H

#include "flows.h"
#include "port.h"
#include "../../core/fairq/groups.h"

#define REACH (1u << 30) // bytes, above the largest window: numbers further apart are not of one stream

struct group_counts {
	__u64 data_bytes;
	__u64 again_bytes; // the part of data_bytes that was sent again
	__u64 acked_bytes;
	__u64 acks;
	__u64 limited; // ACKs that were rewritten; of an unlimited flow: that would have been
};

struct port_groups {
	struct group_counts group[2];
};

// The index is the id of the port that the data leaves by.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAIRQ_PORTS);
	__type(key, __u32);
	__type(value, struct port_groups);
} groups SEC(".maps");

// ---- buckets ----

#define SIP_ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

static __always_inline void sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[1] = SIP_ROTATE(v[1], 13) ^ v[0];
	v[0] = SIP_ROTATE(v[0], 32);
	v[2] += v[3];
	v[3] = SIP_ROTATE(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = SIP_ROTATE(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = SIP_ROTATE(v[1], 17) ^ v[2];
	v[2] = SIP_ROTATE(v[2], 32);
}

static __always_inline void sip_word(__u64 v[4], __u64 word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

// Returns the bucket of a connection: SipHash-1-3 of its ends, cut to 16 bits. An end cannot choose its bucket by its
// ports and addresses.
static __always_inline __u16 bucket_of(const struct flow_ends *key)
{
	struct control *control = control_of();
	__u64 v[4];

	if (!control)
		return 0;
	v[0] = control->seed[0] ^ 0x736f6d6570736575;
	v[1] = control->seed[1] ^ 0x646f72616e646f6d;
	v[2] = control->seed[0] ^ 0x6c7967656e657261;
	v[3] = control->seed[1] ^ 0x7465646279746573;
	for (int end = 0; end < 2; end++)
		for (int i = 0; i < 4; i += 2)
			sip_word(v, key->address[end][i] | (__u64)key->address[end][i + 1] << 32);
	sip_word(v, key->port[0] | (__u64)key->port[1] << 16 | (__u64)key->vlans << 32);
	sip_word(v, (__u64)sizeof(*key) << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return (v[0] ^ v[1] ^ v[2] ^ v[3]) & (BUCKETS - 1);
}

// Returns the bucket of a segment's connection, which need not be in a table.
__noinline int segment_bucket(struct __sk_buff *ctx, const struct segment *s)
{
	struct flow_ends ends = {};

	return s && segment_ends(ctx, s, &ends) ? bucket_of(&ends) : 0;
}

static __always_inline int is_limited(const struct port *port, const struct connection *c)
{
	return bucket_is_limited(port, c->bucket);
}

// ---- what passes ----

static __always_inline struct group_counts *group_of(__u32 id, int limited)
{
	struct port_groups *a = bpf_map_lookup_elem(&groups, &id);

	return a ? &a->group[limited & 1] : NULL;
}

// Reports whether a canary, a rollback or an observer reads the counts of flows (observe.h).
static __always_inline int is_watched(void)
{
	struct control *control = control_of();

	return control && control->watched;
}

// Sets the ends, the bucket and the marks of one-sided flows of a new connection. c is not in the flow table yet.
__noinline int groups_begin(struct __sk_buff *ctx, struct connection *c, const struct segment *s)
{
	if (!c || !s)
		return 0;
	segment_ends_read(ctx, s, &c->ends);
	c->bucket = bucket_of(&c->ends);
	for (int side = 0; side < 2; side++)
		c->data_lately[side] = c->acks_lately[side] = LATELY;
	return 0;
}

// New data or a new acknowledgement passed: `these` is its own mark, `others` that of the opposite kind. If none had
// passed for LATELY sweeps, `others` gets as many sweeps to follow.
static __always_inline void went_on(__u8 *these, __u8 *others)
{
	if (likely(*these == LATELY))
		return;
	if (!*these)
		*others = LATELY;
	*these = LATELY;
}

// Counts data that leaves. Of a segment that is new in part, the bytes before the furthest byte sent count as again.
static __always_inline void group_data(struct connection *c, const struct segment *s, int limited, int watched)
{
	struct acks *a = &c->acks[s->side & 1];
	struct group_counts *group;
	__u32 back, again = 0;

	back = a->sent - s->seq;
	if (back <= REACH)
		again = back < s->payload ? back : s->payload;
	if (likely(again < s->payload)) {
		a->sent = s->seq + s->payload;
		went_on(&c->data_lately[s->side & 1], &c->acks_lately[s->side & 1]);
	}
	group = unlikely(watched) ? group_of(port_id, limited) : NULL;
	if (likely(!group))
		return;
	group->data_bytes += s->payload;
	group->again_bytes += again;
}

// Sets `una` to ack if that is an advance. Returns the advance in bytes. Several CPUs may handle ACKs of one flow at
// once; each byte is counted by one of them. A CPU whose compare-and-swap fails twice leaves the advance to the next
// ACK. Without `counted` nobody counts bytes, and a plain store is enough.
static __always_inline __u32 una_moves(struct acks *a, __u32 ack, int counted)
{
	if (!counted) {
		__u32 ahead = ack - a->una;

		if (ahead - 1 >= REACH)
			return 0;
		a->una = ack;
		return ahead;
	}
	for (int i = 0; i < 2; i++) {
		__u32 una = *(volatile __u32 *)&a->una;

		if (ack - una - 1 >= REACH)
			return 0;
		if (__sync_val_compare_and_swap(&a->una, una, ack) == una)
			return ack - una;
	}
	return 0;
}

// Sets the number at which a direction's acknowledgements begin.
static __always_inline void acks_begin(struct acks *a, __u32 seq) { a->una = a->round = seq; }

static __always_inline void flight_is(struct acks *a, __u32 bytes)
{
	if (bytes > a->flight && bytes <= REACH)
		a->flight = bytes;
}

// Counts an acknowledgement that leaves, in the group of the data's port. Another CPU may be writing `sent`: it is read
// once a round trip. A group of NULL: nobody reads the counts.
static __always_inline void group_ack(struct connection *c, const struct segment *s, struct group_counts *group, __u64 packets)
{
	struct acks *a = &c->acks[s->side & 1];
	__u32 ack = s->ack, ahead, sent;
	int beyond = 0;

	if (unlikely(ack - a->round - 1 < REACH)) {
		sent = c->acks[!s->side].sent;
		beyond = ack - sent - 1 < REACH;
		if (beyond) // it acknowledges a FIN, or data that took another path
			ack = sent;
		a->round = sent;
		if (group)
			flight_is(a, sent - a->una);
	}
	ahead = una_moves(a, ack, group != NULL);
	if (ahead || (beyond && !(c->end[!s->side].flags & END_FIN)))
		went_on(&c->acks_lately[!s->side], &c->data_lately[!s->side]);
	if (!group)
		return;
	group->acked_bytes += ahead;
	group->acks += packets;
}

// Takes the sequence numbers of both ends from a segment, where none are known yet. The connection is not in the flow
// table.
static __always_inline void groups_hear(struct connection *c, const struct segment *s)
{
	struct acks *a = &c->acks[s->side & 1];

	if (!(c->end[s->side & 1].flags & END_SEEN))
		c->acks[s->side & 1].sent = s->seq;
	if (!a->una)
		acks_begin(a, s->ack);
	if (!(c->end[!s->side].flags & END_SEEN) && !c->acks[!s->side].sent)
		c->acks[!s->side].sent = s->ack;
}

// Advances the sequence numbers of an end whose peer was not seen: it sends data without ACKs, or ACKs without data.
static __always_inline void groups_alone(struct connection *c, const struct segment *s)
{
	struct acks *a = &c->acks[s->side & 1];

	if (s->payload && s->seq + s->payload - c->acks[s->side & 1].sent - 1 < REACH) {
		c->acks[s->side & 1].sent = s->seq + s->payload;
		went_on(&c->data_lately[s->side & 1], &c->acks_lately[s->side & 1]);
	}
	if (s->ack - a->una - 1 < REACH) {
		acks_begin(a, s->ack);
		went_on(&c->acks_lately[!s->side], &c->data_lately[!s->side]);
	}
}

// Moves the bytes in flight on by this number of sweeps.
static __always_inline void flight_sweep(struct acks *a, __u32 sweeps)
{
	a->flight_before = sweeps == 1 ? a->flight : 0;
	a->flight = 0;
}

// ---- round-trip times ----

// Records a round-trip time of a connection whose data leaves by this port.
static __always_inline void port_saw_rtt(__u32 id, __u64 now, __u32 rtt_ns)
{
	struct port *port = port_of(id);
	__u32 span = now >> RTT_SPAN_LOG2_NS;

	if (!port)
		return;
	bpf_spin_lock(&port->lock);
	if (port->rtt_span != span && port->rtt_span != span + 1) { // + 1: another processor has read a later time
		port->rtt_before_ns = port->rtt_span + 1 == span ? port->rtt_ns : 0;
		port->rtt_ns = 0;
		port->rtt_span = span;
	}
	if (!port->rtt_ns || rtt_ns < port->rtt_ns)
		port->rtt_ns = rtt_ns;
	bpf_spin_unlock(&port->lock);
}

// Measures the round-trip time at the opener's ACK of the SYN-ACK, for the ports of both ends. SYN, SYN-ACK and this ACK
// passed here once each, so the time since the SYN covers both halves. (Karn: a segment that was sent again times
// nothing.)
__noinline int handshake_ends(struct connection *c)
{
	__u64 now = bpf_ktime_get_ns(), rtt;

	if (!c || !c->syn_ns)
		return 0;
	rtt = now - c->syn_ns;
	c->syn_ns = 0;
	if (!rtt || rtt > 0xffffffff)
		return 0;
	port_saw_rtt((__u32)c->end[0].port - 1, now, rtt);
	port_saw_rtt((__u32)c->end[1].port - 1, now, rtt);
	return 0;
}

static __always_inline int is_opener(const struct connection *c, const struct segment *s)
{
	return !(c->flags & CONNECTION_OPENED_BY_1) == !(s->side & 1);
}

#endif
