package network

import (
	"errors"
	"fmt"
	"slices"

	"weir/experiment"
	"weir/law"
	"weir/sim/event"
)

// Limits of one network. Build refuses a graph beyond them before it allocates anything.
const (
	maxNodes  = 100_000
	maxLinks  = 1_000_000
	maxRate   = 1 << 53 // law.Rate's own
	maxDelay  = law.Duration(100e9)
	nicFrames = 1000 // Linux's txqueuelen
	maxShared = 1 << 40
	maxFactor = 1 << 20
)

// leastPorts is the least capacity of the array of ports: more than 32 KiB. Such an array begins on a page, so that
// each port begins on a cache line. In a smaller one Go puts a header first.
const leastPorts = 80

// Build builds the network of cfg.Graph, with q as its clock. Node i of the Graph has NodeID i, and link i has the
// ports 2i (of its end A) and 2i+1. Queue, Ports and names are ready; the caller sets Sink before the first packet. An
// error names the node or link that cannot be built.
func Build(q *event.Queue, cfg *experiment.Config, o Options) (*Network, error) {
	g := cfg.Graph
	if len(g.Nodes) > maxNodes || len(g.Links) > maxLinks {
		return nil, fmt.Errorf("topology: %d nodes and %d links are too many: at most %d and %d", len(g.Nodes), len(g.Links), maxNodes, maxLinks)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	n := &Network{
		Queue: q, graph: g, frameOnly: o.FrameOnly, ids: make(map[string]NodeID, len(g.Nodes)),
		nodes: make([]node, len(g.Nodes)), places: make([]place, len(g.Nodes)), Ports: make([]*Port, 0, 2*len(g.Links)),
	}
	if err := n.addNodes(o.Seed); err != nil {
		return nil, err
	}
	ports := make([]Port, 2*len(g.Links), max(2*len(g.Links), leastPorts))
	for i := range g.Links {
		if err := n.addLink(&g.Links[i], ports[2*i:2*i+2], o); err != nil {
			return nil, fmt.Errorf("link %s - %s: %w", g.Links[i].A, g.Links[i].B, err)
		}
	}
	n.serve(o)
	n.label(cfg.Ports)
	if err := n.place(); err != nil {
		return nil, err
	}
	return n, n.route()
}

func (o *Options) check() error {
	if s := o.Shared; s != nil && (s.Bytes < FullFrame || s.Bytes > maxShared || s.Num < 1 || s.Den < 1 || s.Num > maxFactor || s.Den > maxFactor) {
		return fmt.Errorf("shared buffer of %d bytes with factor %d/%d: make room for a full frame, and the factor above 0", s.Bytes, s.Num, s.Den)
	}
	if o.NICFrames < 0 {
		return fmt.Errorf("NIC queue of %d frames: set 1 or more, or 0 for %d", o.NICFrames, nicFrames)
	}
	return nil
}

func (n *Network) addNodes(seed int64) error {
	for i, g := range n.graph.Nodes {
		if _, twice := n.ids[g.Name]; twice {
			return fmt.Errorf("there are two nodes %s: names must differ", g.Name)
		}
		id := NodeID(i)
		n.ids[g.Name] = id
		n.nodes[i] = node{net: n, places: n.places, kind: g.Kind, id: id, number: -1}
		n.places[i] = place{number: -1, hypervisor: -1}
		if g.Kind == experiment.Switch {
			n.nodes[i].number = int32(len(n.switches))
			n.nodes[i].salt = mix(uint64(seed) ^ mix(uint64(len(n.switches)+1)))
			n.switches = append(n.switches, &n.nodes[i])
		}
	}
	return nil
}

func (n *Network) addLink(l *experiment.Link, ports []Port, o Options) error {
	a, okA := n.ids[l.A]
	b, okB := n.ids[l.B]
	switch {
	case !okA || !okB || a == b:
		return errors.New("no such pair of nodes")
	case l.Rate < 0 || l.Rate > maxRate || l.Delay < 0 || l.Delay > maxDelay:
		return fmt.Errorf("rate %v or delay %v is out of range", l.Rate, l.Delay)
	case l.Rate == 0 && (n.nodes[a].kind == experiment.Switch || n.nodes[b].kind == experiment.Switch):
		return errors.New("a switch's link needs a rate above 0")
	}
	for i, end := range [2][2]NodeID{{a, b}, {b, a}} {
		p := &ports[i]
		p.net, p.peer, p.Node, p.Peer, p.ID = n, &n.nodes[end[1]], end[0], end[1], int32(len(n.Ports))
		p.Name = experiment.PortName(n.Name(end[0]), n.Name(end[1]))
		p.Rate, p.Buffer = l.Rate, l.Buffer
		if n.nodes[end[0]].kind != experiment.Switch || l.Buffer.N <= 0 {
			p.Buffer = law.Limit{N: FullFrame * max(o.NICFrames, 0)}
			if o.NICFrames == 0 {
				p.Buffer.N = FullFrame * nicFrames
			}
		} else if !p.Buffer.Packets && p.Buffer.N < FullFrame {
			return fmt.Errorf("a buffer of %v is smaller than a full frame: set at least %dB or 1pkt", p.Buffer, FullFrame)
		}
		p.init(l.Delay, n.frameOnly)
		n.Ports = append(n.Ports, p)
	}
	return nil
}

// serve makes the ports of switches served ports if the options ask for it.
func (n *Network) serve(o Options) {
	if o.Shared == nil && !o.Priorities {
		return
	}
	if o.Shared != nil {
		n.buffers = make([]*sharedBuffer, len(n.switches))
		for i := range n.buffers {
			n.buffers[i] = &sharedBuffer{Shared: *o.Shared}
		}
	}
	for _, p := range n.Ports {
		nd := &n.nodes[p.Node]
		if nd.kind != experiment.Switch {
			continue
		}
		var shared *sharedBuffer
		if o.Shared != nil {
			shared = n.buffers[nd.number]
			p.Buffer = law.Limit{N: shared.Bytes}
		}
		p.kind, p.server = served, newServer(p, shared)
	}
}

// label sets the labels of measure.ports on the ports.
func (n *Network) label(labels map[string]string) {
	for label, name := range labels { // any order: they are sorted below
		if p := n.PortByName(name); p != nil {
			p.Labels = append(p.Labels, label)
		}
	}
	for _, p := range n.Ports {
		slices.Sort(p.Labels)
	}
}

// place finds where each host is connected: to a switch, or to a hypervisor at a switch.
func (n *Network) place() error {
	for _, p := range n.Ports {
		nd, to := &n.nodes[p.Node], &n.nodes[p.Peer]
		up := nd.kind == experiment.Guest || nd.kind == experiment.Hypervisor && to.kind == experiment.Switch
		switch {
		case !up:
		case nd.uplink != nil:
			return fmt.Errorf("%s has several links: a host must have one, and a hypervisor one to a switch", n.Name(p.Node))
		case to.kind == experiment.Guest:
			return fmt.Errorf("%s is connected to %s, which is a host too", n.Name(p.Node), n.Name(p.Peer))
		default:
			nd.uplink = p
		}
	}
	for i := range n.nodes {
		nd := &n.nodes[i]
		if nd.kind != experiment.Guest {
			continue
		}
		at := &n.places[i]
		if nd.uplink == nil {
			return fmt.Errorf("%s has no link", n.Name(nd.id))
		}
		up := nd.uplink
		if up.peer.kind == experiment.Hypervisor {
			at.hypervisor, at.vm = up.Peer, up.Reverse()
			if up = up.peer.uplink; up == nil {
				return fmt.Errorf("hypervisor %s is not connected to a switch", n.Name(at.hypervisor))
			}
		}
		at.number, at.access = up.peer.number, up.Reverse()
	}
	return nil
}
