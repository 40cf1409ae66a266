// Package fairqtest has the switch program and what its benchmark needs: an empty program, one hash lookup, and
// a rewrite that is undone, so that it can be repeated on one packet.
package fairqtest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -go-package fairqtest -type port_config -type port -type control -type flow_key -type flow_ends -type connection -type port_counts -type lookup_key FairQ bpf/fairqtest.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
