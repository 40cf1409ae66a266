package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// hideRefusals: trap 5. ovs-vswitchd in user space sends up to 32 frames with one call. When a queue refuses one, it
// offers that one again and throws the rest away, though there may be room for them: the queue's count of drops
// then knows the refused frame twice and the others not at all. A program at each port with a queue hides the
// refusal. It stays as long as the port. It runs in the namespace, where the queues need not be yet.
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
			l.unmet.add(n.name, "topology.switch", "ovs", "without tcx (Linux 6.6) frames behind one that a queue refuses are thrown away")
			return nil
		}
		if err != nil {
			return fmt.Errorf("port %s: hide what its queue refuses: %w", p.name, err)
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
	// Without a link it is not this process that holds it: a lab may outlive that.
	err := link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: p.ifindex, Program: programs.WeirRefusal, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail(),
	})
	return errors.Join(err, programs.Close())
}
