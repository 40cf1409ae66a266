// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The parking: holds packets in the kernel and sends them later, in order, at a rate. docs/park.md has a picture.
//
// A law's egress program calls park_send, which redirects the packet to the parking device. HTB on that device sends the
// packets of each class at the class's rate. The program behind it (bpf/park/park.bpf.c) redirects each packet to the port
// that it was to leave by. The law's program runs there again, and must pass the packet at once: park_is_return.
//
// HTB counts the length of a packet. So a packet that counts for more bytes than it has is padded with zeros, and trimmed
// again behind HTB. Zeros do not change an Internet checksum.
//
// A parked packet has all that its way back needs in skb->mark:
//
//   31     26   25     24     23        20  19        14  13       10  9            0
//   | magic | probe | padded | priority    | generation  | trailer    | port's id    |
//
//   probe       measures how late its class is
//   padded      trim the packet to the end of its IP packet, plus the trailer
//   generation  of the port's id: packets for an earlier device with the same id must not leave by its successor
//   trailer     bytes behind the IP packet that the packet had before it was padded: a minimal Ethernet frame has some
//
// A packet whose mark is in use, or whose priority does not fit, is not parked.
//
// HTB loses rate with each timer that is later than its burst, and a law that fills a class at its rate would have a longer queue for ever.
// So each class has a schedule: when its packets leave at its rate. One packet at a time is a probe: it measures how much later it
// comes back. Padding is then cut, by an eighth of a packet at most, until the class has caught up. A class that is early gets more
// padding. Only the class itself has a schedule, not its queues (PARK_HELD and so on).
#ifndef WEIR_BPF_PARK_H
#define WEIR_BPF_PARK_H

#include <bpf/bpf_core_read.h>
#include "counts.h"
#include "frame.h"

#define PARK_PORTS 1024
#define PARK_MAGIC 0x2bu
#define PARK_MAGIC_SHIFT 26
#define PARK_PROBE (1u << 25)
#define PARK_PADDED (1u << 24)
#define PARK_PRIORITY_MAX 15
#define PARK_GENERATIONS 64
#define PARK_TRAILER_MAX 15
#define PARK_LENGTH_MAX 16000    // bytes: bpf_skb_change_tail makes packets no longer than about 16 KB
#define PARK_LATE_NS 100000ll    // a class that is later catches up: laws let a flow's next packet pass when the one before should have left
#define PARK_EARLY_NS 1000000ll  // a class that is earlier waits: HTB lets it send a burst
#define PARK_LOST_NS 1000000000ll // a probe that is later was lost
#define PARK_CATCH_UP 8          // the padding of a packet changes by 1 / this of its length at most
#define PARK_HANDLE 0x50580000u  // of HTB at the parking device; the class of id n is PARK_HANDLE + n + 1
#define PARK_HELD 0x2000u        // added to a class's id: its queue of held requests, which looks at one of them after another
#define PARK_FIRST 0x3000u       // added to a class's id: for a held request that must stay one: it stays the first of them
#define PARK_KEPT 0x5000u        // added to a class's id: its queue of segments that the port's queue had no room for
#define PARK_KEPT_AGAIN 0x6000u  // added to a class's id: for such segments that come back too early: they are the first of them
#define PARK_QUEUES 0x7000u
#define PARK_PASS (-1)
#define PARK_REDIRECT 7          // TCX_REDIRECT, TC_ACT_REDIRECT
#define PARK_DEVICE_REGISTERED 1 // NETREG_REGISTERED
#define PARK_DEVICE_NO_CARRIER 4 // 1 << __LINK_STATE_NOCARRIER: the other end is down

// The state of the parking of a network namespace. User space writes it, and weir_park_learn the device.
struct park_state {
	__u64 device; // struct net_device of the parking device; 0: nothing is parked
	__u64 netns_cookie;
	__u32 in_ifindex;  // the parking device
	__u32 out_ifindex; // its other end, where packets come back
	__u32 limit_bytes;
	__u32 limit_packets;
};

