package lab

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// fabric makes switches out of namespaces. Each kind of switch is one file with one fabric.
type fabric interface {
	// check returns, in one line, what this machine lacks for such switches in the network p.
	check(p *plan) error
	// finishChecksums reports whether hosts must calculate checksums in software.
	finishChecksums() bool
	// setUp runs in the namespace of switch n. Its ports exist and are up; they get their queues afterwards.
	setUp(l *Lab, h *netlink.Handle, n *node) error
}

// newFabric returns the fabric for the kind of switch and the topology of the network.
func newFabric(p *plan, o Options) (fabric, error) {
	switch kind := p.cfg.Switch; {
	case kind == "ovs":
		if (p.paths || o.Commanded) && o.Controller != nil {
			return newOVS(p, p.controllerAddress(), o.Scale), nil
		}
		return newOVS(p, netip.AddrPort{}, o.Scale), nil
	case kind == "rtl":
		return newHardware(o.Scale), nil
	case kind != "" && kind != "bridge":
		return nil, fmt.Errorf("topology.switch %q is not in this build of the lab: use bridge, ovs or rtl", kind)
	case p.routed:
		return routed{}, nil
	default:
		return bridge{}, nil
	}
}
