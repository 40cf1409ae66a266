// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The looks of a trace (trace.h): a packet asks whether it must take the sample.
#ifndef WEIR_BPF_TRACE_LOOKS_H
#define WEIR_BPF_TRACE_LOOKS_H

#include "trace_records.h"

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

#endif
