// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The hooks of trace.h in a program without a trace: they do nothing.
#ifndef WEIR_BPF_TRACE_OFF_H
#define WEIR_BPF_TRACE_OFF_H

#define LAW_TRACED 0

struct turn {
};

struct asked {
};

struct count_report {
};

struct credit_report {
};

#define turn_begins(turn, id, event) ((void)(turn))
#define turn_hears(turn, config, port, now, value, live, readable) ((void)(turn))
#define turn_ends(turn, config, port) ((void)(config))
#define turn_reported(turn) ((void)(turn))
#define count_begins(report, id, event) ((void)(report))
#define count_ends(report, config, port, now, answer) ((void)(report))
#define count_reported(report) ((void)(report))
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
#define asked_promised(asked, promise) (promise)
#define asked_sees(asked, e) (e)
#define asked_keeps(asked, e) ((void)(asked))
#define asked_edge(asked, a, advertises) ((void)(asked))
#define asked_law(asked, window, field) ((void)(asked))
#define asked_edge_before(asked, edge) (edge)
#define asked_edge_after(asked, edge) ((void)(asked))
#define asked_reported(asked, ctx, s, c, left) ((void)(asked))
#define asked_left(asked, s, c, leaves) ((void)(asked))
#define credit_reports(report, id, event) ((void)(report))
#define credit_hears(report, now, left, promise, bytes, life) ((void)(report))
#define credit_remembers(report, mark) ((void)(mark))
#define credit_hears_ack(report, d) ((void)(report))
#define credit_replies(report, promise, answer) ((void)(report))
#define credit_ends(report, p) ((void)(report))
#define credit_reported(report) ((void)(report))
#define law_rests(id, d, promise) credit_rests_with(id, d, promise)
#define law_paces(id, config, port, live) port_must_pace(config, port, live)
#define law_counts_other(id, pacing, now) credit_counts_other(&p->state, pacing, now)
#define asked_turn(s, gso, turn, next, begins, longest, after, una) ((void)(s))
#define asked_again(s, gso, turn, longest, una) ((void)(una))
#define asked_opens(s, c, begins, completes, sent, answer) ((void)(s))
#define asked_answered(s, c, turn, answer) ((void)(s))
#define asked_advance(id, una, ack, answer) ((void)(una))
#define asked_unconcerned(id, d) ((void)(d))

#endif
