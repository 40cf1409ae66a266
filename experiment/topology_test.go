package experiment

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/law"
)

var oneGigabit = Network{Rate: 1e9, RTT: 240e3, Buffer: law.Limit{N: 125_000}}

// Nodes and links of every kind, as in testdata/topology.golden.
func TestTopologies(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		title string
		t     Topology
		n     Network
	}{
		{"dumbbell, one receiver", Topology{Kind: "dumbbell", Senders: 2, Receivers: 1}, oneGigabit},
		{"dumbbell, several receivers, hypervisors", Topology{Kind: "dumbbell", Senders: 1, Receivers: 2, Hypervisors: true}, oneGigabit},
		{"racks with VMs and an extra host", Topology{
			Kind: "racks", Racks: 2, Servers: 1, Hypervisors: true, VMs: 2, Hosts: map[string]string{"store": "core"},
		}, oneGigabit},
		{"leaf_spine", Topology{Kind: "leaf_spine", Leaves: 2, Spines: 2, Servers: 1}, oneGigabit},
		{"leaf_spine, single", Topology{Kind: "leaf_spine", Leaves: 2, Spines: 2, Servers: 1, Routing: "single"}, oneGigabit},
		{"fat_tree with faster links", Topology{
			Kind: "fat_tree", Cores: 1, Aggs: 2, ToRs: 3, Servers: 1, Hosts: map[string]string{"aggregator": "tor3"},
			Links: []LinkRule{
				{Between: []string{"core*", "agg*"}, Rate: 10e9, Buffer: law.Limit{N: 83, Packets: true}},
				{Between: []string{"tor*", "agg*"}, Rate: 5e9},
				{Between: []string{"tor1", "agg1..2"}, Delay: 7e3},
			},
		}, Network{Rate: 1e9, Delay: 25e3, Buffer: law.Limit{N: 125_000}}},
		{"fat_tree, single", Topology{Kind: "fat_tree", Cores: 2, Aggs: 2, ToRs: 3, Servers: 1, Routing: "single"}, oneGigabit},
		{"fat_tree of 4 pods", Topology{Kind: "fat_tree", Pods: 4}, oneGigabit},
		{"fat_tree of 4 pods, single", Topology{Kind: "fat_tree", Pods: 4, Routing: "single"}, oneGigabit},
		{"chain", Topology{Kind: "chain", Hops: 2, Senders: 1, Receivers: 1}, oneGigabit},
	} {
		g, err := BuildGraph(c.t, c.n)
		if err != nil {
			t.Fatalf("%s: %v", c.title, err)
		}
		if switches, nodes := c.t.size(); nodes != len(g.Nodes) || switches != len(g.nodes(Switch)) {
			t.Errorf("%s: %d nodes and %d switches were announced; there are %d and %d", c.title, nodes, switches, len(g.Nodes), len(g.nodes(Switch)))
		}
		fmt.Fprintf(&out, "# %s\nmultipath %v, base round trip %s\n", c.title, g.Multipath, g.rtt())
		for _, n := range g.Nodes {
			fmt.Fprintf(&out, "node %s %s %s\n", n.Name, []string{"guest", "hypervisor", "switch"}[n.Kind], n.Attached)
		}
		for _, l := range g.Links {
			fmt.Fprintf(&out, "link %s %s rate %s delay %s buffer %s\n", l.A, l.B, l.Rate, l.Delay, l.Buffer)
		}
		fmt.Fprintln(&out)
	}
	golden(t, "topology.golden", bytes.ReplaceAll(out.Bytes(), []byte(" \n"), []byte("\n")))
}

