// Package shimtest has the shim's programs and what their benchmark needs: an empty program, one hash lookup,
// and a program that writes and clears.
package shimtest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -go-package shimtest -type shim_counts -type lookup_key Shim bpf/shimtest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
