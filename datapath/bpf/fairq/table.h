// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Finds, enters and removes the connections of the flow table. A connection is in one of two maps:
//
//   near    an array: a short hash of the key gives the only place that the connection can have there
//   flows   a hash table: has the connections whose place was taken when they came
//
// A lookup in a hash table takes half of the time of a data packet, and one in `near` a quarter of that. With 4000 connections and 16384
// places 9 of 10 are in `near`.
//
// Two CPUs may change the table at once. A place has a holder: the hash of its key, with a phase in the lowest bits. A CPU
// that changes a place first puts its holder there, by compare-and-swap. So one of two CPUs that enter the same connection finds the
// holder of the other one.
//
// A packet may still use a connection that another CPU removes, and its place may then have a new one, as an entry of the kernel's hash
// table may. The packet then counts in the wrong connection. Nothing else comes of it.
#ifndef WEIR_BPF_TABLE_H
#define WEIR_BPF_TABLE_H

#include "flows.h"

enum phase {
	PHASE_FREE = 0,    // then all of the holder is 0
	PHASE_CHANGES = 1, // a connection is written into it, or removed
	PHASE_HOLDS = 2,
	PHASE_MASK = 3,
};

const volatile __u32 near_places = NEAR_PLACES; // places of `near` in use; 0: none

// Returns a hash of the key. Its upper half gives the place.
static __always_inline __u64 flow_hash(const struct flow_key *key)
{
	__u64 secret = (__u64)flow_digest_key[0] << 32 | flow_digest_key[1];
	__u64 h = (key->word[0] ^ secret) * 0x9e3779b97f4a7c15ull;

	h = ((h ^ h >> 32) + key->word[1]) * 0xbf58476d1ce4e5b9ull;
	return h ^ h >> 32;
}

// Returns the holder of a place in one of the phases but PHASE_FREE.
static __always_inline __u64 holder_of(__u64 hash, enum phase phase) { return (hash & ~(__u64)PHASE_MASK) | phase; }

static __always_inline struct near_place *near_of(__u64 hash)
{
	__u32 place = ((hash >> 32) * near_places) >> 32;

	return near_places ? bpf_map_lookup_elem(&near, &place) : NULL;
}

static __always_inline struct connection *flow_find(const struct flow_key *key)
{
	__u64 hash = flow_hash(key);
	struct near_place *at = near_of(hash);

	if (likely(at && at->holder == holder_of(hash, PHASE_HOLDS) && at->key.word[0] == key->word[0] && at->key.word[1] == key->word[1]))
		return &at->c;
	return bpf_map_lookup_elem(&flows, key);
}

static __always_inline void place_frees(struct near_place *at)
{
	at->key = (struct flow_key){};
	WEIR_SWAP(&at->holder, PHASE_FREE);
}

// Enters a copy of a connection. Returns 0; -EEXIST: it is in the table already; another error: there is no room.
//
// One CPU may find its place taken and enter it in `flows`, and another find the place free a moment later. So each looks into the
// other map after its own entry, and takes its entry back if it finds the other one. If both do, the next packet enters it.
static __always_inline long flow_add(const struct flow_key *key, const struct connection *c)
{
	__u64 hash = flow_hash(key), before = PHASE_HOLDS;
	struct near_place *at = near_of(hash);
	long err;

	if (at)
		before = WEIR_CAS(&at->holder, PHASE_FREE, holder_of(hash, PHASE_CHANGES));
	if (at && !before) {
		at->c = *c;
		at->key = *key;
		if (bpf_map_lookup_elem(&flows, key)) {
			place_frees(at);
			return -EEXIST;
		}
		WEIR_SWAP(&at->holder, holder_of(hash, PHASE_HOLDS));
		return 0;
	}
	if (holder_of(before, PHASE_HOLDS) == holder_of(hash, PHASE_HOLDS))
		return -EEXIST;
	err = bpf_map_update_elem(&flows, key, c, BPF_NOEXIST);
	// The holder is read with an atomic instruction, which is a full barrier: a plain read may come before the entry is visible to the
	// other CPU, and then neither finds the other one's.
	if (!err && at && holder_of(WEIR_CAS(&at->holder, PHASE_FREE, PHASE_FREE), PHASE_HOLDS) == holder_of(hash, PHASE_HOLDS)) {
		bpf_map_delete_elem(&flows, key);
		return -EEXIST;
	}
	return err;
}

// Removes a connection that flow_find gave. Returns 0, or an error if another CPU removed it.
static __always_inline long flow_remove(const struct flow_key *key, const struct connection *c)
{
	__u64 hash = flow_hash(key);
	struct near_place *at = near_of(hash);

	if (!at || c != &at->c)
		return bpf_map_delete_elem(&flows, key);
	if (WEIR_CAS(&at->holder, holder_of(hash, PHASE_HOLDS), holder_of(hash, PHASE_CHANGES)) != holder_of(hash, PHASE_HOLDS))
		return -ENOENT;
	place_frees(at);
	return 0;
}

#endif