// Bridges would form a loop depending on the switches, not on the kind of topology.
func TestMultipath(t *testing.T) {
	for _, c := range []struct {
		t    Topology
		want bool
	}{
		{Topology{Kind: "leaf_spine", Leaves: 2, Spines: 1, Servers: 1}, false},
		{Topology{Kind: "leaf_spine", Leaves: 1, Spines: 2, Servers: 1}, false},
		{Topology{Kind: "leaf_spine", Leaves: 2, Spines: 2, Servers: 1}, true},
		{Topology{Kind: "fat_tree", Cores: 1, Aggs: 2, ToRs: 1, Servers: 1}, true}, // tor1, agg1, core1, agg2
		{Topology{Kind: "fat_tree", Cores: 1, Aggs: 1, ToRs: 3, Servers: 1}, false},
		{Topology{Kind: "fat_tree", Cores: 2, Aggs: 2, ToRs: 3, Servers: 1, Routing: "single"}, false},
		{Topology{Kind: "fat_tree", Pods: 2}, false},
		{Topology{Kind: "fat_tree", Pods: 4}, true},
		{Topology{Kind: "fat_tree", Pods: 4, Routing: "single"}, false},
		{Topology{Kind: "chain", Hops: 3, Senders: 1, Receivers: 1}, false},
	} {
		g, err := BuildGraph(c.t, oneGigabit)
		if err != nil || g.Multipath != c.want {
			t.Errorf("%+v: multipath %v, %v; want %v", c.t, g.Multipath, err, c.want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	dumbbell, err := BuildGraph(Topology{Kind: "dumbbell", Senders: 12, Receivers: 1, Hypervisors: true}, oneGigabit)
	if err != nil {
		t.Fatal(err)
	}
	racks, err := BuildGraph(Topology{Kind: "racks", Racks: 3, Servers: 2, Hypervisors: true, VMs: 2, Hosts: map[string]string{"store": "tor1"}}, oneGigabit)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		g       *Graph
		kind    NodeKind
		pattern string
		want    string // names, or an error's part after "!"
	}{
		{dumbbell, Guest, "receiver1", "receiver1"},
		{dumbbell, Guest, "sender2..4", "sender2 sender3 sender4"},
		{dumbbell, Guest, "sender11..", "sender11 sender12"},
		{dumbbell, Guest, "sender1../5", "sender1 sender6 sender11"},
		{dumbbell, Guest, "sender2..9/3", "sender2 sender5 sender8"},
		{dumbbell, Guest, "sender3, sender1,sender3", "sender1 sender3"},
		{dumbbell, Guest, "sender1", "sender1"}, // not sender10, nor sender1.hv
		{dumbbell, Hypervisor, "sender1.hv", "sender1.hv"},
		{dumbbell, Switch, "*", "!not a pattern"},
		{dumbbell, Switch, "switch", "switch"},
		{dumbbell, Guest, "switch", "!matches no guest"},
		{dumbbell, Switch, "sender1", "!matches no switch"},
		{dumbbell, Guest, "sender13", "!matches no guest"},
		{dumbbell, Guest, "sender4..2", "!is empty"},
		{dumbbell, Guest, "sender1../0", "!is empty"},
		{dumbbell, Guest, "sender1,", "!not a pattern"},
		{dumbbell, Guest, "", "!not a pattern"},
		{dumbbell, Guest, "sender1.", "!ends with a dot"},
		{dumbbell, Guest, "sender01", "!matches no guest"},
		{racks, Guest, "rack1.server1", "rack1.server1.vm1 rack1.server1.vm2"}, // a server stands for its VMs
		{racks, Guest, "rack2..3.server2.vm1", "rack2.server2.vm1 rack3.server2.vm1"},
		{racks, Guest, "rack*.server*.vm2", "rack1.server1.vm2 rack1.server2.vm2 rack2.server1.vm2 rack2.server2.vm2 rack3.server1.vm2 rack3.server2.vm2"},
		{racks, Guest, "store", "store.vm1 store.vm2"},
		{racks, Guest, "rack*", "!matches no guest"},
		{racks, Guest, "stor*", "!matches no guest"}, // "*" is a number
		{racks, Switch, "tor2.., core", "core tor2 tor3"},
	} {
		got, err := c.g.Select(c.pattern, c.kind)
		if part, wrong := strings.CutPrefix(c.want, "!"); wrong {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: got %v, %v; want an error with %q", c.pattern, got, err, part)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %v, %v; want %s", c.pattern, got, err, c.want)
		}
	}
}

func TestPairs(t *testing.T) {
	racks, err := BuildGraph(Topology{Kind: "racks", Racks: 4, Servers: 7}, oneGigabit)
	if err != nil {
		t.Fatal(err)
	}
	from, _ := racks.Select("rack1..3.server*", Guest)
	to, _ := racks.Select("rack4.server*", Guest)
	// 126 = 21 x 7 - 3 x 7 is the papers' number of mice, 21 that of their elephants.
	for how, want := range map[string]int{"all": 147, "same_index": 21, "other_index": 126} {
		got := pairs(from, to, how)
		if len(got) != want {
			t.Errorf("%s: %d pairs, want %d", how, len(got), want)
		}
		for _, p := range got {
			same := p.Src[len(p.Src)-1] == p.Dst[len(p.Dst)-1]
			if how == "same_index" && !same || how == "other_index" && same {
				t.Errorf("%s has %v", how, p)
			}
		}
	}
	if got := pairs(from, from, "same_index"); slices.ContainsFunc(got, func(p Pair) bool { return p.Src == p.Dst }) {
		t.Error("a node is paired with itself")
	}
}

func TestPortNames(t *testing.T) {
	g, err := BuildGraph(Topology{Kind: "dumbbell", Senders: 1, Receivers: 1, Hypervisors: true, VMs: 2}, oneGigabit)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, node, peer, canonical string }{
		{"switch->receiver1", "switch", "receiver1.hv", "switch->receiver1"},
		{"receiver1->switch", "receiver1.hv", "switch", "receiver1->switch"},
		{"switch->receiver1.hv", "switch", "receiver1.hv", "switch->receiver1"},
		{"sender1.vm2->sender1.hv", "sender1.vm2", "sender1.hv", "sender1.vm2->sender1.hv"},
		{"sender1.hv->sender1.vm2", "sender1.hv", "sender1.vm2", "sender1.hv->sender1.vm2"},
	} {
		node, peer, err := g.Port(c.name)
		if err != nil || node != c.node || peer != c.peer {
			t.Errorf("%s is %s, %s, %v; want %s, %s", c.name, node, peer, err, c.node, c.peer)
		}
		if got := PortName(node, peer); got != c.canonical {
			t.Errorf("the name of %s is %s, want %s", c.name, got, c.canonical)
		}
	}
	for _, bad := range []string{"switch", "switch->", "sender1->receiver1", "switch->nobody", "->"} {
		if _, _, err := g.Port(bad); err == nil {
			t.Errorf("%q is a port", bad)
		}
	}
}

