// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Equal paths (ECMP; docs/fairq.md): ACKs of which the data passes another switch.
//
//              +-- spine 1: data -> [port to leaf 2] --+
//   leaf 1 ----+                                       +---- leaf 2
//              +-- spine 2: <------------------- ACK --+
//
// Spine 2 does not see the data, but it has the twin of the port that the data fills: the one that the ACK came
// in by, which is where the data would leave if it came this way. Where that port says that it is one of N
// (`paths`), the ACK is held to 1/N of its window, as the paper has it. What is divided, and why, says
// docs/fairq.md.
//
// Which ACKs these are, and what part of the window they get, is decided in core/fairq/groups.h.
#ifndef WEIR_BPF_ECMP_H
#define WEIR_BPF_ECMP_H

#include "flows.h"
#include "port.h"
#include "../../core/fairq/groups.h"

// The id of the port that an end's data leaves by; where another switch has it, of its twin here.
static __always_inline __u32 paths_port(const struct end *sender)
{
	return (__u32)(sender->port ? sender->port : sender->assumed) - 1;
}

struct twin_search {
	__u64 netns_cookie;
	__u32 ifindex;
	__u32 id; // + 1; 0: not found
};

static long twin_step(__u32 id, struct twin_search *t)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);

	if (!config || !config->netns_cookie) // ids are given in order: the rest was never used
		return 1;
	if (config->ifindex != t->ifindex || config->netns_cookie != t->netns_cookie)
		return 0;
	t->id = id + 1;
	return 1;
}

static __always_inline int twin_is(__u32 id, const struct twin_search *t)
{
	struct port_config *config = bpf_map_lookup_elem(&configs, &id);

	return config && config->ifindex == t->ifindex && config->netns_cookie == t->netns_cookie;
}

// Whether the ACKs of a connection whose data was never heard are to be held all the same: to the window of the
// port that they came in by. It is looked for once, and again when they come in by another; where there was
// none, once a sweep.
__noinline int assumes_port(struct __sk_buff *ctx, const struct segment *s, struct connection *c)
{
	__u32 own = port_id, id;
	struct port_config *config;
	struct control *control;
	struct twin_search t = {};
	struct end *e, *sender;
	__u16 none;

	if (!s || !c)
		return 0;
	e = &c->end[s->side & 1];
	sender = &c->end[!s->side];
	if (!end_may_assume(e, sender))
		return 0;
	config = bpf_map_lookup_elem(&configs, &own);
	control = control_of();
	if (!config || !control)
		return 0;
	t.netns_cookie = config->netns_cookie;
	t.ifindex = ctx->ingress_ifindex;
	none = ASSUMED_NONE | ((t.ifindex + 257 * control->sweep) & (ASSUMED_NONE - 1));
	if (sender->assumed == none)
		return 0;
	if (!sender->assumed || !twin_is((__u32)sender->assumed - 1, &t)) {
		bpf_loop(FAIRQ_PORTS, twin_step, &t, 0);
		sender->assumed = t.id ? t.id : none;
	}
	id = (__u32)sender->assumed - 1;
	config = bpf_map_lookup_elem(&configs, &id);
	return config && config->paths > 1;
}

#endif
