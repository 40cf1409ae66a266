package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// hideRefusals: trap 5. ovs-vswitchd in user space sends up to 32 frames with one call. When a queue refuses one,
// it offers that frame again and drops the rest, even if the queue has room for them. The queue's drop counter
// then has the refused frame twice and the others not at all. A program at each port with a queue hides the
// refusal. It stays as long as the port. This runs in the namespace, possibly before the queues exist.
func (o ovs) hideRefusals(l *Lab, n *node) error {
	spec, err := loadRefusal()
	if err != nil {
		return err
	}
	for _, p := range n.ports {
		if p.rate == 0 {
			continue
		}
		err := hideRefusalsOf(spec.Copy(), p)
		if errors.Is(err, ebpf.ErrNotSupported) {
			l.unmet.add(n.name, "topology.switch", "ovs", "without tcx (Linux 6.6) Open vSwitch drops frames that follow a refused frame")
			return nil
		}
		if err != nil {
			return fmt.Errorf("port %s: hide refusals of its queue: %w", p.name, err)
		}
	}
	return nil
}

func hideRefusalsOf(spec *ebpf.CollectionSpec, p *port) error {
	if err := spec.Variables[refusalVarLimitBytes].Set(tbfLimit(p)); err != nil {
		return err
	}
	var programs refusalPrograms
	if err := spec.LoadAndAssign(&programs, nil); err != nil {
		return err
	}
	// Attached without a link, so that it stays when this process ends: a lab may outlive it.
	err := link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: p.ifindex, Program: programs.WeirRefusal, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail(),
	})
	return errors.Join(err, programs.Close())
}
