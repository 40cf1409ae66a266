// Package marktest has the marking program with a backlog that a test sets.
package marktest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type mark_config -type port_stats -output-stem marktest Mark bpf/marktest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
