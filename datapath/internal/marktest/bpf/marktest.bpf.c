// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The marking program for BPF_PROG_TEST_RUN, where a packet has no queue: the backlog comes from a
// variable. Everything else is the program itself.
#include "../../../bpf/lib/kernel.h"

__u32 backlog_bytes;

#define BACKLOG(ctx) backlog_bytes
#include "../../../bpf/mark/mark.bpf.c"
#include "../../bpftest/baselines.h"
