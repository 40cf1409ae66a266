// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The switch program, which records every call of its law (../../bpf/fairq/trace.h).
#define WEIR_LAW_TRACE
#include "../../../bpf/fairq/fairq.bpf.c"

// For the Go types.
const struct law_turn *unused_turn __attribute__((unused));
const struct law_look *unused_look __attribute__((unused));
const struct law_ack *unused_ack __attribute__((unused));
const struct law_count *unused_count __attribute__((unused));
const struct law_paces *unused_paces __attribute__((unused));
const struct law_credit *unused_credit __attribute__((unused));
const struct law_asked *unused_asked __attribute__((unused));
