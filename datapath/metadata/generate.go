package metadata

// The kernel program is compiled for little-endian machines. clang-16 and libbpf-dev are those of Debian 12.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type metadata_port kernel ../bpf/metadata/metadata.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
