// Package network is the links, ports, nodes and routes of the simulator. It carries packets from one host to another.
//
//	packet.go   the frame, and the pool of frames;  fields.go  its methods
//	line.go     exact times: a bit rate, a token bucket
//	port.go     FIFO ports: buffer, line, delay
//	law.go      laws at ports: pass, drop, take, return, inject
//	guard.go    guards between hosts and their links, with the same verdicts
//	serve.go    ports with strict priorities or a shared buffer
//	schedule.go laws that decide about order and drops at such a port
//	rate.go     rates that change during a run
//	jitter.go   the time that hosts need to send
//	build.go    nodes and ports of an experiment's Graph
//	route.go    all shortest paths
//
// A packet has one owner. Network.Send and Port.Send take it over, a drop returns it to the pool, and Sink.Deliver owns
// what it gets. Times are nanoseconds of the simulated clock, sizes are bytes.
package network

import (
	"cmp"
	"slices"

	"weir/experiment"
	"weir/sim/event"
)

// Sink is the transport of all hosts. It owns the packets that it gets.
type Sink interface {
	Deliver(host NodeID, pk *Packet, now event.Time)
}

// Network is all nodes and ports of a run. It belongs to the goroutine of its Queue.
type Network struct {
	Queue *event.Queue
	Sink  Sink
	loss  func(p *Port, pk *Packet) bool
	pool  pool

	guards   []Guard
	arrivals []Arrivals // by NodeID; nil: there were never guards
	asking   int        // laws and guards that are looking at a packet now
	put      []putting  // packets that these inject or return meanwhile, from nextPut on
	nextPut  int

	Ports   []*Port
	portsOf map[NodeID][]*Port // nil: SwitchPorts was not called yet
	// OnDrop, if set, is called for every packet that is lost, before it returns to the pool.
	OnDrop func(p *Port, pk *Packet, reason DropReason, now event.Time)
	// Left, if set, is called for every packet that leaves the NIC of its host or is dropped before that, if the NIC is
	// a served port. There FreeAt cannot predict it.
	Left func(pk *Packet)

	graph     *experiment.Graph
	ids       map[string]NodeID
	nodes     []node
	places    []place // of hosts, by NodeID
	switches  []*node
	buffers   []*sharedBuffer
	frameOnly bool
}

// Options are settings that an experiment file does not have.
type Options struct {
	// Seed changes each switch's choice among equal paths.
	Seed int64
	// Shared, if set, gives each switch one buffer for all its ports, instead of one per port.
	Shared *Shared
	// Priorities makes the ports of switches serve Packet.Priority strictly, highest first.
	Priorities bool
	// FrameOnly has a frame take only its own bytes on the line, as in the lab (a TBF counts only these) and in ns-3's
	// point-to-point links. Otherwise preamble, CRC and gap are added, and short frames are padded.
	FrameOnly bool
	// NICFrames is the queue of a host's NIC in full frames; 0: 1000, Linux's txqueuelen.
	NICFrames int64
}

// node is a machine.
type node struct {
	net    *Network
	kind   experiment.NodeKind
	places []place // the network's
	id     NodeID
	// For a host: its only port. For a hypervisor: its port to the switch.
	uplink *Port
	// For a switch: its number among switches, and groups of ports by the number of a packet's last switch. A group has
	// the ports that are next on a shortest path there.
	number int32
	next   []int32
	groups [][]*Port
	salt   uint64
}

// place is the position of a host: the last hop or two towards it.
type place struct {
	number     int32  // of its switch
	hypervisor NodeID // -1: none
	access     *Port  // of the switch
	vm         *Port  // of the hypervisor
}

// receive forwards or delivers a packet that has arrived at the node.
func (nd *node) receive(pk *Packet, now event.Time) {
	if nd.kind == experiment.Guest {
		if guards := len(nd.net.guards); guards > 0 {
			nd.net.in(nd.uplink, pk, guards-1)
			return
		}
		nd.net.Sink.Deliver(nd.id, pk, now)
		return
	}
	nd.towards(pk).Send(pk)
}

