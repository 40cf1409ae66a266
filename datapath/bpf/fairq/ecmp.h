// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Equal paths (ECMP; docs/fairq.md): ACKs whose data passes through another switch.
//
//              +-- spine 1: data -> [port to leaf 2] --+
//   leaf 1 ----+                                       +---- leaf 2
//              +-- spine 2: <------------------- ACK --+
//
// Spine 2 does not see the data, but it has the twin of the port that the data fills. The twin is the port that the ACK
// came in by: the data would leave there if it passed through spine 2. If the twin is configured as one of N paths
// (`paths`), the ACK is limited to 1/N of its window, as in the paper. docs/fairq.md explains this.
//
// core/fairq/groups.h decides which ACKs are limited so, and to what part of the window.
#ifndef WEIR_BPF_ECMP_H
#define WEIR_BPF_ECMP_H

#include "flows.h"
#include "port.h"
#include "../../core/fairq/groups.h"

// Returns the id of the port that an end's data leaves by. If that port is on another switch: the id of its twin here.
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

	if (!config || !config->netns_cookie) // ids are assigned in order: the rest was never used
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

// Reports whether the ACKs of a connection must be limited although its data was never seen here: to the window of the
// port that they came in by. That port is searched once, and again when ACKs come in by another device. Where none was
// found, it is searched once a sweep.
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
