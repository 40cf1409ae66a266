package host

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type host_control -type grant_owner -type host_vm -type host_grants -type grants -type host_pair -type host_flow -type host_connection -type host_counts host ../bpf/host/host.bpf.c -- -DVLANS_IGNORED=1 -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
