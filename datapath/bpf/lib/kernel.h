// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The declarations that Weir's kernel programs need.
//
// First the user ABI (contexts, return codes, flags, map types), which the kernel never changes. It is declared here so
// that the objects do not depend on the kernel headers of the machine that builds them.
// Then kernel structures with the fields that the programs read. The loader finds the real offsets in the running
// kernel's BTF (CO-RE), so order and gaps have no meaning here.
#ifndef WEIR_BPF_KERNEL_H
#define WEIR_BPF_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed short __s16;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;

#define NULL ((void *)0)
#define WEIR_LICENSE "Dual BSD/GPL"

// They name the direction that packets of long flows take at a branch. clang moves the other code out of theirs, which fits
// into fewer lines of the instruction cache.
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

// ---- user ABI ----

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1 << 10,
	CLOCK_MONOTONIC = 1,
	BPF_F_RECOMPUTE_CSUM = 1,
	BPF_RB_NO_WAKEUP = 1,
};

// Value of sk_buff.ip_summed: the device adds the checksum.
enum {
	CHECKSUM_PARTIAL = 3,
};

// Errors that helpers return, negated.
enum {
	ENOENT = 2,
	EBUSY = 16,
	EEXIST = 17,
};

// Return values of a tcx program. NEXT passes the packet to the next program of the chain.
enum {
	TCX_NEXT = -1,
	TCX_PASS = 0,
	TCX_DROP = 2,
};

enum {
	BPF_SOCK_OPS_TIMEOUT_INIT = 1,
};

// Context of tcx programs, up to gso_size.
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

// Parts of map values that the kernel knows by the names of their types.
struct bpf_spin_lock {
	__u32 val;
};

struct bpf_timer {
	__u64 opaque[2];
};

// Context of sockops programs, up to reply.
struct bpf_sock_ops {
	__u32 op;
	__u32 reply;
};

// ---- kernel structures ----

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
};

// The kernel nests 64-bit counters in one-member structures. Only the outermost is declared, and is read as 64 bits.
typedef struct {
} u64_stats_t;

struct gnet_stats_basic_sync {
	u64_stats_t bytes;
	u64_stats_t packets;
};

struct Qdisc {
	struct gnet_stats_basic_sync bstats;
	struct gnet_stats_queue qstats;
};

struct net_device {
	int ifindex;
	__u8 reg_state;
	possible_net_t nd_net;
	struct Qdisc *qdisc; // the root
};

struct netdev_queue {
	struct net_device *dev;
};

struct sk_buff {
	struct net_device *dev;
	char cb[48];
	unsigned int len;
	unsigned int data_len;
	__u8 ip_summed : 2;
	unsigned int end; // an offset from head on 64-bit machines
	unsigned char *head;
	unsigned char *data;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

// The start of skb->cb while a packet is between tcx and its queue discipline.
struct qdisc_skb_cb {
	struct {
		unsigned int pkt_len; // bytes on the wire: a GSO packet counts its segments' headers
	};
	unsigned char data[20]; // __sk_buff's cb[5]
};

#pragma clang attribute pop

#endif