// A port, and the class with its id.
struct park_port {
	__u32 ifindex;    // 0: never set. A closed port keeps it, for packets that wait
	__u16 generation; // 0 .. PARK_GENERATIONS - 1
	__u16 open;       // 1: packets may be parked for this port and in its class
	// The schedule of the class. The programs write all but the first of these.
	__u64 byte_ns_q20; // time of a byte at the class's rate, ns * 2^20; 0: it has no schedule
	__u64 free_ns;     // when all that waits has left
	__u64 probes_ns;   // when its probe should leave; 0: none is under way
	__s64 late_ns;     // what the latest probe measured; less than 0: it was early
	__s64 late_bytes;  // that padding is still to be cut by; less than 0: added to
	// The probe that leaves by this port. The programs write it.
	__u64 due_ns;      // when it should leave; 0: none
	__u32 probe;       // id of its class
	__u32 zero;
};

// Reasons not to park a packet.
enum park_reason {
	PARK_CLOSED,   // no parking
	PARK_GONE,     // the parking device or its HTB is gone or down
	PARK_FULL,
	PARK_NO_PORT,  // no such port, or no such class
	PARK_MARKED,   // skb->mark is in use
	PARK_PRIORITY, // skb->priority is above PARK_PRIORITY_MAX
	PARK_REASONS,
};

// Packets, as on the wire.
struct park_counts {
	__u64 parked;
	__u64 padded;    // of the parked
	__u64 in_debt;   // of the parked: counted for less than their cost
	__u64 passed[PARK_REASONS];
	__u64 returned;
	__u64 untrimmed; // of the returned: with the zeros, because the kernel could not trim the packet
	__u64 stale;     // dropped: their port is gone
	__u64 foreign;   // dropped: somebody else sent them through the parking device
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct park_state);
} parking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PARK_PORTS);
	__type(key, __u32);
	__type(value, struct park_port);
} park_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct park_counts);
} park_stats SEC(".maps");

// Kernel structures with the fields that only this file reads. CO-RE ignores the end of the names.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qdisc_skb_head___park {
	__u32 qlen;
};

struct Qdisc___park {
	__u32 handle;
	struct qdisc_skb_head___park q;
	struct gnet_stats_queue qstats;
};

struct netdev_queue___park {
	struct Qdisc___park *qdisc;
};

struct net_device___park {
	unsigned long state;
	int ifindex;
	__u8 reg_state;
	possible_net_t nd_net;
	struct netdev_queue___park *_tx;
};

#pragma clang attribute pop

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

static __always_inline struct park_state *park_state_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&parking, &zero);
}

static __always_inline struct park_counts *park_counts_of(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&park_stats, &zero);
}

// Reports whether a packet comes back from the parking, so that it must leave now.
static __always_inline int park_is_return(const struct __sk_buff *ctx)
{
	struct park_state *state = park_state_of();

	return state && state->out_ifindex && ctx->ingress_ifindex == state->out_ifindex;
}

// Checks that the parking device takes a packet. The memory of a deleted device may hold anything, so its identity is
// checked first. The program runs in an RCU section, so a device that is registered now is not freed before it ends.
// The queue of the transmit queue, not of the device: if the device goes down, the kernel replaces only the former.
static __always_inline enum park_reason park_room(const struct park_state *state)
{
	struct net_device___park *device;
	struct Qdisc___park *root;

	if (!state->device)
		return PARK_CLOSED;
	device = bpf_rdonly_cast((void *)state->device, bpf_core_type_id_kernel(struct net_device));
	if (device->reg_state != PARK_DEVICE_REGISTERED || device->ifindex != (int)state->in_ifindex ||
	    device->nd_net.net->net_cookie != state->netns_cookie)
		return PARK_GONE;
	root = device->_tx->qdisc;
	if (!root || root->handle != PARK_HANDLE || device->state & PARK_DEVICE_NO_CARRIER)
		return PARK_GONE;
	if (root->qstats.backlog >= state->limit_bytes || root->q.qlen >= state->limit_packets)
		return PARK_FULL;
	return PARK_REASONS;
}

