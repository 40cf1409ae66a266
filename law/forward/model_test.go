package forward

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
	"weir/law/lawtest"
)

func testConfig() Config {
	c := Default()
	c.Key = []byte("sixteen bytes, or more")
	return c
}

// quickConfig has short timeouts, so that a test need not wait.
func quickConfig() Config {
	c := testConfig()
	c.Adopt = 3 * time.Second
	return c
}

func mustNew(t rapid.TB, c Config) *Law {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func hostMAC(i int) fabric.MAC { return fabric.MAC{0x0a, 0, 0, 0, byte(i >> 8), byte(i)} }
func hostIP(i int) fabric.IPv4 { return fabric.IPv4{10, 0, byte(i >> 8), byte(i)} }
func at(s, p int) law.Port     { return law.Port{Switch: law.Switch(s), N: fabric.PortNo(p)} }

// network is a model network with hosts numbered from 1.
type network struct {
	*modelnet.Net
	law   *Law
	hosts int
	links []law.Port // one end of each
}

func newNetwork(t rapid.TB, c Config) *network {
	l := mustNew(t, c)
	if _, bench := t.(*testing.B); bench {
		return &network{Net: modelnet.New(l), law: l}
	}
	return &network{Net: modelnet.New(lawtest.Checked(t, l, mustNew(t, c))), law: l}
}

func (n *network) link(a, b law.Port) {
	n.Link(a, b)
	n.links = append(n.links, a)
}

func (n *network) addHost(p law.Port) {
	n.hosts++
	n.Hosts[hostMAC(n.hosts)] = p
}

// leafSpine makes racks of hosts below leaves, and spines above them. Leaves are 1, 2, ..., spines 101, 102, ...
func leafSpine(t rapid.TB, leaves, spines, hosts int) *network {
	n := newNetwork(t, testConfig())
	for s := range spines {
		n.AddSwitch(law.Switch(101+s), leaves)
	}
	for l := range leaves {
		n.AddSwitch(law.Switch(1+l), hosts+spines)
		for s := range spines {
			n.link(at(1+l, hosts+1+s), at(101+s, 1+l))
		}
		for h := range hosts {
			n.addHost(at(1+l, 1+h))
		}
	}
	n.connectAll()
	return n
}

func (n *network) connectAll() {
	for _, id := range slices.Sorted(maps.Keys(n.Switches)) {
		n.Connect(id)
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// greet has every host send an ARP request for the next one.
func (n *network) greet() {
	for i := 1; i <= n.hosts; i++ {
		n.Send(hostMAC(i), modelnet.ARP(hostMAC(i), hostIP(i), fabric.Broadcast, hostIP(i%n.hosts+1)))
	}
}

// begin runs a network until every host is known.
func (n *network) begin(t rapid.TB) {
	t.Helper()
	must(t, n.Run(2*time.Second))
	n.greet()
	must(t, n.Run(time.Second))
}

// pairs sends a frame between all pairs of hosts. It returns an error for a frame that does not arrive, or arrives elsewhere.
func (n *network) pairs() error {
	for i := 1; i <= n.hosts; i++ {
		for j := 1; j <= n.hosts; j++ {
			if i == j {
				continue
			}
			clear(n.Received)
			frame := modelnet.Ethernet(hostMAC(i), hostMAC(j))
			n.Send(hostMAC(i), frame)
			if len(n.Events) > 0 {
				return fmt.Errorf("host %d to %d: a packet goes to the controller: %+v", i, j, n.Events[0])
			}
			if len(n.Received) != 1 || len(n.Received[hostMAC(j)]) != 1 || !bytes.Equal(n.Received[hostMAC(j)][0], frame) {
				return fmt.Errorf("host %d to %d: arrived at %v", i, j, slices.Collect(maps.Keys(n.Received)))
			}
		}
	}
	return nil
}

// loops searches for loops of frames to every host, and of every pinned flow.
func (n *network) loops(pins []fabric.Tuple) error {
	for i := 1; i <= n.hosts; i++ {
		if err := n.Loop(modelnet.Ethernet(fabric.MAC{0x0e}, hostMAC(i))); err != nil {
			return err
		}
	}
	for _, t := range pins {
		for _, u := range []fabric.Tuple{t, t.Reverse()} {
			to := hostMAC(int(u.Dst[2])<<8 | int(u.Dst[3]))
			if err := n.Loop(modelnet.TCP(fabric.MAC{0x0e}, to, u, 0x10)); err != nil {
				return fmt.Errorf("%v: %w", u, err)
			}
		}
	}
	return nil
}

// multipath compares every switch's group with all shortest next hops, which a slow algorithm finds.
func (n *network) multipath() error {
	for i := 1; i <= n.hosts; i++ {
		to := n.Hosts[hostMAC(i)].Switch
		hops := n.Hops(to)
		for id, s := range n.Switches {
			if _, reached := hops[id]; !reached || id == to || !s.Connected {
				continue
			}
			f, there := s.Flows[hostKey(hostMAC(i))]
			if got, want := slices.Compact(slices.Clone(s.Groups[f.Do.Group])), n.Nearer(id, hops); !there || !slices.Equal(got, want) {
				return fmt.Errorf("%v to host %d: ports %v by %v (there %v), should be %v", id, i, got, f.Do, there, want)
			}
		}
	}
	return nil
}

func TestLeafSpine_AllPairs(t *testing.T) {
	n := leafSpine(t, 4, 2, 7)
	n.begin(t)
	must(t, n.pairs())
	must(t, n.multipath())
	if s := n.law.Status(); len(s.Links) != 8 || len(s.Hosts) != 28 || !s.Settled {
		t.Errorf("%d links, %d hosts, settled %v", len(s.Links), len(s.Hosts), s.Settled)
	}
	// The tables are small: a flow for each host, one more at its own switch, two for each link, and the common ones.
	for id, s := range n.Switches {
		links, groups := 2*2, 3
		own := 7
		if id > 100 {
			links, groups, own = 2*4, 4, 0
		}
		if got, want := len(s.Flows), len(everywhere())+28+own+links; got != want || len(s.Groups) != groups {
			t.Errorf("%v: %d flows, %d groups: should be %d and %d", id, got, len(s.Groups), want, groups)
		}
	}
}

// drawNetwork draws a connected network: a tree of switches, some more links (also second links between two switches), and
// hosts on ports of their own.
func drawNetwork(t *rapid.T) *network {
	n := newNetwork(t, quickConfig())
	switches := rapid.IntRange(2, 7).Draw(t, "switches")
	used := map[int]int{}
	port := func(s int) law.Port { used[s]++; return at(s, used[s]) }
	for s := 2; s <= switches; s++ {
		n.link(port(rapid.IntRange(1, s-1).Draw(t, "parent")), port(s))
	}
	for range rapid.IntRange(0, 8).Draw(t, "more") {
		a, b := rapid.IntRange(1, switches).Draw(t, "a"), rapid.IntRange(1, switches).Draw(t, "b")
		if a != b {
			n.link(port(a), port(b))
		}
	}
	for range rapid.IntRange(2, 6).Draw(t, "hosts") {
		n.addHost(port(rapid.IntRange(1, switches).Draw(t, "at")))
	}
	for s := 1; s <= switches; s++ {
		n.AddSwitch(law.Switch(s), used[s])
	}
	n.connectAll()
	return n
}

// Links are cut, lose one direction, and are restored. Switches leave, come back and are emptied. Hosts move, and flows are
// pinned. Meanwhile orders are carried out one by one, in any order among the switches, and after each of them no frame can
// loop. Once all is restored and settled, all hosts reach each other over all shortest paths. The switches then have the
// flows that a fresh controller would give them.
func TestNoLoopAtAnyMoment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		n.Choose = func(k int) int { return rapid.IntRange(0, k-1).Draw(t, "way") }
		n.begin(t)
		must(t, n.pairs())
		var pins []fabric.Tuple
		for range rapid.IntRange(5, 60).Draw(t, "steps") {
			pins = n.disturb(t, pins)
			n.someOrders(t, pins)
		}
		n.restoreAll(t)
		must(t, n.pairs())
		must(t, n.multipath())
		must(t, n.symmetric(pins))
		for _, p := range pins {
			n.Events = append(n.Events, &fabric.PinDropped{Tuple: p})
		}
		must(t, n.Run(time.Second))
		n.sameAsFresh(t)
	})
}

