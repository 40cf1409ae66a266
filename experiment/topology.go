package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	"weir/law"
)

// Limits of a network, checked before any of it is built. The lab has smaller ones: fitsLab.
const (
	// maxNodes and maxSwitches allow a fat tree of 32 pods (8192 servers with a hypervisor each, 1280 switches), and 1000 switches of 48 ports
	// (S6, without hypervisors).
	maxNodes          = 60_000
	maxSwitches       = 1500
	maxGuestsSwitch   = 1000
	maxHosts          = 100
	maxDelay          = law.Duration(100e9)
	hypervisorSuffix  = ".hv"
	smallestBufferLen = 1514 // one full Ethernet frame
)

// BuildGraph builds the nodes and links of a topology. Errors are Errors without a file.
func BuildGraph(t Topology, n Network) (*Graph, error) {
	c := &checker{}
	if g := c.buildGraph(t, n); len(c.Errs) == 0 {
		return g, nil
	}
	return nil, c.Errs.OrNil()
}

// builder collects nodes and links.
type builder struct {
	t Topology
	n Network
	g Graph
}

// buildGraph builds the graph and notes what is impossible.
func (c *checker) buildGraph(t Topology, n Network) *Graph {
	if !c.topologyKeys(t) || !c.topologySize(t) {
		return nil
	}
	b := &builder{t: t, n: n}
	switch t.Kind {
	case "dumbbell":
		b.dumbbell()
	case "racks":
		b.racks()
	case "leaf_spine":
		b.leafSpine()
	case "fat_tree":
		b.fatTree()
	case "chain":
		b.chain()
	}
	c.extraHosts(b)
	g := &b.g
	g.Multipath = g.hasLoop()
	for name, guests := range g.perSwitch() {
		if guests > maxGuestsSwitch {
			c.Fail([]string{"topology"}, fmt.Sprintf("%d guests are connected to %s", guests, name), fmt.Sprintf("at most %d a switch", maxGuestsSwitch))
		}
	}
	c.linkDelays(b)
	c.linkRules(b)
	return g
}

func (b *builder) node(name string, kind NodeKind, attached string) {
	b.g.Nodes = append(b.g.Nodes, Node{Name: name, Kind: kind, Attached: attached})
}

func (b *builder) switches(names ...string) {
	for _, n := range names {
		b.node(n, Switch, "")
	}
}

func (b *builder) link(x, y string, rate law.Rate) {
	b.g.Links = append(b.g.Links, Link{A: x, B: y, Rate: rate, Buffer: b.n.Buffer})
}

// server adds a server to a switch, with a hypervisor and VMs if the topology asks for them.
func (b *builder) server(name, sw string) {
	if !b.t.Hypervisors {
		b.node(name, Guest, sw)
		b.link(name, sw, b.n.Rate)
		return
	}
	hv := name + hypervisorSuffix
	b.node(hv, Hypervisor, sw)
	guests := []string{name}
	if b.t.VMs > 0 {
		guests = numbered(name+".vm", b.t.VMs)
	}
	for _, guest := range guests {
		b.node(guest, Guest, sw)
		b.link(guest, hv, 0)
	}
	b.link(hv, sw, b.n.Rate)
}

func (b *builder) servers(names []string, sw string) {
	for _, n := range names {
		b.server(n, sw)
	}
}

func (b *builder) dumbbell() {
	if b.t.Receivers == 1 {
		b.switches("switch")
		b.servers(numbered("sender", b.t.Senders), "switch")
		b.server("receiver1", "switch")
		return
	}
	b.switches("left", "right")
	b.servers(numbered("sender", b.t.Senders), "left")
	b.servers(numbered("receiver", b.t.Receivers), "right")
	b.link("left", "right", b.n.Rate)
}

func (b *builder) racks() {
	b.switches("core")
	tors := numbered("tor", b.t.Racks)
	b.switches(tors...)
	for _, tor := range tors {
		b.link(tor, "core", b.n.Rate)
	}
	b.rackServers(tors, b.t.Servers)
}

// rackServers adds n servers to each switch, those of rack i to the i-th.
func (b *builder) rackServers(tors []string, n int) {
	for i, tor := range tors {
		b.servers(numbered(fmt.Sprintf("rack%d.server", i+1), n), tor)
	}
}

func (b *builder) leafSpine() {
	spines, leaves := numbered("spine", b.t.Spines), numbered("leaf", b.t.Leaves)
	b.switches(spines...)
	b.switches(leaves...)
	b.up(leaves, spines, func(int) int { return 0 })
	b.rackServers(leaves, b.t.Servers)
}

// up connects every lower switch to every upper one. With single routing each has one parent: the result is a
// tree, as a spanning tree protocol would leave it.
func (b *builder) up(lower, upper []string, parent func(i int) int) {
	single := b.t.Routing == "single"
	for i, l := range lower {
		for j, u := range upper {
			if !single || j == parent(i) {
				b.link(l, u, b.n.Rate)
			}
		}
	}
}

