// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The repair program for BPF_PROG_TEST_RUN, where a packet has no queue: the backlog and the time come from variables.
// Everything else is the program itself.
#include "../../../bpf/lib/kernel.h"

__u32 backlog_bytes;
__u64 now_ns;

#define NOW() now_ns
#define BACKLOG(ctx) backlog_bytes
#include "../../../bpf/repair/repair.bpf.c"
