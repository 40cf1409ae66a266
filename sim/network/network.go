// Package network is links, ports, nodes and the ways between them: what carries packets from one host
// to another in the simulator.
//
//	packet.go   the frame and the pool that lends it;  fields.go  what is seen of it
//	line.go     exact times: a bit rate, a token bucket
//	port.go     FIFO ports: buffer, line, delay
//	law.go      laws at ports: pass, drop, take, return, inject
//	guard.go    guards between hosts and their links, the same
//	serve.go    ports with strict priorities or a shared buffer
//	schedule.go laws that decide about order and drop at such a port
//	rate.go     rates that change at work
//	jitter.go   the time that hosts need to send
//	build.go    nodes and ports of an experiment's Graph
//	route.go    all shortest paths
//
// A packet belongs to whoever has it last: Network.Send and Port.Send take it over, a drop gives it back to
// the pool, Sink.Deliver gets it for good. Times are nanoseconds of the simulated clock, sizes bytes.
package network

import (
	"weir/experiment"
	"weir/sim/event"
)

// Sink is the transport of all hosts. A packet that it is given is its own.
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
	put      []putting  // what they put in meanwhile, from nextPut on
	nextPut  int

	Ports []*Port
	// OnDrop, if set, is told of every packet that is lost, before it goes back to the pool.
	OnDrop func(p *Port, pk *Packet, reason DropReason, now event.Time)
	// Left, if set, is told of every packet that leaves the NIC of its host, or is dropped before that, where the NIC is a
	// served port: there FreeAt does not tell it beforehand.
	Left func(pk *Packet)

	graph     *experiment.Graph
	ids       map[string]NodeID
	nodes     []node
	places    []place // by NodeID; of hosts
	switches  []*node
	buffers   []*sharedBuffer
	frameOnly bool
}

// Options are what an experiment file does not say.
type Options struct {
	// Seed goes into each switch's choice among equal paths.
	Seed int64
	// Shared, if set, gives each switch one buffer for all its ports, in place of theirs.
	Shared *Shared
	// Priorities makes the ports of switches serve Packet.Priority strictly, highest first.
	Priorities bool
	// FrameOnly lets a frame take just its own bytes on the line, as in the lab (a TBF counts no more) and
	// in ns-3's point-to-point links. Else preamble, CRC and gap are added, and short frames padded.
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
	// Of a host: its only port. Of a hypervisor: its port to the switch.
	uplink *Port
	// Of a switch: its number among switches, and by the number of a packet's last switch the group of
	// ports that are next on a shortest path there.
	number int32
	next   []int32
	groups [][]*Port
	salt   uint64
}

// place says where a host is: the last hop or two towards it.
type place struct {
	number     int32  // of its switch
	hypervisor NodeID // -1: none
	access     *Port  // of the switch
	vm         *Port  // of the hypervisor
}

// receive takes a packet that has arrived at the node.
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

// towards is the port by which a packet goes on.
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

// choose spreads flows evenly over n equal ports. Each switch mixes the hash with a number of its own: with
// the hash alone every switch would choose alike, and half the paths stay unused.
func (nd *node) choose(hash uint32, n int) int {
	return int(mix(uint64(hash)^nd.salt) >> 32 * uint64(n) >> 32)
}

// Send lets a host send a packet by its NIC.
func (n *Network) Send(from NodeID, pk *Packet) {
	p := n.nodes[from].uplink
	if len(n.guards) == 0 {
		p.Send(pk)
		return
	}
	n.out(p, pk, 0)
}

// HostPort is a host's only port.
func (n *Network) HostPort(host NodeID) *Port { return n.nodes[host].uplink }

// NIC is the port in which a host's packets wait: its own, or, if that is a wire, its hypervisor's to the
// switch.
func (n *Network) NIC(host NodeID) *Port {
	p := n.nodes[host].uplink
	if p.kind == wire {
		return p.peer.uplink
	}
	return p
}

// Loss makes lines lose the packets for which f is true, at the time when they would arrive. It is for
// tests; nil ends it.
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

// Node gives the id of the node of that name.
func (n *Network) Node(name string) (NodeID, bool) {
	id, ok := n.ids[name]
	return id, ok
}

// Name is the name of a node.
func (n *Network) Name(id NodeID) string { return n.graph.Nodes[id].Name }

// PortByName resolves a port as users write it, "switch->receiver1" (experiment.Graph.Port); nil if there is
// none.
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

// SwitchPorts are the ports of the switches of these names, in the order of Network.Ports.
func (n *Network) SwitchPorts(names []string) []*Port {
	of := make(map[NodeID]bool, len(names))
	for _, name := range names {
		if id, ok := n.ids[name]; ok {
			of[id] = true
		}
	}
	var ports []*Port
	for _, p := range n.Ports {
		if of[p.Node] {
			ports = append(ports, p)
		}
	}
	return ports
}
