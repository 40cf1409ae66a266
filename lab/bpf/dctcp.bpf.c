// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// DCTCP (RFC 8257) for the guests of a lab, on kernels without it. alpha, in 1/1024, is the moving average of the fraction of marked
// segments, once per window (3.3, g = 1/16). A mark reduces the window by alpha/2, a loss by half (3.5). Between reductions it
// grows as Reno's. A receiver repeats each mark: a change of CE sends the ACK that still waits first (3.2).
#include "../../datapath/bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define ONE 1024u
#define G_SHIFT 4
#define NEEDS_ECN 2u        // of tcp_congestion_ops.flags
#define DEMAND_CWR 4        // of tcp_sock.ecn_flags: ACKs carry ECE
#define ACK_TIMER 2         // of icsk_ack.pending: a delayed ACK waits
#define RECOVERY 3          // enum tcp_ca_state
#define LOSS 4
#define NO_THRESHOLD 0x7fffffffu
#define MOST_SEGMENTS (1u << 24) // no window has as many

enum tcp_ca_event {
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	int unused;
};

struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[4];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt, snd_nxt, snd_una, snd_cwnd, snd_ssthresh, delivered, delivered_ce;
	__u8 ecn_flags;
};

#pragma clang attribute pop

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	char name[16];
	__u32 flags;
};

// The state of a connection, in icsk_ca_priv.
struct dctcp {
	__u32 alpha;
	__u32 end;       // SND.NXT when the observation window began
	__u32 delivered; // segments, and marked ones, at its begin
	__u32 marked;
	__u32 cut;       // the window before the last reduction
	__u32 received;  // RCV.NXT when CE was seen last
	__u32 ce;        // the last data packet had CE
	__u32 window;    // at the last acknowledgement
};

char _license[] SEC("license") = WEIR_LICENSE;

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;

static __always_inline struct dctcp *state_of(struct tcp_sock *tp)
{
	return (struct dctcp *)tp->inet_conn.icsk_ca_priv;
}

static __always_inline void observe(struct tcp_sock *tp, struct dctcp *d)
{
	d->end = tp->snd_nxt;
	d->delivered = tp->delivered;
	d->marked = tp->delivered_ce;
}

SEC("struct_ops")
void BPF_PROG(dctcp_init, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *d = state_of(tp);

	d->alpha = ONE;
	d->cut = 0;
	d->received = tp->rcv_nxt;
	d->ce = 0;
	observe(tp, d);
}

// Returns what a mark leaves of the window.
static __always_inline __u32 reduced(struct tcp_sock *tp)
{
	__u32 left = tp->snd_cwnd - ((__u64)tp->snd_cwnd * state_of(tp)->alpha >> 11);

	return left < 2 ? 2 : left;
}

SEC("struct_ops")
__u32 BPF_PROG(dctcp_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;

	state_of(tp)->cut = tp->snd_cwnd;
	return reduced(tp);
}

// A loss: the kernel has asked for the threshold just before.
SEC("struct_ops")
void BPF_PROG(dctcp_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 half = state_of(tp)->cut >> 1;

	if (state == RECOVERY || state == LOSS)
		tp->snd_ssthresh = half < 2 ? 2 : half;
}

// On some kernels a call of dctcp_ssthresh is lost now and then while processors are busy (seen on 6.18): the threshold is then what
// was on the kernel's stack, and the window follows it. Takes both back to what the mark should have left.
static __always_inline void restore(struct tcp_sock *tp, struct dctcp *d)
{
	if (tp->snd_ssthresh == NO_THRESHOLD || tp->snd_ssthresh <= MOST_SEGMENTS) {
		d->window = tp->snd_cwnd;
		return;
	}
	tp->snd_cwnd = d->window < 2 ? 2 : d->window;
	d->cut = tp->snd_cwnd;
	tp->snd_ssthresh = reduced(tp);
}

SEC("struct_ops")
void BPF_PROG(dctcp_ack, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *d = state_of(tp);
	__u32 delivered = tp->delivered - d->delivered, marked = tp->delivered_ce - d->marked, decay = d->alpha >> G_SHIFT;

	restore(tp, d);
	if ((__s32)(tp->snd_una - d->end) < 0)
		return;
	d->alpha -= decay ? decay : d->alpha;
	if (marked) {
		d->alpha += ((__u64)marked << (10 - G_SHIFT)) / (delivered ? delivered : 1);
		if (d->alpha > ONE)
			d->alpha = ONE;
	}
	observe(tp, d);
}

SEC("struct_ops")
void BPF_PROG(dctcp_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *d = state_of(tp);
	__u32 ce = event == CA_EVENT_ECN_IS_CE;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (ce != d->ce) {
		// The ACK of earlier data has the mark of that data.
		if (tp->inet_conn.icsk_ack.pending & ACK_TIMER)
			bpf_tcp_send_ack(tp, d->received);
		d->ce = ce;
	}
	d->received = tp->rcv_nxt;
	if (ce)
		tp->ecn_flags |= DEMAND_CWR;
	else
		tp->ecn_flags &= ~DEMAND_CWR;
}

SEC("struct_ops")
__u32 BPF_PROG(dctcp_undo, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 cut = state_of(tp)->cut;

	return tp->snd_cwnd > cut ? tp->snd_cwnd : cut;
}

SEC("struct_ops")
void BPF_PROG(dctcp_grow, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops weir_dctcp = {
	.ssthresh = (void *)dctcp_ssthresh,
	.cong_avoid = (void *)dctcp_grow,
	.set_state = (void *)dctcp_state,
	.cwnd_event = (void *)dctcp_event,
	.in_ack_event = (void *)dctcp_ack,
	.undo_cwnd = (void *)dctcp_undo,
	.init = (void *)dctcp_init,
	.name = "weir_dctcp00000", // the loader writes digits
	.flags = NEEDS_ECN,
};