// towards returns the port by which a packet continues.
func (nd *node) towards(pk *Packet) *Port {
	to := &nd.places[pk.dst]
	if nd.kind == experiment.Hypervisor {
		if to.hypervisor == nd.id {
			return to.vm
		}
		return nd.uplink
	}
	if to.number == nd.number {
		return to.access
	}
	group := nd.groups[nd.next[to.number]]
	if len(group) == 1 {
		return group[0]
	}
	return group[nd.choose(pk.hash, len(group))]
}

// choose spreads flows evenly over n equal ports. Each switch mixes the hash with its own number. With the hash alone
// every switch would choose alike, and half of the paths would stay unused.
func (nd *node) choose(hash uint32, n int) int {
	return int(mix(uint64(hash)^nd.salt) >> 32 * uint64(n) >> 32)
}

// Send sends a packet of a host by its NIC.
func (n *Network) Send(from NodeID, pk *Packet) {
	p := n.nodes[from].uplink
	if len(n.guards) == 0 {
		p.Send(pk)
		return
	}
	n.out(p, pk, 0)
}

// HostPort returns a host's only port.
func (n *Network) HostPort(host NodeID) *Port { return n.nodes[host].uplink }

// AccessPort returns the port by which a switch sends to a host, or to its hypervisor.
func (n *Network) AccessPort(host NodeID) *Port { return n.places[host].access }

// NIC returns the port in which a host's packets wait: its own, or, if that is a wire, its hypervisor's port to the
// switch.
func (n *Network) NIC(host NodeID) *Port {
	p := n.nodes[host].uplink
	if p.kind == wire {
		return p.peer.uplink
	}
	return p
}

// Loss has lines lose the packets for which f is true, at their time of arrival. It is for tests; nil ends it.
func (n *Network) Loss(f func(p *Port, pk *Packet) bool) { n.loss = f }

func (n *Network) dropped(p *Port, pk *Packet, reason DropReason, now event.Time) {
	if n.Left != nil && reason != DropLoss && n.nodes[p.Node].kind != experiment.Switch {
		if nic := n.NIC(pk.src); nic.kind == served && (p == nic || p.Node == pk.src) {
			n.Left(pk)
		}
	}
	if n.OnDrop != nil {
		n.OnDrop(p, pk, reason, now)
	}
	n.Free(pk)
}

// Node returns the ID of the node of that name.
func (n *Network) Node(name string) (NodeID, bool) {
	id, ok := n.ids[name]
	return id, ok
}

// Name returns the name of a node.
func (n *Network) Name(id NodeID) string { return n.graph.Nodes[id].Name }

// PortByName returns the port that users write as "switch->receiver1" (experiment.Graph.Port), or nil if there is none.
func (n *Network) PortByName(name string) *Port {
	from, to, err := n.graph.Port(name)
	if err != nil {
		return nil
	}
	node, peer := n.ids[from], n.ids[to]
	for _, p := range n.Ports {
		if p.Node == node && p.Peer == peer {
			return p
		}
	}
	return nil
}

// SwitchPorts returns the ports of the switches with these names, in the order of Network.Ports.
func (n *Network) SwitchPorts(names []string) []*Port {
	if n.portsOf == nil {
		n.portsOf = map[NodeID][]*Port{}
		for _, p := range n.Ports {
			n.portsOf[p.Node] = append(n.portsOf[p.Node], p)
		}
	}
	var ports []*Port
	seen := make(map[NodeID]bool, len(names))
	for _, name := range names {
		if id, ok := n.ids[name]; ok && !seen[id] {
			seen[id] = true
			ports = append(ports, n.portsOf[id]...)
		}
	}
	slices.SortFunc(ports, func(a, b *Port) int { return cmp.Compare(a.ID, b.ID) })
	return ports
}
