package experiment

import (
	"fmt"
	"strings"
	"testing"
)

// Al-Fares, Loukissas and Vahdat 2008, section 2.2: k^3/4 hosts, 5k^2/4 switches with k ports each, and (k/2)^2
// shortest paths between any two hosts of different pods.
func TestPodTree(t *testing.T) {
	for _, k := range []int{2, 4, 6, 16} {
		g, err := BuildGraph(Topology{Kind: "fat_tree", Pods: k}, oneGigabit)
		if err != nil {
			t.Fatal(err)
		}
		half, hosts := k/2, len(g.nodes(Guest))
		if hosts != k*k*k/4 || len(g.nodes(Switch)) != 5*k*k/4 {
			t.Errorf("k=%d: %d hosts and %d switches", k, hosts, len(g.nodes(Switch)))
		}
		ports := map[string]int{}
		for _, l := range g.Links {
			ports[l.A]++
			ports[l.B]++
		}
		for _, sw := range g.nodes(Switch) {
			if ports[sw] != k {
				t.Errorf("k=%d: %s has %d ports", k, sw, ports[sw])
			}
		}
		far := fmt.Sprintf("rack%d.server%d", k*half, half)
		if hops, paths := shortest(g, far); hops != 6 || paths != half*half {
			t.Errorf("k=%d: %d paths of %d links to another pod", k, paths, hops)
		}
		if k == 2 {
			continue
		}
		if hops, paths := shortest(g, fmt.Sprintf("rack%d.server1", half)); hops != 4 || paths != half {
			t.Errorf("k=%d: %d paths of %d links within the pod", k, paths, hops)
		}
		if hops, paths := shortest(g, "rack1.server2"); hops != 2 || paths != 1 {
			t.Errorf("k=%d: %d paths of %d links within the rack", k, paths, hops)
		}
	}
}

// shortest returns the number of links of a shortest path from the first server to another node, and the number of
// such paths.
func shortest(g *Graph, to string) (hops, paths int) {
	next := map[string][]string{}
	for _, l := range g.Links {
		next[l.A], next[l.B] = append(next[l.A], l.B), append(next[l.B], l.A)
	}
	const from = "rack1.server1"
	ways, seen := map[string]int{from: 1}, map[string]bool{from: true}
	for ; len(ways) > 0 && ways[to] == 0; hops++ {
		further := map[string]int{}
		for at, n := range ways {
			for _, peer := range next[at] {
				if !seen[peer] {
					further[peer] += n
				}
			}
		}
		for name := range further {
			seen[name] = true
		}
		ways = further
	}
	return hops, ways[to]
}

// With single routing there is one path between any two hosts, of at most 6 links.
func TestPodTree_Single(t *testing.T) {
	g, err := BuildGraph(Topology{Kind: "fat_tree", Pods: 6, Routing: "single"}, oneGigabit)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"rack1.server3", "rack3.server1", "rack18.server3"} {
		if hops, paths := shortest(g, to); paths != 1 || hops > 6 {
			t.Errorf("%d paths of %d links to %s", paths, hops, to)
		}
	}
}

// The largest network that a file may ask for is built. A larger one is refused before anything is built.
func TestTopologySize(t *testing.T) {
	g, err := BuildGraph(Topology{Kind: "fat_tree", Pods: 32, Hypervisors: true}, oneGigabit)
	if err != nil || len(g.Nodes) != 2*8192+1280 || g.rtt() != oneGigabit.RTT {
		t.Fatalf("32 pods: %v, %d nodes", err, len(g.Nodes))
	}
	for _, c := range []struct {
		t    Topology
		want string
	}{
		{Topology{Kind: "racks", Racks: 100, Servers: 250, Hypervisors: true, VMs: 64}, "it has 1625101 nodes, 101 of them switches; at most 60000 nodes and 1500 switches"},
		{Topology{Kind: "fat_tree", Pods: 36}, "it has 13284 nodes, 1620 of them switches"},
		{Topology{Kind: "fat_tree", Pods: 7}, "7 is odd"},
		{Topology{Kind: "fat_tree", Pods: 4, Servers: 2}, "a fat_tree of pods has no servers"},
	} {
		allocated := testing.AllocsPerRun(1, func() { _, err = BuildGraph(c.t, oneGigabit) })
		if err == nil || !strings.Contains(err.Error(), c.want) || allocated > 1000 {
			t.Errorf("%+v: %v after %.0f allocations, want %q", c.t, err, allocated, c.want)
		}
	}
}