// Every accepted spelling of a port is the same port for the worlds.
func TestPlan_PortsHaveOneName(t *testing.T) {
	for _, spelled := range []string{"switch->receiver1", "switch -> receiver1", "switch->receiver1.hv", " switch -> receiver1.hv "} {
		text := strings.Replace(planBase, `"switch->receiver1"`, fmt.Sprintf("%q", spelled), 1)
		for _, world := range []string{WorldLab, WorldSim} {
			for _, r := range planned(t, text, Options{Worlds: []string{world}, Schemes: []string{"droptail"}, AssumeAll: true}).Runs {
				if got := r.Config.Ports["bottleneck"]; got != "switch->receiver1" {
					t.Errorf("%s: the port %q is %q", world, spelled, got)
				}
			}
		}
	}
}

// network.rtt is the base round trip of the longest path in every topology: exact if it is a multiple of 4 ns.
func TestLongestPathHasTheRTT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.IntRange(1, 3)
		topology := Topology{
			Kind: rapid.SampledFrom([]string{"dumbbell", "racks", "leaf_spine", "fat_tree", "chain"}).Draw(t, "kind"),
			// VMs need them, so draw both.
			Hypervisors: rapid.Bool().Draw(t, "hypervisors"),
		}
		for _, key := range kindKeys[topology.Kind].needs {
			*map[string]*int{
				"senders": &topology.Senders, "receivers": &topology.Receivers, "racks": &topology.Racks, "servers": &topology.Servers,
				"leaves": &topology.Leaves, "spines": &topology.Spines, "cores": &topology.Cores, "aggs": &topology.Aggs,
				"tors": &topology.ToRs, "hops": &topology.Hops,
			}[key] = small.Draw(t, key)
		}
		rtt := law.Duration(rapid.Int64Range(1, 1_000_000).Draw(t, "rtt"))
		if rapid.Bool().Draw(t, "whole microseconds") {
			rtt *= 1000
		}
		g, err := BuildGraph(topology, Network{Rate: 1e9, RTT: rtt, Buffer: law.Limit{N: 10, Packets: true}})
		if err != nil {
			t.Fatal(err)
		}
		if len(g.nodes(Guest)) < 2 {
			return // one guest has no path
		}
		if got := 2 * slowest(g); got != g.rtt() {
			t.Fatalf("%+v: base round trip %s, want %s", topology, g.rtt(), got)
		}
		if left := rtt - g.rtt(); left < 0 || left > 3 || left > 0 && rtt%4 == 0 {
			t.Fatalf("%+v: the longest path takes %s there and back, %s was asked for", topology, g.rtt(), rtt)
		}
	})
}

// slowest returns the largest delay between two guests along their shortest paths. It uses Floyd and Warshall's
// algorithm, to check the breadth-first search with another method.
func slowest(g *Graph) law.Duration {
	const far = law.Duration(1) << 50
	n := len(g.Nodes)
	id := map[string]int{}
	for i, node := range g.Nodes {
		id[node.Name] = i
	}
	hops := make([][]law.Duration, n)
	for i := range hops {
		hops[i] = slices.Repeat([]law.Duration{far}, n)
		hops[i][i] = 0
	}
	for _, l := range g.Links {
		hops[id[l.A]][id[l.B]], hops[id[l.B]][id[l.A]] = l.Delay, l.Delay
	}
	for k := range n {
		for i := range n {
			for j := range n {
				hops[i][j] = min(hops[i][j], hops[i][k]+hops[k][j])
			}
		}
	}
	longest := law.Duration(0)
	for i, a := range g.Nodes {
		for j, b := range g.Nodes {
			if a.Kind == Guest && b.Kind == Guest {
				longest = max(longest, hops[i][j])
			}
		}
	}
	return longest
}
