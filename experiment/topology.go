package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	"weir/law"
)

// Limits of a network. The lab's address plan gives a switch 250 guests.
const (
	maxNodes          = 4000
	maxSwitches       = 250
	maxGuestsSwitch   = 1000
	maxGuestsInLab    = 250
	maxHosts          = 100
	hypervisorSuffix  = ".hv"
	smallestBufferLen = 1514 // one full Ethernet frame
)

// The keys of topology that each kind needs, and those it may have.
var kindKeys = map[string]struct{ needs, may []string }{
	"dumbbell":   {needs: []string{"senders", "receivers"}},
	"racks":      {needs: []string{"racks", "servers"}},
	"leaf_spine": {needs: []string{"leaves", "spines", "servers"}, may: []string{"routing"}},
	"fat_tree":   {needs: []string{"cores", "aggs", "tors", "servers"}, may: []string{"routing"}},
	"chain":      {needs: []string{"hops", "senders", "receivers"}},
}

// BuildGraph makes the topology concrete. Errors are Errors without a file.
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

// buildGraph makes the graph and says what is impossible about it.
func (c *checker) buildGraph(t Topology, n Network) *Graph {
	if !c.topologyKeys(t) {
		return nil
	}
	if size := t.servers() * max(t.VMs, 1); size > maxNodes || len(t.Hosts) > maxHosts {
		c.Fail([]string{"topology"}, fmt.Sprintf("it has %d guests and %d extra hosts", size, len(t.Hosts)),
			fmt.Sprintf("at most %d nodes and %d extra hosts", maxNodes, maxHosts))
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
	if len(g.Nodes) > maxNodes {
		c.Fail([]string{"topology"}, fmt.Sprintf("it has %d nodes", len(g.Nodes)), fmt.Sprintf("at most %d", maxNodes))
		return nil
	}
	if s := len(g.nodes(Switch)); s > maxSwitches {
		c.Fail([]string{"topology"}, fmt.Sprintf("it has %d switches", s), fmt.Sprintf("at most %d", maxSwitches))
	}
	for name, guests := range g.perSwitch() {
		if guests > maxGuestsSwitch {
			c.Fail([]string{"topology"}, fmt.Sprintf("%d guests hang on %s", guests, name), fmt.Sprintf("at most %d a switch", maxGuestsSwitch))
		}
	}
	c.linkDelays(b)
	c.linkRules(b)
	return g
}

// servers is how many servers the topology has, extra hosts apart.
func (t Topology) servers() int {
	switch t.Kind {
	case "dumbbell":
		return t.Senders + t.Receivers
	case "chain":
		return (t.Hops + 1) * (t.Senders + t.Receivers)
	case "racks":
		return t.Racks * t.Servers
	case "leaf_spine":
		return t.Leaves * t.Servers
	}
	return t.ToRs * t.Servers
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

// server adds a server to a switch: with a hypervisor and VMs if there are to be.
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
	b.rackServers(tors)
}

// rackServers puts the servers of rack i on the i-th switch.
func (b *builder) rackServers(tors []string) {
	for i, tor := range tors {
		b.servers(numbered(fmt.Sprintf("rack%d.server", i+1), b.t.Servers), tor)
	}
}

func (b *builder) leafSpine() {
	spines, leaves := numbered("spine", b.t.Spines), numbered("leaf", b.t.Leaves)
	b.switches(spines...)
	b.switches(leaves...)
	b.up(leaves, spines, func(int) int { return 0 })
	b.rackServers(leaves)
}

func (b *builder) fatTree() {
	cores, aggs, tors := numbered("core", b.t.Cores), numbered("agg", b.t.Aggs), numbered("tor", b.t.ToRs)
	b.switches(cores...)
	b.switches(aggs...)
	b.switches(tors...)
	b.up(aggs, cores, func(int) int { return 0 })
	b.up(tors, aggs, func(i int) int { return i % len(aggs) })
	b.rackServers(tors)
}

// up joins every lower switch with every upper one; with single routing each has one parent, so
// that the whole is a tree, as a spanning tree would leave it.
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

// extraHosts adds topology.hosts in the order of their names.
func (c *checker) extraHosts(b *builder) {
	for _, name := range sortedKeys(b.t.Hosts) {
		path, sw := []string{"topology", "hosts", name}, b.t.Hosts[name]
		switch n := b.g.Node(sw); {
		case !labelPattern.MatchString(name):
			c.Fail(path, fmt.Sprintf("%q is not a name for a host", config.Clip(name)), labelRule)
		case b.g.Node(name) != nil:
			c.Fail(path, "a node of this name exists already", "another name")
		case n == nil || n.Kind != Switch:
			c.Fail(path, fmt.Sprintf("there is no switch %q", config.Clip(sw)), config.OneOf(sw, b.g.nodes(Switch)))
		default:
			b.server(name, sw)
		}
	}
}

// topologyKeys checks that the keys belong to the kind.
func (c *checker) topologyKeys(t Topology) bool {
	before := len(c.Errs)
	keys := kindKeys[t.Kind]
	values := map[string]int{
		"senders": t.Senders, "receivers": t.Receivers, "racks": t.Racks, "servers": t.Servers, "spines": t.Spines,
		"leaves": t.Leaves, "cores": t.Cores, "aggs": t.Aggs, "tors": t.ToRs, "hops": t.Hops,
	}
	for _, key := range sortedKeys(values) {
		path := []string{"topology", key}
		switch needed := slices.Contains(keys.needs, key); {
		case needed && values[key] < 1:
			c.Fail(path, "the key is missing", fmt.Sprintf("%s needs %s", t.Kind, strings.Join(keys.needs, ", ")))
		case !needed && values[key] != 0:
			c.Fail(path, fmt.Sprintf("%s has no %s", t.Kind, key), fmt.Sprintf("%s has %s", t.Kind, strings.Join(keys.needs, ", ")))
		}
	}
	if c.Given("topology", "routing") && !slices.Contains(keys.may, "routing") {
		c.Fail([]string{"topology", "routing"}, t.Kind+" has one path only", "leaf_spine and fat_tree have equal paths")
	}
	if t.VMs > 0 && !t.Hypervisors {
		c.Fail([]string{"topology", "vms"}, "VMs without a hypervisor", "hypervisors: true, or no vms")
	}
	return len(c.Errs) == before
}

// linkDelays gives every link its delay: network.delay, or the share of network.rtt that makes the
// longest path's round trip.
func (c *checker) linkDelays(b *builder) {
	delay := b.n.Delay
	if b.n.RTT > 0 {
		hops, _ := b.g.longest()
		delay = b.n.RTT / law.Duration(2*hops)
	}
	for i := range b.g.Links {
		if b.g.Links[i].Rate > 0 {
			b.g.Links[i].Delay = delay
		}
	}
}

// linkRules applies topology.links in order; the last rule that names a link wins.
func (c *checker) linkRules(b *builder) {
	for i, r := range b.t.Links {
		at := []string{"topology", "links", strconv.Itoa(i)}
		if r.Rate == 0 && r.Delay == 0 && r.Buffer.N == 0 {
			c.Fail(at, "the rule changes nothing", "one of rate, delay, buffer")
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
			c.Fail(append(at, "between"), "no link joins "+strings.Join(r.Between, " and "), "two patterns of nodes that are neighbours")
		}
	}
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

// numbered gives prefix1 .. prefixN.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i+1)
	}
	return names
}
