package lawtrace

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -type fairq_config -type fairq_state -type window_edge -type law_head -type law_turn -type law_count -type law_look -type law_end -type law_ack -type law_order -type law_paces -type law_credit -type law_asked -type port lawtrace bpf/lawtrace.bpf.c -- -O2 -g -mcpu=v3 -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror
