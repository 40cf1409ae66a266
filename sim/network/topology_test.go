package network

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"weir/experiment"
	"weir/law"
	"weir/law/acdc"
	"weir/law/droptail"
	"weir/law/fairq"
	"weir/law/mark"
	"weir/law/sicc"
	"weir/sim/event"
)

// topologies has one of each kind, with and without hypervisors and equal paths.
var topologies = map[string]experiment.Topology{
	"dumbbell":            {Kind: "dumbbell", Senders: 4, Receivers: 1},
	"dumbbell, two sides": {Kind: "dumbbell", Senders: 3, Receivers: 2, Hypervisors: true},
	"racks":               {Kind: "racks", Racks: 3, Servers: 2, Hypervisors: true, VMs: 2},
	"leaf_spine":          {Kind: "leaf_spine", Leaves: 3, Spines: 2, Servers: 2, Hypervisors: true},
	"leaf_spine, single":  {Kind: "leaf_spine", Leaves: 3, Spines: 2, Servers: 2, Routing: "single"},
	"fat_tree":            {Kind: "fat_tree", Cores: 2, Aggs: 3, ToRs: 4, Servers: 2, Hosts: map[string]string{"aggregator": "tor4"}},
	"fat_tree, single":    {Kind: "fat_tree", Cores: 2, Aggs: 3, ToRs: 4, Servers: 2, Routing: "single"},
	"chain":               {Kind: "chain", Hops: 3, Senders: 2, Receivers: 1, Hypervisors: true},
}

// distances returns the links on shortest paths between all nodes, the slow way (Floyd and Warshall).
func distances(g *experiment.Graph) map[[2]string]int {
	const far = 1 << 20
	d := map[[2]string]int{}
	get := func(a, b string) int {
		if x, ok := d[[2]string{a, b}]; ok {
			return x
		}
		return far
	}
	for _, l := range g.Links {
		d[[2]string{l.A, l.B}], d[[2]string{l.B, l.A}] = 1, 1
	}
	for _, k := range g.Nodes {
		for _, i := range g.Nodes {
			for _, j := range g.Nodes {
				if by := get(i.Name, k.Name) + get(k.Name, j.Name); by < get(i.Name, j.Name) {
					d[[2]string{i.Name, j.Name}] = by
				}
			}
		}
	}
	return d
}

// In every kind of network a shortest path of the Graph joins every pair of hosts, for any hash. The longest RTT of an
// idle network is the one that was asked for.
func TestEveryPairOnAShortestPath(t *testing.T) {
	for name, topology := range topologies {
		t.Run(name, func(t *testing.T) {
			const rtt = 120 * event.Microsecond
			g, err := experiment.BuildGraph(topology, experiment.Network{Rate: 1e9, RTT: law.Duration(rtt), Buffer: law.Limit{N: 125_000}})
			if err != nil {
				t.Fatal(err)
			}
			n, s := build(t, g, Options{Seed: 7})
			dist := distances(g)
			hosts := hostsOf(g)
			longest := event.Time(0)
			for _, src := range hosts {
				for _, dst := range hosts {
					if src == dst {
						continue
					}
					want := dist[[2]string{n.Name(src), n.Name(dst)}]
					for hash := range uint32(5) {
						there, hops := oneWay(t, n, s, src, dst, hash*0x9e3779b9)
						if hops != want {
							t.Fatalf("%s to %s: %d links, want %d", n.Name(src), n.Name(dst), hops, want)
						}
						back, _ := oneWay(t, n, s, dst, src, hash)
						longest = max(longest, there+back)
					}
				}
			}
			if d := rtt - longest; d < 0 || d > 20 { // the share of a link is rounded down
				t.Errorf("the longest round trip is %d ns, asked for %d", longest, rtt)
			}
			conserved(t, n)
		})
	}
}

