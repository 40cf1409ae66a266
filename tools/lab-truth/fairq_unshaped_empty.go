package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"weir/datapath/attach"
	"weir/lab"
)

// emptyProgram is a program that passes every packet, on the ports of a path.
type emptyProgram struct {
	program *ebpf.Program
	links   []link.Link
	ports   []*lab.Port
}

// attachEmpty attaches the empty program where FairQ's would be.
func attachEmpty(l *lab.Lab, p path, _ int) (_ attachment, err error) {
	const next = -1 // TCX_NEXT
	e := &emptyProgram{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	e.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	for _, port := range l.Ports() {
		if !port.OfSwitch || !p.has(&port) {
			continue
		}
		err := l.Enter(port.Node, func() error {
			at, err := link.AttachTCX(link.TCXOptions{Interface: port.Ifindex, Program: e.program, Attach: ebpf.AttachTCXEgress})
			if err == nil {
				e.links, e.ports = append(e.links, at), append(e.ports, &port)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("attach an empty program to %s: %w", port.Name, err)
		}
	}
	return e, nil
}

// check checks that the program is still on both ports of the path.
func (e *emptyProgram) check() error {
	if len(e.links) != 2 {
		return fmt.Errorf("the empty program is on %d ports, not 2", len(e.links))
	}
	for i, at := range e.links {
		if !attach.HasDevice(at) {
			return fmt.Errorf("the empty program is no longer on %s", e.ports[i].Name)
		}
	}
	return nil
}

func (e *emptyProgram) stop() (err error) {
	for _, at := range e.links {
		err = errors.Join(err, at.Close())
	}
	if e.program != nil {
		err = errors.Join(err, e.program.Close())
	}
	return err
}
