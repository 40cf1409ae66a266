// Package coretest has kernel programs that run one event of a per-packet law, for its test vectors. They
// include the same headers as every world, compiled by clang, verified and run by the kernel.
package coretest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type fairq_event -type window_event -type mark_event -type slots_event -type release_event -type groups_event -type edge_event -type credit_event -type grant_event -type bucket_event -type arrivals_event -type repair_event -output-stem coretest Core bpf/coretest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
