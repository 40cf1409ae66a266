package lab

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// fabric makes switches out of namespaces. A new kind of switch is one more file with one more
// fabric.
type fabric interface {
	// setUp runs in the namespace of switch n, whose ports exist, are shaped and are up.
	setUp(h *netlink.Handle, n *node, p *plan) error
}

// newFabric chooses the fabric for a kind of switch, and for the shape of the network.
func newFabric(kind string, p *plan) (fabric, error) {
	switch {
	case kind != "" && kind != "bridge":
		return nil, fmt.Errorf("topology.switch %q is not in this build of the lab: use bridge", kind)
	case p.routed:
		return routed{}, nil
	default:
		return bridge{}, nil
	}
}