// oneWay sends a packet and returns its time without the time on lines, and the number of links.
func oneWay(t *testing.T, n *Network, s *sink, src, dst NodeID, hash uint32) (event.Time, int) {
	t.Helper()
	before := make([]int64, len(n.Ports))
	for i, p := range n.Ports {
		before[i] = p.in.Packets
	}
	s.got = s.got[:0]
	start := n.Queue.Now()
	pk := n.packet(src, dst, 1514, 1)
	pk.hash = hash
	n.Send(src, pk)
	n.Queue.Run(start + event.Second)
	if len(s.got) != 1 || s.got[0].host != dst {
		t.Fatalf("%s to %s: arrived %v", n.Name(src), n.Name(dst), s.got)
	}
	hops, lines := 0, event.Time(0)
	for i, p := range n.Ports {
		if p.in.Packets > before[i] {
			hops++
			if p.Rate > 0 {
				lines += event.Time(1538 * 8 * 1e9 / int64(p.Rate))
			}
		}
	}
	return s.got[0].at - start - lines, hops
}

func hostsOf(g *experiment.Graph) []NodeID {
	var ids []NodeID
	for i, n := range g.Nodes {
		if n.Kind == experiment.Guest {
			ids = append(ids, NodeID(i))
		}
	}
	return ids
}

// treeLaws are the laws of the papers' trees.
var treeLaws = experiment.NewLaws(
	experiment.Law{Spec: droptail.Spec()}, experiment.Law{Spec: mark.REDSpec()}, experiment.Law{Spec: mark.ECNSpec()},
	experiment.Law{Spec: fairq.Spec()}, experiment.Law{Spec: sicc.Spec()}, experiment.Law{Spec: acdc.Spec()},
)

// The papers' trees: nodes, links, rates and over-subscription of S3 (144 servers) and S4 (288).
func TestPaperTrees(t *testing.T) {
	for _, c := range []struct {
		file                          string
		cores, aggs, tors, servers    int
		oversubscription, longestUsec int64
	}{
		{"S3.yaml", 1, 2, 3, 48, 48, 8 * 25},
		{"S4.yaml", 1, 3, 6, 48, 32, 8 * 25},
	} {
		f, err := treeLaws.Load(filepath.Join("../../experiments/sicc", c.file))
		if err != nil {
			t.Fatal(err)
		}
		g, err := experiment.BuildGraph(f.Topology, f.Network)
		if err != nil {
			t.Fatal(err)
		}
		n, s := build(t, g, Options{})
		var guests, toAggs, toCores int
		var up law.Rate
		for _, p := range n.Ports {
			from, to := n.Name(p.Node), n.Name(p.Peer)
			switch {
			case strings.HasPrefix(from, "tor") && strings.HasPrefix(to, "agg") && !strings.HasPrefix(to, "aggregator"):
				toAggs++
				if from == "tor1" {
					up += p.Rate
				}
				if p.Rate != 5e9 {
					t.Errorf("%s: %v", p.Name, p.Rate)
				}
			case strings.HasPrefix(from, "agg") && strings.HasPrefix(to, "core"):
				toCores++
				if p.Rate != 10e9 {
					t.Errorf("%s: %v", p.Name, p.Rate)
				}
			}
		}
		guests = len(hostsOf(g))
		if guests != c.tors*c.servers+1 || toAggs != c.tors*c.aggs || toCores != c.aggs*c.cores {
			t.Errorf("%s: %d hosts, %d links ToR to agg, %d agg to core", c.file, guests, toAggs, toCores)
		}
		if got := int64(c.servers) * 1e9 * 10 / int64(up); got != c.oversubscription {
			t.Errorf("%s: over-subscribed %d/10", c.file, got)
		}
		if n.PortByName(f.Measure.Ports["aggregator"]) == nil {
			t.Errorf("%s: no port %s", c.file, f.Measure.Ports["aggregator"])
		}
		// 25 us a link, four links each way through an aggregation switch.
		there, _ := oneWay(t, n, s, n.id(t, "rack1.server1"), n.id(t, "rack3.server48"), 5)
		back, _ := oneWay(t, n, s, n.id(t, "rack3.server48"), n.id(t, "rack1.server1"), 6)
		if want := event.Time(c.longestUsec) * event.Microsecond; there+back != want {
			t.Errorf("%s: RTT %d ns, want %d", c.file, there+back, want)
		}
	}
}

