// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The shim's programs and the baselines of their benchmark.
#include "../../../bpf/fairq/shim.bpf.c"
#include "../../bpftest/baselines.h"

// Writes and clears, so that it can be repeated on one packet.
SEC("tcx/egress")
int send_and_clear(struct __sk_buff *ctx)
{
	shim_packet(ctx, 0);
	return shim_packet(ctx, 1);
}
