// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The tables of a host's programs. User space writes them, except connections, pending and the counters. All are pinned, so
// that a new process continues with them.
#ifndef WEIR_BPF_HOST_TABLES_H
#define WEIR_BPF_HOST_TABLES_H

#include "../lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include "../../core/bucket.h"
#include "../../core/grant.h"
#include "../../core/handshake.h"
#include "../../core/vmecn.h"
#include "../lib/counts.h"
#include "../lib/segment.h"

#define HOST_VMS 4096
#define HOST_ADDRESSES 16
#define HOST_CAME 8192 // pairs with marks; the least recently used one is evicted
#define HOST_PORTS 65536 // ifindexes below it are found without a hash lookup

const volatile __u32 uplink_ifindex = 0;
// A VM's handshakes take from a share of the table `pending`: a quarter of it at once, and as much each second.
const volatile __u32 handshake_ns = 244141; // of the VM's second, for one handshake: 4096 a second
const volatile __u32 ecn_mode = VMECN_NONE;

struct host_control {
	__u32 schema;
	__u32 zero;
	__u64 seed[2]; // of segment_digest: connections keep their keys when a new process takes over
};

// A range of addresses that a VM may send from. IPv4 as ::ffff:a.b.c.d. Words as on the wire.
struct host_range {
	__u32 address[4];
	__u32 mask[4];
};

struct host_vm {
	__u32 number;    // law.VM; 0: the entry is unused
	__u32 ifindex;   // of its port
	__u64 cookie;    // of its port's namespace
	__u32 class;     // skb->priority of its limited class; 0: it has none
	__u32 addresses; // valid entries of address
	__u16 mac[3];    // as on the wire
	__u16 zero;
	char name[32];
	struct host_range address[HOST_ADDRESSES];
};

enum host_windows {
	WINDOWS_VM = 1,
	WINDOWS_PAIRS = 2,
	WINDOWS_FLOWS = 4,
};

// A VM's grants at the levels that need no lookup, and which lookups of the other levels can be left out.
struct host_grants {
	__u32 windows; // enum host_windows: the levels with window grants
	__u16 mss_max; // bytes: the port's MTU - 40
	__u16 zero;    // 1: a pause is a window of 0
	__u64 generation; // changes when a pair or a flow of the VM gets its first grant, or loses its last
	__u64 peers[4]; // filter of grant_bit: peers with a grant for the pair
	__u64 flows[4]; // the same for flows, with ports
	struct grants window;
	struct grants rate;
};

struct host_pair {
	__u32 vm; // index in vms
	__u32 peer[4]; // as in flow_ends
};

struct host_flow {
	__u32 vm;
	__u32 ports; // as on the wire in an ACK: the peer's, the VM's
	__u32 peer[4];
	__u32 own[4];
};

// The grants of a connection's pair and flow, in one word, so that it is written at once. Indexes in `keyed`, 0: none.
#define REFS_INDEX_BITS 20
#define REFS_INDEX_MASK ((1 << REFS_INDEX_BITS) - 1)

struct host_connection {
	struct handshake seen;
	__u32 is_signed; // both SYNs had a signature
	__u32 ecn;       // enum vmecn_agreed
	__u64 refs; // index of the pair, of the flow, and above them the generation of the VM for which they are right
};

// Counts of packets as on the wire: a GSO packet counts as its segments. Towards the VM each is in seen and in exactly one of
// the others up to unwritable; from the VM in sent and in exactly one of the others up to malformed.
struct host_counts {
	__u64 seen;
	__u64 not_tcp;
	__u64 tunnel;
	__u64 fragment;
	__u64 short_;
	__u64 no_ack;     // SYN, RST, or nothing acknowledged
	__u64 ungranted;  // no grant limits its flow
	__u64 limited;    // its window was made smaller
	__u64 smaller;    // its window was small enough already
	__u64 unknown;    // granted, but its handshake was not seen
	__u64 is_signed;  // granted, but its connection is signed
	__u64 unwritable; // the kernel had no memory to make it writable
	__u64 sent;
	__u64 local;         // passed, to another VM of this host
	__u64 relaxed;       // passed by the uplink, in the relaxed class
	__u64 in_class;      // passed by the uplink, in the VM's limited class
	__u64 control;       // dropped: a frame of Weir's control protocols
	__u64 spoofed_mac;   // dropped
	__u64 spoofed_ip;    // dropped
	__u64 malformed;     // dropped: its source cannot be read
	__u64 learnt;        // handshakes; in no sum
	__u64 unlearnt;      // SYNs from and to the VM beyond its share of the table of handshakes; in no sum
	__u64 ecn_set;       // from the VM: its ECN field was changed; in no sum
	__u64 ecn_cleared;   // the same towards it
	__u64 marked;        // from the network, with CE; in no sum. Counted only for a law that needs it
};

#define TABLE(name_, type_, entries, key_, value_)    \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_##type_);   \
		__uint(max_entries, entries);         \
		__type(key, key_);                    \
		__type(value, value_);                \
	} name_ SEC(".maps")

TABLE(controls, ARRAY, 1, __u32, struct host_control);
TABLE(owners, ARRAY, GRANT_OWNERS, __u32, struct grant_owner);
TABLE(vms, ARRAY, HOST_VMS, __u32, struct host_vm);
TABLE(vm_grants, ARRAY, HOST_VMS, __u32, struct host_grants);
TABLE(vm_ports, HASH, HOST_VMS, __u32, __u32); // ifindex of a VM's port: index in vms and 1
TABLE(near_ports, ARRAY, HOST_PORTS, __u32, __u32); // the same for small ifindexes; 0: none
TABLE(pairs, HASH, 65536, struct host_pair, __u32); // index in keyed
TABLE(flow_grants, HASH, 65536, struct host_flow, __u32);
TABLE(keyed, ARRAY, 131073, __u32, struct grants); // entry 0 is unused
TABLE(connections, LRU_HASH, 65536, struct flow_key, struct host_connection);
TABLE(pending, LRU_HASH, 16384, struct flow_key, struct host_connection);
TABLE(handshakes, ARRAY, HOST_VMS, __u32, __u64); // until when a VM's handshakes have used its share, ns of the coarse clock
TABLE(came, LRU_HASH, HOST_CAME, struct host_pair, __u64); // marked packets from a peer to a VM
TABLE(came_total, ARRAY, 1, __u32, __u64); // of all pairs, also evicted ones
TABLE(counts, PERCPU_ARRAY, HOST_VMS, __u32, struct host_counts);

// Returns the key of a VM's connection. Tenants may use the same addresses, so it has the VM: mixed in under a secret, because
// a lookup of 16 bytes takes less time than one of 24. It has no VLAN tags (VLANS_IGNORED), as the keys of grants have none.
static __always_inline struct flow_key key_of(const struct segment *s, __u32 vm)
{
	struct flow_key key = s->key;

	key.word[1] ^= ((__u64)flow_digest_key[18] << 32 | flow_digest_key[19] | 1) * vm;
	return key;
}

// Returns the index of the VM behind a port, and 1; 0: there is none. One program serves all VMs, so that 1000 of them are set
// up in the time of one load. All ports are in one namespace.
static __always_inline __u32 vm_behind(__u32 ifindex)
{
	__u32 *found;

	if (ifindex < HOST_PORTS)
		found = bpf_map_lookup_elem(&near_ports, &ifindex);
	else
		found = bpf_map_lookup_elem(&vm_ports, &ifindex);
	return found ? *found : 0;
}

#endif