// disturb makes one change to the network.
func (n *network) disturb(t *rapid.T, pins []fabric.Tuple) []fabric.Tuple {
	ids := slices.Sorted(maps.Keys(n.Switches))
	id := rapid.SampledFrom(ids).Draw(t, "switch")
	switch rapid.SampledFrom([]string{"cut", "halve", "restore", "restore", "leave", "restart", "connect", "connect", "move", "pin", "frame", "time"}).Draw(t, "what") {
	case "cut":
		n.SetLink(rapid.SampledFrom(n.links).Draw(t, "link"), false)
	case "halve": // one direction fails, and no port goes down
		a := rapid.SampledFrom(n.links).Draw(t, "link")
		if rapid.Bool().Draw(t, "back") {
			a, _ = n.Far(a)
		}
		n.Lossy[a] = true
	case "restore":
		a := rapid.SampledFrom(n.links).Draw(t, "link")
		b, _ := n.Far(a)
		delete(n.Lossy, a)
		delete(n.Lossy, b)
		n.SetLink(a, true)
	case "leave":
		n.Disconnect(id)
	case "restart":
		n.Restart(id)
	case "connect":
		if !n.Switches[id].Connected {
			n.Connect(id)
		}
	case "move":
		m := hostMAC(rapid.IntRange(1, n.hosts).Draw(t, "host"))
		s := n.Switches[id]
		to := law.Port{Switch: id, N: fabric.PortNo(len(s.Ports) + 1)}
		s.Ports[to.N] = true
		if s.Connected {
			n.Events = append(n.Events, &fabric.PortChanged{Switch: id, Port: fabric.PortInfo{Port: to.N, Up: true}})
		}
		n.Hosts[m] = to
	case "pin":
		i, j := rapid.IntRange(1, n.hosts).Draw(t, "from"), rapid.IntRange(1, n.hosts).Draw(t, "to")
		p := fabric.Tuple{Proto: 6, Src: hostIP(i), Dst: hostIP(j), SrcPort: uint16(1000 + len(pins)), DstPort: 80}
		n.Events = append(n.Events, &fabric.PinAsked{Tuple: p, IdleSeconds: 60})
		if i != j {
			pins = append(pins, p)
		}
	case "frame":
		i, j := rapid.IntRange(1, n.hosts).Draw(t, "from"), rapid.IntRange(1, n.hosts).Draw(t, "to")
		n.Send(hostMAC(i), modelnet.Ethernet(hostMAC(i), hostMAC(j)))
	case "time":
		n.Tick(time.Duration(rapid.IntRange(1, 20).Draw(t, "ticks")) * tick)
	}
	return pins
}

