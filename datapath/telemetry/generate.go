package telemetry

// The kernel programs are compiled for little-endian machines. clang-16 and libbpf-dev are those of Debian 12.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type port_counts -type address -type half -type pair -type vm_marks kernel ../bpf/telemetry/telemetry.bpf.c -- -DVLANS_IGNORED=1 -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
