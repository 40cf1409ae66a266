package experiment

import (
	"fmt"
	"slices"
	"strings"

	"weir/config"
	"weir/law"
)

// NodeKind is the role of a node of a Graph.
type NodeKind int

// The kinds of node.
const (
	Guest      NodeKind = iota // a tenant's machine with unmodified TCP
	Hypervisor                 // a host's virtual switch: one uplink, a VM port per guest
	Switch                     // a switch of the operator
)

// Node is a machine of the network. Its name is unique.
type Node struct {
	Name string
	Kind NodeKind
	// Attached is the switch that a guest is connected to (through its hypervisor, if any); empty for switches.
	Attached string
}

// Link connects two nodes. Each end is a port with a queue of its own.
type Link struct {
	A, B   string
	Rate   law.Rate     // 0: not shaped (between a guest and its hypervisor)
	Delay  law.Duration // one way
	Buffer law.Limit    // of a switch's port; a host's own queue is not limited by it
}

// Graph is the network of a topology: nodes and links. Their order is always the same for the same file.
type Graph struct {
	Nodes []Node
	Links []Link
	// Multipath is true when equal paths exist and routing is ecmp: bridges would form a loop.
	Multipath bool
}

// Node returns the node with this name, or nil.
func (g *Graph) Node(name string) *Node {
	for i := range g.Nodes {
		if g.Nodes[i].Name == name {
			return &g.Nodes[i]
		}
	}
	return nil
}

// nodes returns the names of the nodes of a kind, in order.
func (g *Graph) nodes(kind NodeKind) []string {
	var names []string
	for _, n := range g.Nodes {
		if n.Kind == kind {
			names = append(names, n.Name)
		}
	}
	return names
}

// perSwitch counts the guests of each switch.
func (g *Graph) perSwitch() map[string]int {
	count := map[string]int{}
	for _, n := range g.Nodes {
		if n.Kind == Guest {
			count[n.Attached]++
		}
	}
	return count
}

// Port resolves a port's name as users write it, "switch->receiver1", to the two ends of its link: the node with
// the port and its peer. Towards a switch, a hypervisor's port has the name of its server.
func (g *Graph) Port(name string) (node, peer string, err error) {
	from, to, ok := strings.Cut(name, "->")
	from, to = strings.TrimSpace(from), strings.TrimSpace(to)
	if !ok || from == "" || to == "" {
		return "", "", fmt.Errorf("%q does not name a port: write it as node->neighbour", config.Clip(name))
	}
	for _, end := range []string{from, to} {
		if g.Node(end) == nil && g.Node(end+hypervisorSuffix) == nil {
			return "", "", fmt.Errorf("there is no node %q", config.Clip(end))
		}
	}
	for _, l := range g.Links {
		if l.Rate == 0 { // between a guest and its hypervisor: by its full name only
			if l.A == from && l.B == to || l.A == to && l.B == from {
				return from, to, nil
			}
			continue
		}
		a, b := strings.TrimSuffix(l.A, hypervisorSuffix), strings.TrimSuffix(l.B, hypervisorSuffix)
		switch {
		case (from == a || from == l.A) && (to == b || to == l.B):
			return l.A, l.B, nil
		case (from == b || from == l.B) && (to == a || to == l.A):
			return l.B, l.A, nil
		}
	}
	return "", "", fmt.Errorf("there is no link between %s and %s", from, to)
}

// PortName returns the name of the port of node towards peer, as users write it.
func PortName(node, peer string) string {
	if strings.TrimSuffix(node, hypervisorSuffix) == strings.TrimSuffix(peer, hypervisorSuffix) || isVMOf(node, peer) || isVMOf(peer, node) {
		return node + "->" + peer
	}
	return strings.TrimSuffix(node, hypervisorSuffix) + "->" + strings.TrimSuffix(peer, hypervisorSuffix)
}

// isVMOf reports whether guest is a VM behind hypervisor hv.
func isVMOf(guest, hv string) bool {
	server, ok := strings.CutSuffix(hv, hypervisorSuffix)
	return ok && strings.HasPrefix(guest, server+".vm")
}

// hasLoop reports whether there are several paths between switches: a connected graph of n switches without loops
// has n-1 links between them. Switches without links do not count.
func (g *Graph) hasLoop() bool {
	switches, linked, links := toSet(g.nodes(Switch)), map[string]bool{}, 0
	for _, l := range g.Links {
		if switches[l.A] && switches[l.B] {
			linked[l.A], linked[l.B] = true, true
			links++
		}
	}
	return links > 0 && links > len(linked)-1
}

// reach is a path through switches.
type reach struct {
	hops  int
	delay law.Duration
}

// longest returns the number of shaped links and the one-way delay of the longest path between two guests. Each is
// the maximum over the shortest paths (fewest links, then least delay). It searches once from every switch with
// guests: 16.8 million steps in a fat tree of 32 pods.
func (g *Graph) longest() (hops int, delay law.Duration) {
	type edge struct {
		to    int
		delay law.Duration
	}
	number := map[string]int{} // of switches
	for _, n := range g.Nodes {
		if n.Kind == Switch {
			number[n.Name] = len(number)
		}
	}
	next := make([][]edge, len(number))
	access := slices.Repeat([]law.Duration{-1}, len(number)) // the slowest access link of each switch; -1: no guests
	for _, l := range g.Links {
		a, fromSwitch := number[l.A]
		b, toSwitch := number[l.B]
		switch {
		case fromSwitch && toSwitch:
			next[a], next[b] = append(next[a], edge{b, l.Delay}), append(next[b], edge{a, l.Delay})
		case toSwitch && l.Rate > 0: // a server's link has the switch as its second end
			access[b] = max(access[b], l.Delay)
		}
	}
	seen, queue := make([]reach, len(number)), make([]int, 0, len(number))
	for start, first := range access {
		if first < 0 {
			continue
		}
		for i := range seen {
			seen[i].hops = -1
		}
		seen[start], queue = reach{}, append(queue[:0], start)
		for i := 0; i < len(queue); i++ {
			here := seen[queue[i]]
			for _, e := range next[queue[i]] {
				way, old := reach{here.hops + 1, here.delay + e.delay}, seen[e.to]
				if old.hops < 0 {
					queue = append(queue, e.to)
				}
				if old.hops < 0 || old.hops == way.hops && way.delay < old.delay {
					seen[e.to] = way
				}
			}
		}
		for end, last := range access {
			if last >= 0 && seen[end].hops >= 0 {
				hops, delay = max(hops, seen[end].hops+2), max(delay, first+seen[end].delay+last)
			}
		}
	}
	return hops, delay
}

// rtt returns the base round trip across the longest path.
func (g *Graph) rtt() law.Duration {
	_, delay := g.longest()
	return 2 * delay
}
