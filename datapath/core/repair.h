// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The repair of losses at a switch's port (SPEC 1.11): a TCP segment that the full queue would lose is kept in a parking,
// and joins the queue when this has drained.
//
// Numeric specification
//   backlog_bytes   u32, bytes that wait in the port's queue, without this packet, as the queue counts them.
//   parked_bytes    u32, bytes of the port's packets in the parking.
//   bytes           u32, length of this packet.
//   A packet is over the limit when backlog_bytes + bytes > limit_bytes, in 64 bits. At an empty queue no packet is: it could wait
//   for ever.
//   waits           a packet of the same flow and direction is in the parking. Later packets go behind it, so that the flow keeps
//                   its order.
//
//              within the limit             over it
//   not TCP    pass                         other
//   TCP        pass; behind, if it waits    over
//              behind and over are parked; if the parking has no room: full
//   What is full, or over and not TCP, is dropped. With credits it goes to the queue.
//
// The parking returns packets in order, at the port's rate. So the queue has room for them if it holds a little more than
// limit_bytes. Where the parking can be early or the port late, full_bytes is set: a packet that comes back while more than that
// would be in the queue waits once more. So do those behind it. None waits for longer than REPAIR_FORGET_NS in all.
#ifndef WEIR_CORE_REPAIR_H
#define WEIR_CORE_REPAIR_H

#include "types.h"

// No packet waits for so long. A flow is taken to have left the parking then, whatever happened to its packets.
#define REPAIR_FORGET_NS 200000000ull
// Packets may enter the parking in another order than that of their times, by less than this.
#define REPAIR_ORDER_NS 1000000ull

struct repair_config {
	weir_u32 limit_bytes; // of the queue
	weir_u32 park_bytes;  // the most that waits in the parking
	weir_u32 full_bytes;  // of the queue, for packets that come back; 0: they never wait once more
};

// A flow's direction.
struct repair_flow {
	weir_u64 parked_ns; // when its last packet was parked
	weir_u32 waiting;   // packets in the parking
	weir_u32 unused;
};

// Each outcome has its own counter.
enum repair_verdict {
	REPAIR_PASS,
	REPAIR_OVER,   // parked: the queue has no room for it
	REPAIR_BEHIND, // parked: the queue has room for it, and packets of its flow wait
	REPAIR_FULL,   // over the limit or behind, and the parking has no room for it
	REPAIR_OTHER,  // over the limit, and not TCP
};

// Reports whether packets of a flow wait. back_ns: when the packet that came back last was parked, 0: none. The parking keeps the
// order, so packets that were parked before it are not there any more. Then a count that says otherwise has missed losses.
WEIR_INLINE int repair_waits(const struct repair_flow *flow, weir_u64 back_ns, weir_u64 now_ns)
{
	return flow->waiting && flow->parked_ns + REPAIR_ORDER_NS >= back_ns && now_ns < flow->parked_ns + REPAIR_FORGET_NS;
}

WEIR_INLINE enum repair_verdict repair_decide(const struct repair_config *config, weir_u32 backlog_bytes, weir_u32 parked_bytes,
					      weir_u32 bytes, int is_tcp, int waits)
{
	int over = backlog_bytes && (weir_u64)backlog_bytes + bytes > config->limit_bytes;

	if (!is_tcp)
		return over ? REPAIR_OTHER : REPAIR_PASS;
	if (!over && !waits)
		return REPAIR_PASS;
	if ((weir_u64)parked_bytes + bytes > config->park_bytes)
		return REPAIR_FULL;
	return over ? REPAIR_OVER : REPAIR_BEHIND;
}

// Reports whether a packet that comes back after waited_ns must wait once more. behind: packets before it do.
WEIR_INLINE int repair_again(const struct repair_config *config, weir_u32 backlog_bytes, weir_u32 bytes, int behind, weir_u64 waited_ns)
{
	if (!config->full_bytes || waited_ns > REPAIR_FORGET_NS)
		return 0;
	return behind || (backlog_bytes && (weir_u64)backlog_bytes + bytes > config->full_bytes);
}

#endif