// fatTree is the k-ary fat tree (Al-Fares, Loukissas and Vahdat, SIGCOMM 2008, section 2.2): k pods of k/2 ToR and k/2
// aggregation switches, (k/2)^2 cores, and k/2 servers per ToR. Core i*k/2+j joins the i-th aggregation switch of each
// pod.
func fatTree(k int, hypervisors bool) *experiment.Graph {
	g, half := &experiment.Graph{Multipath: true}, k/2
	node := func(name string, kind experiment.NodeKind, at string) {
		g.Nodes = append(g.Nodes, experiment.Node{Name: name, Kind: kind, Attached: at})
	}
	link := func(a, b string) {
		g.Links = append(g.Links, experiment.Link{A: a, B: b, Rate: 10e9, Delay: 1000, Buffer: law.Limit{N: 125_000}})
	}
	for i := range half * half {
		node(fmt.Sprintf("core%d", i), experiment.Switch, "")
	}
	for pod := range k {
		for i := range half {
			agg := fmt.Sprintf("pod%d.agg%d", pod, i)
			node(agg, experiment.Switch, "")
			for j := range half {
				link(agg, fmt.Sprintf("core%d", i*half+j))
			}
		}
		for i := range half {
			tor := fmt.Sprintf("pod%d.tor%d", pod, i)
			node(tor, experiment.Switch, "")
			for j := range half {
				link(tor, fmt.Sprintf("pod%d.agg%d", pod, j))
			}
			for j := range half {
				server := fmt.Sprintf("%s.server%d", tor, j)
				node(server, experiment.Guest, tor)
				if !hypervisors {
					link(server, tor)
					continue
				}
				node(server+".hv", experiment.Hypervisor, tor)
				g.Links = append(g.Links, experiment.Link{A: server, B: server + ".hv"})
				link(server+".hv", tor)
			}
		}
	}
	return g
}

// A fat tree of k=16 has 1024 hosts on 320 switches, with all equal paths, and takes little memory.
func TestFatTree16(t *testing.T) {
	g := fatTree(16, true)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	n, s := build(t, g, Options{})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > 8<<20 {
		t.Errorf("the network takes %d KiB", got>>10)
	}
	if hosts := len(hostsOf(g)); hosts != 1024 || len(n.switches) != 320 || len(n.Ports) != 2*len(g.Links) {
		t.Fatalf("%d hosts, %d switches, %d ports", hosts, len(n.switches), len(n.Ports))
	}
	src, dst := n.id(t, "pod0.tor0.server0"), n.id(t, "pod15.tor7.server7")
	cores := map[NodeID]int{}
	const flows = 6400
	for i := range flows {
		pk := n.packet(src, dst, 66, uint64(i))
		pk.hash = FlowHash(src, dst, uint16(i), 80, TCP)
		n.Send(src, pk)
		n.Queue.Run(n.Queue.Now() + event.Millisecond)
	}
	for _, p := range n.Ports {
		if strings.HasPrefix(n.Name(p.Node), "core") {
			cores[p.Node] += int(p.Counters().In.Packets)
		}
	}
	// 100 flows a core, with a standard deviation of 10.
	for i := range 64 {
		if got := cores[n.id(t, fmt.Sprintf("core%d", i))]; got < 50 || got > 150 {
			t.Errorf("core%d carried %d flows of %d over 64 cores", i, got, flows)
		}
	}
	if len(s.got) != flows {
		t.Errorf("%d of %d arrived", len(s.got), flows)
	}
	conserved(t, n)
}
