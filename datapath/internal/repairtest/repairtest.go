// Package repairtest has the repair program with a backlog and a time that a test sets.
package repairtest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type direction -type repair_flow -type repair_port -type repair_counts -type repair_control -type repair_port_config -output-stem repairtest Repair bpf/repairtest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