// Returns the offset behind the IP packet of a frame, 0 if it has none.
static __always_inline __u32 park_ip_end(struct __sk_buff *ctx)
{
	struct frame f = {};
	__be16 bytes = 0;

	frame_read(ctx, &f);
	if (f.kind != FRAME_IPV4 && f.kind != FRAME_IPV6)
		return 0;
	if (bpf_skb_load_bytes(ctx, f.l3 + (f.kind == FRAME_IPV4 ? 2 : 4), &bytes, sizeof(bytes)) || !bytes)
		return 0;
	return f.l3 + (f.kind == FRAME_IPV4 ? 0 : FRAME_IPV6_BYTES) + bpf_ntohs(bytes);
}

// Pads a packet to `length` bytes. Returns the fields of the mark that restore it, 0 if it remains as it is.
static __always_inline __u32 park_pad(struct __sk_buff *ctx, __u32 length)
{
	__u32 end = park_ip_end(ctx), trailer = ctx->len - end;

	if (!end || end > ctx->len || trailer > PARK_TRAILER_MAX || bpf_skb_change_tail(ctx, length, 0))
		return 0;
	return PARK_PADDED | trailer << 10;
}

// Takes the place of a packet in a class's schedule. Returns when the packet should leave.
static __always_inline __u64 park_schedule(struct park_port *class, __u32 bytes, __u64 now)
{
	__u64 takes = bytes * class->byte_ns_q20 >> 20, from = __sync_fetch_and_add(&class->free_ns, takes);

	if ((__s64)(from - now) >= 0)
		return from;
	__sync_val_compare_and_swap(&class->free_ns, from + takes, now + takes); // else another CPU did
	class->late_bytes = 0; // nothing should wait
	return now;
}

// Returns the length to which a packet is padded, `length` or near it, so that its class catches up. least: its own length.
static __always_inline __u32 park_catch_up(struct park_port *class, __u32 length, __u32 least)
{
	__s64 change = class->late_bytes, most = length / PARK_CATCH_UP, changed;

	if (!change)
		return length;
	if (change > most)
		change = most;
	if (change < -most)
		change = -most;
	changed = (__s64)length - change;
	if (changed < least)
		changed = least;
	if (changed > PARK_LENGTH_MAX)
		changed = PARK_LENGTH_MAX;
	__sync_fetch_and_add(&class->late_bytes, changed - (__s64)length);
	return (__u32)changed;
}

static __always_inline int park_under_way(__u64 due_ns, __u64 now) { return due_ns && (__s64)(now - due_ns) < PARK_LOST_NS; }

// Makes a packet the probe of its class, unless one is under way or the class catches up. Returns the bit of the mark.
static __always_inline __u32 park_probes(struct park_port *port, struct park_port *class, __u32 id, __u64 due_ns, __u64 now)
{
	if (class->late_bytes || park_under_way(class->probes_ns, now) || park_under_way(port->due_ns, now))
		return 0;
	class->probes_ns = due_ns;
	port->due_ns = due_ns;
	port->probe = id;
	return PARK_PROBE;
}

// Returns how late a class is: the lesser of what its probe and the one before it measured, because a processor that was late once is no
// lack of rate. 0 if that is near 0.
static __always_inline __s64 park_late(__s64 late_ns, __s64 before_ns)
{
	if ((late_ns ^ before_ns) < 0)
		return 0;
	if (late_ns >= 0) {
		late_ns = late_ns < before_ns ? late_ns : before_ns;
		return late_ns > PARK_LATE_NS ? late_ns - PARK_LATE_NS : 0;
	}
	late_ns = late_ns > before_ns ? late_ns : before_ns;
	return late_ns < -PARK_EARLY_NS ? late_ns + PARK_EARLY_NS : 0;
}

