// Package edgetest has the edge's programs and what their benchmark needs: an empty program, one hash lookup,
// and a rewrite that is undone, so that it can be repeated on one packet.
package edgetest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -go-package edgetest -type edge_counts -type lookup_key Edge bpf/edgetest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
