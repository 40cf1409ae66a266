package network

import (
	"fmt"
	"slices"

	"weir/experiment"
)

// route finds, for every switch and each switch with hosts, the ports that are next on a shortest path there (fewest
// links). It keeps all of them if Graph.Multipath is set. Otherwise it keeps the first in the order of the Graph's
// links, as the lab does.
func (n *Network) route() error {
	out := n.between()
	edges := n.edges()
	for _, sw := range n.switches {
		sw.next = make([]int32, len(n.switches))
	}
	hops := make([]int32, len(n.switches))
	reached := make([]*node, 0, len(n.switches))
	var ports []*Port
	for _, edge := range edges {
		reached = n.distances(edge, out, hops, reached[:0])
		for _, sw := range n.switches {
			if hops[sw.number] < 0 {
				if slices.Contains(edges, sw) {
					return fmt.Errorf("no path from %s to %s", n.Name(sw.id), n.Name(edge.id))
				}
				continue
			}
			if sw != edge {
				ports = n.nearer(ports[:0], out[sw.number], hops)
				sw.next[edge.number] = sw.group(ports)
			}
		}
	}
	return nil
}

// between returns the ports between switches, by number of switch.
func (n *Network) between() [][]*Port {
	out := make([][]*Port, len(n.switches))
	for _, p := range n.Ports {
		if from := &n.nodes[p.Node]; from.kind == experiment.Switch && p.peer.kind == experiment.Switch {
			out[from.number] = append(out[from.number], p)
		}
	}
	return out
}

// edges returns the switches that have hosts.
func (n *Network) edges() []*node {
	has := make([]bool, len(n.switches))
	for i := range n.places {
		if n.places[i].number >= 0 {
			has[n.places[i].number] = true
		}
	}
	var edges []*node
	for _, sw := range n.switches {
		if has[sw.number] {
			edges = append(edges, sw)
		}
	}
	return edges
}

// distances counts the links from every switch to one, -1 if there is no path. Every link has two directions, so it
// searches backwards. reached is scratch memory.
func (n *Network) distances(to *node, out [][]*Port, hops []int32, reached []*node) []*node {
	for i := range hops {
		hops[i] = -1
	}
	hops[to.number] = 0
	reached = append(reached, to)
	for i := 0; i < len(reached); i++ {
		at := reached[i].number
		for _, p := range out[at] {
			if hops[p.peer.number] < 0 {
				hops[p.peer.number] = hops[at] + 1
				reached = append(reached, p.peer)
			}
		}
	}
	return reached
}

// nearer appends to list those of a switch's ports that lead one link nearer.
func (n *Network) nearer(list, ports []*Port, hops []int32) []*Port {
	for _, p := range ports {
		if hops[p.peer.number] == hops[n.nodes[p.Node].number]-1 {
			list = append(list, p)
			if !n.graph.Multipath {
				break
			}
		}
	}
	return list
}

// CameInBy returns the port of this switch by whose link a packet that leaves by p came in: the other end of the last
// link on its way here. nil: the packet's route does not pass here.
func (p *Port) CameInBy(pk *Packet) *Port {
	for at := p.net.nodes[pk.src].uplink; ; at = at.peer.towards(pk) {
		switch {
		case at.Peer == p.Node:
			return at.Reverse()
		case at.peer.kind == experiment.Guest:
			return nil
		}
	}
}

// group returns the number of a set of ports. Most destinations share a group: every port upwards reaches all that are
// above.
func (nd *node) group(ports []*Port) int32 {
	for i, g := range nd.groups {
		if slices.Equal(g, ports) {
			return int32(i)
		}
	}
	nd.groups = append(nd.groups, slices.Clone(ports))
	return int32(len(nd.groups) - 1)
}