// someOrders carries out some of the waiting orders and events, and searches for loops after each.
func (n *network) someOrders(t *rapid.T, pins []fabric.Tuple) {
	for range rapid.IntRange(0, 25).Draw(t, "orders") {
		var busy []law.Switch
		for id, s := range n.Switches {
			if len(s.Orders) > 0 {
				busy = append(busy, id)
			}
		}
		slices.Sort(busy)
		switch hear := len(n.Events) > 0; {
		case hear && (len(busy) == 0 || rapid.Bool().Draw(t, "hear")):
			n.Hear()
		case len(busy) > 0:
			must(t, n.Deliver(rapid.SampledFrom(busy).Draw(t, "next")))
			must(t, n.loops(pins))
		default:
			n.Tick(tick)
		}
	}
}

func (n *network) restoreAll(t *rapid.T) {
	clear(n.Lossy)
	for _, a := range n.links {
		n.SetLink(a, true)
	}
	for id, s := range n.Switches {
		if !s.Connected {
			n.Connect(id)
		}
	}
	// Longer than the time before a port that had a link may have hosts.
	must(t, n.Run(4*time.Second))
	n.greet()
	must(t, n.Run(2*time.Second))
	n.greet()
	must(t, n.Run(4*time.Second))
	if !n.law.Settled() {
		t.Fatalf("not settled: %+v", n.law.Status())
	}
}

