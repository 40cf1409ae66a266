// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Notes when the BPF timers of one array map expire: for tests.
#include "../../../bpf/lib/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char _license[] SEC("license") = WEIR_LICENSE;

#define SLOTS 1024

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_map {
	__u32 id;
};

struct bpf_array {
	__u32 elem_size;
	char value[0];
};

struct bpf_async_cb {
	struct bpf_map *map;
	void *value;
};

struct hrtimer {
	void *function;
};

struct bpf_hrtimer {
	struct bpf_async_cb cb;
	struct hrtimer timer;
};

#pragma clang attribute pop

const volatile __u64 timer_function = 0; // that all BPF timers have
const volatile __u32 map_id = 0;

struct ticks {
	__u64 last_ns;
	__u64 longest_ns; // between two
	__u64 count;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct ticks);
} seen SEC(".maps");

SEC("tp_btf/hrtimer_expire_entry")
int timers_watch(__u64 *ctx)
{
	struct hrtimer *expired = (struct hrtimer *)ctx[0];
	struct bpf_hrtimer *timer;
	struct bpf_array *array;
	struct ticks *t;
	__u64 now, value;
	__u32 slot;

	if ((__u64)expired->function != timer_function)
		return 0;
	timer = (void *)expired - bpf_core_field_offset(struct bpf_hrtimer, timer);
	if (BPF_CORE_READ(timer, cb.map, id) != map_id)
		return 0;
	value = (__u64)BPF_CORE_READ(timer, cb.value);
	array = (void *)BPF_CORE_READ(timer, cb.map);
	slot = (value - (__u64)array - bpf_core_field_offset(struct bpf_array, value)) / BPF_CORE_READ(array, elem_size);
	t = bpf_map_lookup_elem(&seen, &slot);
	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	if (t->last_ns && now - t->last_ns > t->longest_ns)
		t->longest_ns = now - t->last_ns;
	t->last_ns = now;
	t->count++;
	return 0;
}
