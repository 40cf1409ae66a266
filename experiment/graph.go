package experiment

import "weir/law"

// NodeKind tells what a node of a Graph does.
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
	// Attached is the switch a guest hangs on (through its hypervisor, if any); empty for switches.
	Attached string
}

// Link joins two nodes. Each end is a port with a queue of its own.
type Link struct {
	A, B   string
	Rate   law.Rate     // 0: not shaped (between a guest and its hypervisor)
	Delay  law.Duration // one way
	Buffer law.Limit    // of a switch's port; a host's own queue is not limited by it
}

// Graph is a topology made concrete. Order of nodes and links is the same for the same file.
type Graph struct {
	Nodes []Node
	Links []Link
	// Multipath is true when equal paths exist and routing is ecmp: bridges would loop.
	Multipath bool
}