// Event: the probe that leaves by a port comes back.
static __always_inline void park_probed(struct park_port *port)
{
	__u32 id = port->probe;
	struct park_port *class = bpf_map_lookup_elem(&park_ports, &id);
	__s64 measured = (__s64)(bpf_ktime_get_ns() - port->due_ns), late;
	__u64 bytes;

	port->due_ns = 0;
	if (!class || !class->byte_ns_q20)
		return;
	class->probes_ns = 0;
	if (measured >= PARK_LOST_NS || measured <= -PARK_LOST_NS)
		return;
	late = park_late(measured, class->late_ns);
	class->late_ns = late ? 0 : measured; // the next ones have caught up
	bytes = ((__u64)(late < 0 ? -late : late) << 20) / class->byte_ns_q20;
	class->late_bytes = late < 0 ? -(__s64)bytes : (__s64)bytes;
}

// Parks a packet that leaves by the port `out`, in the class of the port `class`. It counts for `cost` bytes there.
// Returns PARK_REDIRECT, which the program must then return; or PARK_PASS: the packet is unchanged and not parked.
// With PARK_HELD or PARK_FIRST added to `class`, it waits in the class's queue of held requests instead; with PARK_KEPT or
// PARK_KEPT_AGAIN, in that of kept segments, which has the class's rate.
// *debt: the bytes of the cost that the length does not express; less than 0 if the packet is longer than its cost. The
// law subtracts them from what it lets pass. Packet pointers must be loaded again after a call.
// A function of its own, so that the verifier checks it once.
__noinline int park_send(struct __sk_buff *ctx, __u32 out, __u32 class, __u32 cost, __s32 *debt)
{
	struct park_state *state = park_state_of();
	struct park_counts *counts = park_counts_of();
	struct park_port *port, *paced;
	enum park_reason reason;
	__u64 packets = packets_of(ctx), now;
	int scheduled;
	// As HTB would count it now. volatile: else clang reads it or len through one modified pointer, which is refused.
	__u32 charged = *(volatile __u32 *)&ctx->wire_len;
	__u32 mark, length, id = class & ~PARK_QUEUES;

	if (!state || !counts || !debt)
		return PARK_PASS;
	*debt = 0;
	port = bpf_map_lookup_elem(&park_ports, &out);
	paced = bpf_map_lookup_elem(&park_ports, &id);
	reason = park_room(state);
	if (reason == PARK_REASONS) {
		if (!port || !paced || !port->open || !paced->open)
			reason = PARK_NO_PORT;
		else if (ctx->mark)
			reason = PARK_MARKED;
		else if (ctx->priority > PARK_PRIORITY_MAX)
			reason = PARK_PRIORITY;
	}
	if (reason < PARK_REASONS || !port) {
		counts->passed[reason < PARK_REASONS ? reason : PARK_NO_PORT] += packets;
		return PARK_PASS;
	}
	mark = PARK_MAGIC << PARK_MAGIC_SHIFT | ctx->priority << 20 | (port->generation & (PARK_GENERATIONS - 1)) << 14 | out;
	length = cost < PARK_LENGTH_MAX ? cost : PARK_LENGTH_MAX;
	scheduled = class == id && paced->byte_ns_q20;
	if (!ctx->gso_size && length > ctx->len)
		mark |= park_pad(ctx, scheduled ? park_catch_up(paced, length, ctx->len) : length);
	if (mark & PARK_PADDED)
		charged = length;
	*debt = cost - charged;
	if (scheduled) {
		now = bpf_ktime_get_ns();
		mark |= park_probes(port, paced, id, park_schedule(paced, charged, now), now);
	}
	ctx->mark = mark;
	ctx->priority = PARK_HANDLE + class + 1;
	counts->parked += packets;
	if (mark & PARK_PADDED)
		counts->padded += packets;
	if (*debt > 0)
		counts->in_debt += packets;
	return bpf_redirect(state->in_ifindex, 0);
}

#endif
