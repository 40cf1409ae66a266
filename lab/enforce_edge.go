package lab

import (
	"weir/datapath"
	"weir/experiment"
)

// edgePorts are the places of edge mode's edge in the lab: the last port before each guest, which is its
// hypervisor's or, without hypervisors, its switch's.
func (l *Lab) edgePorts() []datapath.EdgePort {
	var list []datapath.EdgePort
	for _, n := range l.plan.nodes {
		for _, p := range n.ports {
			if n.kind == experiment.Guest || p.peer.kind != experiment.Guest {
				continue
			}
			list = append(list, datapath.EdgePort{PortRef: l.portRef(n.name, p.name, p.ifindex)})
		}
	}
	return list
}

func edgeConfig(p *experiment.FairQParams) datapath.EdgeConfig {
	c := datapath.EdgeConfig{FloorBytes: uint32(p.MinWindow), Lease: experiment.FairQEdgeLease.Std()}
	if p.Shrink == "avoid" {
		c.Shrink = datapath.FairQShrinkAvoid
	}
	return c
}
