// Package telemetrytest has the telemetry program with a backlog that a test sets.
package telemetrytest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type port_counts -type address -type half -output-stem telemetrytest Telemetry bpf/telemetrytest.bpf.c -- -DVLANS_IGNORED=1 -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
