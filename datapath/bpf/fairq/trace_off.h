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
