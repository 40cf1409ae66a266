package fairq

// The kernel programs are compiled for little-endian machines (amd64, arm64, riscv64, ...). clang-16 and
// libbpf-dev are those of Debian 12. Every checkout directory gives the same bytes.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type port_config -type port -type port_counts -type control -type flow_key -type near_place -type flow_ends -type connection -type scope_key -type port_arg -type port_clear_arg -type swept -type port_groups -type end -type source_key -type source_counts -type repair_port_config -type repair_port -type repair_counts fairq ../bpf/fairq/fairq.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