// sameAsFresh compares the switches with those of a copy of the network, whose switches begin empty under a fresh controller.
func (n *network) sameAsFresh(t *rapid.T) {
	fresh := newNetwork(t, quickConfig())
	fresh.hosts, fresh.Hosts = n.hosts, n.Hosts
	for id, s := range n.Switches {
		fresh.AddSwitch(id, len(s.Ports))
	}
	for _, a := range n.links {
		b, _ := n.Far(a)
		fresh.link(a, b)
	}
	fresh.connectAll()
	fresh.begin(t)
	must(t, fresh.Run(4*time.Second))
	for id, s := range fresh.Switches {
		if got := n.Switches[id]; !maps.Equal(s.Flows, got.Flows) || !maps.EqualFunc(s.Groups, got.Groups, slices.Equal) || !maps.Equal(s.Meters, got.Meters) {
			for k, f := range got.Flows {
				if s.Flows[k] != f {
					t.Logf("%v: %v: %v %v, fresh %v", id, k, f.Kind, f.Do, s.Flows[k].Do)
				}
			}
			for k, f := range s.Flows {
				if _, there := got.Flows[k]; !there {
					t.Logf("%v: %v: missing %v", id, k, f.Do)
				}
			}
			t.Fatalf("%v differs from a fresh one: %d flows, %d; groups %v, %v", id, len(got.Flows), len(s.Flows), got.Groups, s.Groups)
		}
	}
}

// symmetric follows each pinned flow in both directions, frame by frame.
func (n *network) symmetric(pins []fabric.Tuple) error {
	for _, p := range pins {
		from, to := hostMAC(int(p.Src[2])<<8|int(p.Src[3])), hostMAC(int(p.Dst[2])<<8|int(p.Dst[3]))
		there, err1 := n.walk(from, to, p)
		back, err2 := n.walk(to, from, p.Reverse())
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%v: %w, %w", p, err1, err2)
		}
		slices.Reverse(back)
		if n.law.Path(p) != nil && !slices.Equal(there, back) {
			return fmt.Errorf("%v: by %v, back by %v", p, there, back)
		}
	}
	return nil
}

// walk returns the ports that a segment passes: where it enters and where it leaves each switch.
func (n *network) walk(from, to fabric.MAC, p fabric.Tuple) (way []law.Port, err error) {
	at := n.Hosts[from]
	for range len(n.Switches) + 1 {
		outs, _ := n.Switches[at.Switch].Look(at.N, modelnet.TCP(from, to, p, 0x10), false)
		if len(outs) == 0 {
			return way, fmt.Errorf("lost at %v", at)
		}
		out := law.Port{Switch: at.Switch, N: outs[n.Choose(len(outs))]}
		way = append(way, at, out)
		far, inside := n.Far(out)
		if !inside {
			if out != n.Hosts[to] {
				return way, fmt.Errorf("ends at %v", out)
			}
			return way, nil
		}
		at = far
	}
	return way, fmt.Errorf("the frame loops: %v", way)
}

// The law keeps no borrowed memory, and survives any events.
func TestKeepsNothing(t *testing.T) {
	lawtest.Keeps(t, func() law.Law { return mustNew(t, quickConfig()) })
}
