// Package hosttest has the host's programs and what their benchmark needs: an empty program, one hash lookup, and a rewrite
// that is undone, so that it can be repeated on one packet.
package hosttest

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -go-package hosttest -type host_counts -type host_vm -type host_grants -type grants -type grant_owner -type host_pair -type host_flow -type lookup_key -output-stem host Host bpf/hosttest.bpf.c -- -DVLANS_IGNORED=1 -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
