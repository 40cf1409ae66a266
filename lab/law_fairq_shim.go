package lab

import (
	"weir/datapath/fairq/shim"
	"weir/experiment"
)

// shimPorts returns the ports of FairQ's shim in the lab. The shim adds window scales where traffic enters the
// network: at a hypervisor's uplink or, without hypervisors, at the guest's own device, as a host would run it. It
// removes them at the last port that is not the guest's: the VM's port, or the switch's.
func (l *Lab) shimPorts() []shim.Port {
	var list []shim.Port
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			side, ok := shimSide(n.kind, p.peer.kind)
			if !ok {
				continue
			}
			list = append(list, shim.Port{PortRef: l.portRef(n.name, p.name, p.ifindex), Side: side})
		}
	}
	return list
}

// shimSide returns what the shim does at a port between these kinds of node.
func shimSide(from, to experiment.NodeKind) (side shim.Side, ok bool) {
	switch {
	case from != experiment.Switch && to == experiment.Switch:
		return shim.Send, true
	case from != experiment.Guest && to == experiment.Guest:
		return shim.Clear, true
	}
	return 0, false
}
