package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// fabric makes switches out of namespaces. A new kind of switch is one more file with one more
// fabric.
type fabric interface {
	// check says in one line what this machine lacks for such switches in the network p.
	check(p *plan) error
	// finishChecksums reports whether hosts must write their checksums themselves.
	finishChecksums() bool
	// setUp runs in the namespace of switch n, whose ports exist and are up. They get their queues afterwards.
	setUp(l *Lab, h *netlink.Handle, n *node) error
}

// newFabric chooses the fabric for the kind of switch, and for the shape of the network.
func newFabric(p *plan, o Options) (fabric, error) {
	switch kind := p.cfg.Switch; {
	case kind == "ovs":
		if p.paths && o.Controller != nil {
			return newOVS(p, p.controllerAddress(), o.Scale), nil
		}
		return newOVS(p, netip.AddrPort{}, o.Scale), nil
	case kind != "" && kind != "bridge":
		return nil, fmt.Errorf("topology.switch %q is not in this build of the lab: use bridge or ovs", kind)
	case p.routed:
		return routed{}, nil
	default:
		return bridge{}, nil
	}
}