func (b *builder) chain() {
	names := numbered("switch", b.t.Hops+1)
	b.switches(names...)
	for i, sw := range names {
		if i > 0 {
			b.link(names[i-1], sw, b.n.Rate)
		}
		b.servers(numbered(sw+".sender", b.t.Senders), sw)
		b.servers(numbered(sw+".receiver", b.t.Receivers), sw)
	}
}

// extraHosts adds topology.hosts, ordered by name.
func (c *checker) extraHosts(b *builder) {
	for _, name := range sortedKeys(b.t.Hosts) {
		path, sw := []string{"topology", "hosts", name}, b.t.Hosts[name]
		switch n := b.g.Node(sw); {
		case !labelPattern.MatchString(name):
			c.Fail(path, fmt.Sprintf("%q is not a name for a host", config.Clip(name)), labelRule)
		case b.g.Node(name) != nil:
			c.Fail(path, "a node with this name already exists", "another name")
		case n == nil || n.Kind != Switch:
			c.Fail(path, fmt.Sprintf("there is no switch %q", config.Clip(sw)), config.OneOf(sw, b.g.nodes(Switch)))
		default:
			b.server(name, sw)
		}
	}
}

// linkDelays sets the delay of every link: network.delay, or the share of network.rtt that gives the longest path
// this round trip.
func (c *checker) linkDelays(b *builder) {
	between, access := b.n.Delay, b.n.Delay
	if b.n.RTT > 0 {
		hops, _ := b.g.longest()
		between, access = shares(b.n.RTT, hops)
	}
	switches := toSet(b.g.nodes(Switch))
	for i := range b.g.Links {
		switch l := &b.g.Links[i]; {
		case l.Rate == 0:
		case switches[l.A] && switches[l.B]:
			l.Delay = between
		default:
			l.Delay = access
		}
	}
}

// shares divides a round trip among the links of a path; a round trip crosses each of them twice. The first and
// last link get the remainder. If the RTT is a multiple of 4 ns (every whole microsecond is), the result is exact;
// otherwise up to 3 ns are lost.
func shares(rtt law.Duration, hops int) (between, access law.Duration) {
	n := law.Duration(hops)
	between = rtt / (2 * n) &^ 1
	return between, (rtt - 2*(n-2)*between) / 4
}

// linkRules applies topology.links in order; the last rule that matches a link is used.
func (c *checker) linkRules(b *builder) {
	for i, r := range b.t.Links {
		at := []string{"topology", "links", strconv.Itoa(i)}
		if !c.linkRule(at, r) {
			continue
		}
		var ends [2]map[string]bool
		for k := range ends {
			names, err := b.g.match(r.Between[k], nil)
			if err != nil {
				c.Fail(append(at, "between", strconv.Itoa(k)), err.Error(), "names of nodes, such as core1 or sender*")
				return
			}
			ends[k] = toSet(names)
		}
		found := false
		for j := range b.g.Links {
			l := &b.g.Links[j]
			x, y := strings.TrimSuffix(l.A, hypervisorSuffix), strings.TrimSuffix(l.B, hypervisorSuffix)
			if l.Rate > 0 && (ends[0][x] && ends[1][y] || ends[0][y] && ends[1][x]) {
				found = true
				l.apply(r)
			}
		}
		if !found {
			c.Fail(append(at, "between"), "there is no link between "+strings.Join(r.Between, " and "), "two patterns of nodes that are neighbours")
		}
	}
}

// linkRule checks the values of a rule of topology.links.
func (c *checker) linkRule(at []string, r LinkRule) bool {
	before := len(c.Errs)
	in := func(key string) []string { return append(slices.Clone(at), key) }
	rate, delay, buffer := c.Given(in("rate")...), c.Given(in("delay")...), c.Given(in("buffer")...)
	switch {
	case rate && r.Rate == 0:
		c.Fail(in("rate"), "0 is not a rate", "above 0kbit")
	case delay && r.Delay == 0:
		c.Fail(in("delay"), "0 means: not set", "at least 1ns")
	case r.Delay > maxDelay:
		c.Fail(in("delay"), fmt.Sprintf("%s is out of range", r.Delay), fmt.Sprintf("at most %s", maxDelay))
	case buffer || r.Buffer.N > 0:
		c.buffer(in("buffer"), r.Buffer)
	case r.Rate == 0 && r.Delay == 0:
		c.Fail(at, "the rule changes nothing", "one of rate, delay, buffer")
	}
	return len(c.Errs) == before
}

func (l *Link) apply(r LinkRule) {
	if r.Rate > 0 {
		l.Rate = r.Rate
	}
	if r.Delay > 0 {
		l.Delay = r.Delay
	}
	if r.Buffer.N > 0 {
		l.Buffer = r.Buffer
	}
}

// numbered returns prefix1 .. prefixN.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i+1)
	}
	return names
}
