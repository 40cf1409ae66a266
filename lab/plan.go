package lab

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"weir/experiment"
	"weir/lab/netstack"
	"weir/law"
)

// Limits of one lab. They keep the address plan within its bytes, and limit the load of the machine.
const (
	maxNodes         = 1024
	maxProfiles      = 200 // second byte of a guest's address
	maxSwitches      = 250 // third byte
	maxGuestsASwitch = 250 // fourth byte
)

// Names of the two nodes that every lab adds to those of its graph.
const (
	mgmtNode       = "mgmt"       // the management bridge
	controllerNode = "controller" // for a controller or bus
)

// hypervisorSuffix is the end of the name of a server's hypervisor: "receiver1.hv".
const hypervisorSuffix = ".hv"

var (
	labNamePattern  = regexp.MustCompile(`^[a-z0-9-]{1,20}$`)
	nodeNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$`)
)

// node is one namespace of the lab.
type node struct {
	name     string
	kind     experiment.NodeKind
	index    int
	mgmtOnly bool   // mgmt, controller: not in the graph
	attached string // the switch that a guest is connected to
	ports    []*port

	subnet, host int        // S and H of a guest's addresses 10.P.S.H; S of a switch
	mgmt         netip.Addr // on the management network, if it has one
	profiles     []int      // guest TCP profiles that traffic of this node uses, ascending
	foreign      []int      // the profiles for which it is netstack

	cookie uint64                  // of its namespace, once that exists
	w      *worker                 // while this process builds or owns the lab
	guests map[int]*netstack.Guest // by profile, while this process runs those guests
}

// port is one end of a link: a veth.
type port struct {
	node, peer *node
	far        *port  // the other end
	name       string // "switch->receiver1", as users write it
	ifname     string
	ifindex    int // known once the lab is up
	mac        net.HardwareAddr
	rate       law.Rate  // 0: not shaped
	buffer     law.Bytes // of a switch's port; 0: the queue of a host
}

// plan is the layout of a lab, calculated from its configuration before anything is created.
type plan struct {
	cfg    *experiment.Config
	nodes  []*node // graph's order, then mgmt and controller
	byName map[string]*node
	paths  bool            // there are several between some nodes
	routed bool            // switches are routers, because bridges would form a loop
	hops   map[*node][]int // by guest: distance of every node, -1: not connected
}

// newPlan checks the configuration against the limits of a lab, and assigns ports and addresses. It changes
// nothing.
func newPlan(cfg *experiment.Config) (*plan, error) {
	g := cfg.Graph
	if len(g.Nodes) > maxNodes {
		return nil, fmt.Errorf("%d nodes are more than the limit of %d: lower the number of servers or senders", len(g.Nodes), maxNodes)
	}
	if len(cfg.Profiles) == 0 || len(cfg.Profiles) > maxProfiles {
		return nil, fmt.Errorf("%d different guest settings, but a lab has 1 to %d: use fewer different settings", len(cfg.Profiles), maxProfiles)
	}
	p := &plan{cfg: cfg, byName: map[string]*node{}}
	for _, n := range g.Nodes {
		if err := p.add(&node{name: n.Name, kind: n.Kind, attached: n.Attached}); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{mgmtNode, controllerNode} {
		if err := p.add(&node{name: name, kind: experiment.Hypervisor, mgmtOnly: true}); err != nil {
			return nil, err
		}
	}
	p.paths = g.Multipath || switchesLoop(g)
	p.routed = p.paths && cfg.Switch != "ovs"
	for _, l := range g.Links {
		if err := p.join(l); err != nil {
			return nil, err
		}
	}
	if err := p.address(); err != nil {
		return nil, err
	}
	p.useProfiles()
	if err := p.useStacks(); err != nil {
		return nil, err
	}
	p.hops = map[*node][]int{}
	for _, g := range p.guests() {
		p.hops[g] = p.distances(g)
	}
	return p, nil
}

func (p *plan) add(n *node) error {
	if !nodeNamePattern.MatchString(n.name) {
		return fmt.Errorf("node name %q cannot be a namespace: use letters, digits, dot and dash", n.name)
	}
	if p.byName[n.name] != nil {
		return fmt.Errorf("node name %q is taken: every lab has %q and %q of its own", n.name, mgmtNode, controllerNode)
	}
	n.index = len(p.nodes)
	p.nodes = append(p.nodes, n)
	p.byName[n.name] = n
	return nil
}

// join creates the two ports of a link.
func (p *plan) join(l experiment.Link) error {
	a, b := p.byName[l.A], p.byName[l.B]
	if a == nil || b == nil || a == b {
		return fmt.Errorf("link %s - %s: no such pair of nodes", l.A, l.B)
	}
	pa, pb := p.end(a, b, l), p.end(b, a, l)
	pa.far, pb.far = pb, pa
	return nil
}

func (p *plan) end(n, peer *node, l experiment.Link) *port {
	e := &port{
		node: n, peer: peer, name: portName(n, peer), ifname: ifname(n, peer), rate: l.Rate,
		// Locally administered; unique within the lab.
		mac: net.HardwareAddr{0x02, 0x77, byte(n.index >> 8), byte(n.index), byte(len(n.ports) >> 8), byte(len(n.ports))},
	}
	if n.kind == experiment.Switch {
		e.buffer = l.Buffer.Bytes()
	}
	n.ports = append(n.ports, e)
	return e
}

// ifname returns a short name (the kernel allows 15 bytes); the port's full name is the altname.
func ifname(n, peer *node) string {
	switch {
	case n.kind == experiment.Guest:
		return "eth0"
	case n.kind == experiment.Hypervisor && peer.kind == experiment.Switch:
		return "up"
	case n.kind == experiment.Hypervisor:
		return fmt.Sprintf("vm%d", len(n.ports)+1)
	default:
		return fmt.Sprintf("p%d", len(n.ports)+1)
	}
}

// portName returns a port's name as users write it: between a switch and a server without the hypervisor.
func portName(n, peer *node) string {
	from, to := n.name, peer.name
	if n.kind == experiment.Switch {
		to = strings.TrimSuffix(to, hypervisorSuffix)
	}
	if peer.kind == experiment.Switch {
		from = strings.TrimSuffix(from, hypervisorSuffix)
	}
	return from + "->" + to
}

// address assigns addresses: 10.P.S.H to guests, and 172.31.x.y on the management network.
func (p *plan) address() error {
	switches := 0
	for _, n := range p.nodes {
		if n.kind == experiment.Switch {
			switches++
			n.subnet = switches
		}
		if n.kind != experiment.Guest {
			n.mgmt = netip.AddrFrom4([4]byte{172, 31, byte((n.index + 1) >> 8), byte(n.index + 1)})
		}
	}
	if switches > maxSwitches {
		return fmt.Errorf("%d switches are more than the limit of %d: use fewer switches", switches, maxSwitches)
	}
	hosts := map[*node]int{}
	for _, n := range p.nodes {
		if n.kind != experiment.Guest {
			continue
		}
		sw := p.byName[n.attached]
		if sw == nil || sw.kind != experiment.Switch {
			return fmt.Errorf("guest %s is connected to %q, which is not a switch", n.name, n.attached)
		}
		if len(n.ports) != 1 {
			return fmt.Errorf("guest %s has %d links, but a guest can have only one", n.name, len(n.ports))
		}
		hosts[sw]++
		if hosts[sw] > maxGuestsASwitch {
			return fmt.Errorf("%s has more than %d guests: spread them over more switches", sw.name, maxGuestsASwitch)
		}
		n.subnet, n.host = sw.subnet, hosts[sw]
	}
	return nil
}

// useProfiles assigns to every guest the profiles that its traffic uses; profile 0 if it has none.
func (p *plan) useProfiles() {
	for _, item := range p.cfg.Items {
		for _, pair := range item.Pairs {
			for _, name := range []string{pair.Src, pair.Dst} {
				if n := p.byName[name]; n != nil && !slices.Contains(n.profiles, item.Profile) {
					n.profiles = append(n.profiles, item.Profile)
				}
			}
		}
	}
	for _, n := range p.nodes {
		if len(n.profiles) == 0 {
			n.profiles = []int{0}
		}
		slices.Sort(n.profiles)
	}
}

// addr returns the node's address for one guest profile.
func (n *node) addr(profile int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(profile), byte(n.subnet), byte(n.host)})
}

// profileNet is the network with the addresses of all guests for one profile.
func profileNet(profile int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(10, byte(profile), 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
}

// guests returns the nodes of tenants.
func (p *plan) guests() []*node {
	var list []*node
	for _, n := range p.nodes {
		if n.kind == experiment.Guest {
			list = append(list, n)
		}
	}
	return list
}

// distances counts the links between every node and guest. Other guests forward nothing.
func (p *plan) distances(guest *node) []int {
	hops := slices.Repeat([]int{-1}, len(p.nodes))
	hops[guest.index] = 0
	for queue := []*node{guest}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if n.kind == experiment.Guest && n != guest {
			continue
		}
		for _, port := range n.ports {
			if hops[port.peer.index] < 0 {
				hops[port.peer.index] = hops[n.index] + 1
				queue = append(queue, port.peer)
			}
		}
	}
	return hops
}

// towards returns for every guest that n can reach the ports of n on a shortest path to it: all of them if flows
// are spread, else the first.
func (p *plan) towards(n *node) map[*node][]*port {
	m := map[*node][]*port{}
	for guest, hops := range p.hops {
		for _, port := range n.ports {
			if hops[port.peer.index] < 0 || hops[port.peer.index] != hops[n.index]-1 {
				continue
			}
			if len(m[guest]) == 0 || p.cfg.Graph.Multipath {
				m[guest] = append(m[guest], port)
			}
		}
	}
	return m
}

// switchesLoop reports whether there are more links between switches than in a tree.
func switchesLoop(g *experiment.Graph) bool {
	parent := map[string]string{}
	var root func(s string) string
	root = func(s string) string {
		if parent[s] == "" || parent[s] == s {
			return s
		}
		return root(parent[s])
	}
	kind := map[string]experiment.NodeKind{}
	for _, n := range g.Nodes {
		kind[n.Name] = n.Kind
	}
	for _, l := range g.Links {
		if kind[l.A] != experiment.Switch || kind[l.B] != experiment.Switch {
			continue
		}
		a, b := root(l.A), root(l.B)
		if a == b {
			return true
		}
		parent[a] = b
	}
	return false
}
