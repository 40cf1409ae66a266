package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// kindKeys are the keys of topology that each kind needs, and those that it may have.
var kindKeys = map[string]struct{ needs, may []string }{
	"dumbbell":   {needs: []string{"senders", "receivers"}},
	"racks":      {needs: []string{"racks", "servers"}},
	"leaf_spine": {needs: []string{"leaves", "spines", "servers"}, may: []string{"routing"}},
	"fat_tree":   {needs: []string{"cores", "aggs", "tors", "servers"}, may: []string{"routing"}},
	"chain":      {needs: []string{"hops", "senders", "receivers"}},
}

// keys returns the keys that the topology needs. A fat tree is described by the number of each kind of switch, as
// in the papers, or by its pods alone.
func (t Topology) keys() []string {
	if t.Kind == "fat_tree" && t.Pods > 0 {
		return []string{"pods"}
	}
	return kindKeys[t.Kind].needs
}

// keysText lists the keys that a kind needs.
func keysText(kind string) string {
	text := strings.Join(kindKeys[kind].needs, ", ")
	if kind == "fat_tree" {
		text += ", or pods alone"
	}
	return text
}

// topologyKeys checks that the keys belong to the kind.
func (c *checker) topologyKeys(t Topology) bool {
	before := len(c.Errs)
	values := map[string]int{
		"senders": t.Senders, "receivers": t.Receivers, "racks": t.Racks, "servers": t.Servers, "spines": t.Spines,
		"leaves": t.Leaves, "cores": t.Cores, "aggs": t.Aggs, "tors": t.ToRs, "pods": t.Pods, "hops": t.Hops,
	}
	needs, form := t.keys(), t.Kind
	if form == "fat_tree" && t.Pods > 0 {
		form = "a fat_tree of pods"
	}
	for _, key := range sortedKeys(values) {
		path := []string{"topology", key}
		switch needed := slices.Contains(needs, key); {
		case needed && values[key] < 1:
			c.Fail(path, "the key is missing", fmt.Sprintf("%s needs %s", t.Kind, keysText(t.Kind)))
		case !needed && values[key] != 0:
			c.Fail(path, fmt.Sprintf("%s has no %s", form, key), fmt.Sprintf("%s has %s", t.Kind, keysText(t.Kind)))
		}
	}
	if t.Pods%2 != 0 && t.Kind == "fat_tree" {
		c.Fail([]string{"topology", "pods"}, fmt.Sprintf("%d is odd, but half of a switch's ports must lead up", t.Pods), "an even number of pods")
	}
	if c.Given("topology", "routing") && !slices.Contains(kindKeys[t.Kind].may, "routing") {
		c.Fail([]string{"topology", "routing"}, t.Kind+" has only one path", "leaf_spine and fat_tree have equal paths")
	}
	if t.VMs > 0 && !t.Hypervisors {
		c.Fail([]string{"topology", "vms"}, "VMs without a hypervisor", "hypervisors: true, or no vms")
	}
	return len(c.Errs) == before
}

// topologySize checks the number of nodes before any node is built.
func (c *checker) topologySize(t Topology) bool {
	before := len(c.Errs)
	if n := len(t.Hosts); n > maxHosts {
		c.Fail([]string{"topology", "hosts"}, fmt.Sprintf("it has %d extra hosts", n), fmt.Sprintf("at most %d", maxHosts))
	}
	if switches, nodes := t.size(); switches > maxSwitches || nodes > maxNodes {
		c.Fail([]string{"topology"}, fmt.Sprintf("it has %d nodes, %d of them switches", nodes, switches),
			fmt.Sprintf("at most %d nodes and %d switches: fewer servers, fewer VMs, or no hypervisors", maxNodes, maxSwitches))
	}
	return len(c.Errs) == before
}

// size counts the nodes of the topology, and the switches among them.
func (t Topology) size() (switches, nodes int) {
	server := 1
	if t.Hypervisors {
		server += max(t.VMs, 1)
	}
	switches = t.switches()
	return switches, switches + (t.servers()+len(t.Hosts))*server
}

// servers returns the number of servers of the topology, without extra hosts.
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
	if t.Pods > 0 {
		return t.Pods * t.Pods * t.Pods / 4
	}
	return t.ToRs * t.Servers
}

// switches returns the number of switches of the topology.
func (t Topology) switches() int {
	switch t.Kind {
	case "dumbbell":
		if t.Receivers == 1 {
			return 1
		}
		return 2
	case "chain":
		return t.Hops + 1
	case "racks":
		return 1 + t.Racks
	case "leaf_spine":
		return t.Leaves + t.Spines
	}
	if t.Pods > 0 {
		return t.Pods * t.Pods * 5 / 4 // k^2/4 cores, and k^2/2 of each other kind
	}
	return t.Cores + t.Aggs + t.ToRs
}
