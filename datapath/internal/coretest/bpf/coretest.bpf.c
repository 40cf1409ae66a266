// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// One program a law. User space puts configuration, state and event into the map's one value, runs the
// program (BPF_PROG_TEST_RUN) and reads state and result there.
#include "../../../bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../../core/fairq/fairq.h"
#include "../../../core/mark.h"
#include "../../../core/window.h"
#include "../../corevec/events.h"
#include "../../corevec/credit_events.h"

char _license[] SEC("license") = WEIR_LICENSE;

#define EVENTS(name)                                  \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY);     \
		__uint(max_entries, 1);               \
		__type(key, __u32);                   \
		__type(value, struct name##_event);   \
	} name##_events SEC(".maps")

enum {
	FAIRQ_RESET = 1,
	FAIRQ_SAW_MSS,
	FAIRQ_FLOW_ADDED,
	FAIRQ_FLOW_REMOVED,
	FAIRQ_SAMPLE,
	FAIRQ_PACKET_MAY_SAMPLE,
	WINDOW_REWRITE,
	WINDOW_FLOOR,
	WINDOW_CHECKSUM,
	MARK_DECIDE,
	FAIRQ_OPENING,
	FAIRQ_EMPTY_MAY_REST,
};

struct fairq_event {
	struct fairq_config config;
	struct fairq_state state;
	__u64 now_ns;
	__u32 bytes;
	__u32 event;
	__u64 result;
};
EVENTS(fairq);

SEC("tc")
int run_fairq(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	struct fairq_event *e = bpf_map_lookup_elem(&fairq_events, &zero);

	if (!e)
		return 1;
	e->result = 0;
	switch (e->event) {
	case FAIRQ_RESET:
		fairq_reset(&e->config, &e->state, e->now_ns);
		return 0;
	case FAIRQ_SAW_MSS:
		fairq_saw_mss(&e->config, &e->state, e->bytes);
		return 0;
	case FAIRQ_FLOW_ADDED:
		fairq_flow_added(&e->config, &e->state, e->now_ns);
		return 0;
	case FAIRQ_FLOW_REMOVED:
		fairq_flow_removed(&e->config, &e->state);
		return 0;
	case FAIRQ_SAMPLE:
		fairq_sample(&e->config, &e->state, e->now_ns, e->bytes);
		return 0;
	case FAIRQ_PACKET_MAY_SAMPLE:
		e->result = fairq_packet_may_sample(&e->config, &e->state, e->now_ns);
		return 0;
	case FAIRQ_EMPTY_MAY_REST:
		e->result = fairq_empty_may_rest(&e->config, &e->state, e->now_ns);
		return 0;
	case FAIRQ_OPENING:
		e->result = fairq_opening_q8(&e->config, &e->state, e->bytes);
		return 0;
	}
	return 1;
}

struct window_event {
	struct window_ack ack;
	struct window_edge edge;
	__u32 mss_option_bytes;
	__u32 gso_size_bytes;
	__u16 check;
	__u16 old_word;
	__u16 new_word;
	__u16 event;
	__u64 result;
};
EVENTS(window);

SEC("tc")
int run_window(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	struct window_event *e = bpf_map_lookup_elem(&window_events, &zero);

	if (!e)
		return 1;
	switch (e->event) {
	case WINDOW_REWRITE:
		e->result = window_rewrite(&e->ack, &e->edge);
		return 0;
	case WINDOW_FLOOR:
		e->result = window_floor(e->mss_option_bytes, e->gso_size_bytes);
		return 0;
	case WINDOW_CHECKSUM:
		e->result = window_checksum(e->check, e->old_word, e->new_word);
		return 0;
	}
	return 1;
}

struct mark_event {
	struct mark_config config;
	__u32 backlog_bytes;
	__u32 ecn;
	__u32 event;
	__u64 result;
};
EVENTS(mark);

SEC("tc")
int run_mark(struct __sk_buff *ctx)
{
	__u32 zero = 0;
	struct mark_event *e = bpf_map_lookup_elem(&mark_events, &zero);

	if (!e || e->event != MARK_DECIDE)
		return 1;
	e->result = mark_decide(&e->config, e->backlog_bytes, e->ecn);
	return 0;
}

EVENTS(slots);
EVENTS(release);
EVENTS(groups);
EVENTS(edge);
EVENTS(credit);
EVENTS(grant);
EVENTS(bucket);
EVENTS(arrivals);
EVENTS(repair);

#define RUN(name)                                                                          \
	SEC("tc")                                                                          \
	int run_##name(struct __sk_buff *ctx)                                              \
	{                                                                                  \
		__u32 zero = 0;                                                            \
		struct name##_event *e = bpf_map_lookup_elem(&name##_events, &zero);       \
                                                                                           \
		return e ? name##_run(e) : 1;                                              \
	}

RUN(slots)
RUN(release)
RUN(groups)
RUN(edge)
RUN(credit)
RUN(grant)
RUN(bucket)
RUN(arrivals)
RUN(repair)
