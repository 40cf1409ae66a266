package edge

// The kernel programs are compiled for little-endian machines (amd64, arm64, riscv64, ...). clang-16 and
// libbpf-dev are those of Debian 12. Every checkout directory gives the same bytes.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type edge_counts edge ../../bpf/fairq/edge.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
