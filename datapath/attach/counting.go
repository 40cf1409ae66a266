package attach

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Programs that count what leaves a port, and so stay the last ones there.
const (
	TelemetryProgram = "weir_telemetry"
	FlowsProgram     = "weir_flows"
)

// counting has the ids of such programs of this process, because without CAP_SYS_ADMIN it cannot ask the kernel for their names.
var counting sync.Map

// Counting attaches a program that counts at the tail of a port's egress chain. The caller calls NotCounting before it closes prog.
func Counting(p PortRef, prog *ebpf.Program) (link.Link, error) {
	id, err := programID(prog)
	if err != nil {
		return nil, err
	}
	counting.Store(id, true)
	l, err := Program(p, prog, ebpf.AttachTCXEgress, link.Tail())
	if err != nil {
		counting.Delete(id)
	}
	return l, err
}

// NotCounting ends what Counting began, for a program that may be nil.
func NotCounting(prog *ebpf.Program) {
	if id, err := programID(prog); err == nil {
		counting.Delete(id)
	}
}

func programID(prog *ebpf.Program) (ebpf.ProgramID, error) {
	if prog == nil {
		return 0, errors.New("no program")
	}
	info, err := prog.Info()
	if err != nil {
		return 0, fmt.Errorf("id of the program: %w", err)
	}
	id, _ := info.ID()
	return id, nil
}

// counts reports whether a program is one that counts.
func counts(id ebpf.ProgramID) bool {
	if _, ours := counting.Load(id); ours {
		return true
	}
	name := ProgramName(id)
	return name == TelemetryProgram || name == FlowsProgram
}

// Last attaches a program at a port's egress, behind all others but those that count.
func Last(p PortRef, prog *ebpf.Program) (link.Link, error) {
	return atEgress(p, prog, func(_ uint64, chain *link.QueryResult) (link.Anchor, error) {
		anchor := link.Tail()
		for _, p := range slices.Backward(chain.Programs) {
			if !counts(p.ID) {
				break
			}
			anchor = link.BeforeProgramByID(p.ID)
		}
		return anchor, nil
	})
}
