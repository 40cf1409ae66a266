package lab

// Built as the kernel programs of package datapath: little-endian, clang-16 and libbpf-dev of Debian 12.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel refusal bpf/refusal.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -no-global-types -target bpfel dctcp bpf/dctcp.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
