// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The integers of the per-packet laws. Freestanding: the same header is compiled into the kernel
// programs (clang, BPF) and into the simulator (any C compiler), so it includes nothing.
#ifndef WEIR_CORE_TYPES_H
#define WEIR_CORE_TYPES_H

typedef unsigned char weir_u8;
typedef unsigned short weir_u16;
typedef unsigned int weir_u32;
typedef unsigned long long weir_u64;

_Static_assert(sizeof(weir_u8) == 1 && sizeof(weir_u16) == 2, "8 and 16 bits");
_Static_assert(sizeof(weir_u32) == 4 && sizeof(weir_u64) == 8, "32 and 64 bits");

// A law is inlined into its caller: a kernel program is cheaper without a call, and the verifier
// then knows the arguments.
#define WEIR_INLINE static inline __attribute__((always_inline))

#endif
