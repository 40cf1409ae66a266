// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Records of the measuring program in the ring buffer.
#ifndef WEIR_MEASURE_RECORDS_H
#define WEIR_MEASURE_RECORDS_H

#include "../../../datapath/bpf/lib/kernel.h"

enum record_kind {
	RECORD_SAMPLE = 1,
	RECORD_DROP = 2,
};

// The same value on count grid points, from first_ns on.
struct sample {
	__u32 kind;
	__u32 port;
	__u64 first_ns;
	__u64 marks;
	__u64 sent_bytes;
	__u32 count;
	__u32 backlog_bytes;
	__u32 drops; // by the queue
	__u32 zero;
};

struct drop {
	__u32 kind;
	__u32 port;
	__u64 at_ns;
	__u32 bytes; // as the queue counts them
	__u16 packets; // on the line: the segments of a GSO packet
	__u8 law;    // dropped by a program at tcx, not by a full queue
	__u8 family; // 4, 6; 0: no key
	__u8 proto;
	__u8 zero;
	__be16 src_port, dst_port; // 0 in a fragment other than the first
	__u8 src[16], dst[16];
};

#endif
