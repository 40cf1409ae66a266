package lab

import (
	"weir/datapath/fairq"
	"weir/datapath/fairq/edge"
	"weir/experiment"
	fairqlaw "weir/law/fairq"
)

// edgePorts returns the ports of edge mode's edge in the lab: the last port before each guest, at its hypervisor
// or, without hypervisors, at its switch.
func (l *Lab) edgePorts() []edge.Port {
	var list []edge.Port
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			if n.kind == experiment.Guest || p.peer.kind != experiment.Guest {
				continue
			}
			list = append(list, edge.Port{PortRef: l.portRef(n.name, p.name, p.ifindex)})
		}
	}
	return list
}

func edgeConfig(p *fairqlaw.Params) edge.Config {
	c := edge.Config{FloorBytes: uint32(p.MinWindow), Lease: fairqlaw.EdgeLease.Std()}
	if p.Shrink == "avoid" {
		c.Shrink = fairq.ShrinkAvoid
	}
	return c
}
