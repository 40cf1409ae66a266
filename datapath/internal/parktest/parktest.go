// Package parktest has a law that parks every TCP packet of a port: the sender of the parking's tests.
package parktest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type rule -type seen -type park_state -type park_port -type park_counts -output-stem parktest Park bpf/parktest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
