package forward

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// probesFrom returns the probes that a law sends from a port.
func (n *network) probesFrom(t *testing.T, p law.Port) (frames [][]byte) {
	t.Helper()
	n.OnAction = func(a law.Action) {
		if o, ok := a.(fabric.PacketOut); ok && o.Switch == p.Switch && slices.Equal(o.Ports, []fabric.PortNo{p.N}) {
			if head, _ := readHeader(o.Frame); head.kind == typeLLDP {
				frames = append(frames, slices.Clone(o.Frame))
			}
		}
	}
	must(t, n.Run(time.Second))
	n.OnAction = nil
	if len(frames) == 0 {
		t.Fatalf("no probe from %v", p)
	}
	return frames
}

// Guests on 1:1 and 2:1 try to forge a link between their ports.
func TestForgedLinks(t *testing.T) {
	for _, row := range []struct {
		what  string
		forge func(frames [][]byte) []byte
	}{
		{"another key", func([][]byte) []byte {
			return makeProbe([]byte("the guest's own key"), at(2, 1), fabric.MAC{2}, 77)
		}},
		{"the port changed", func(f [][]byte) []byte {
			return bytes.Replace(f[len(f)-1], []byte("0000000000000001"), []byte("0000000000000002"), 1)
		}},
		{"sent back where it came from", func(f [][]byte) []byte { return f[len(f)-1] }},
		{"cut short", func(f [][]byte) []byte { return f[0][:40] }},
	} {
		n := leafSpine(t, 2, 1, 1)
		n.begin(t)
		frame := row.forge(n.probesFrom(t, at(1, 1)))
		n.Inject(at(1, 1), frame)
		must(t, n.Run(time.Second))
		if s := n.law.Status(); len(s.Links) != 2 || s.Counts.LinksForged != 1 {
			t.Errorf("%s: %d links, %d refused: should be 2 and 1", row.what, len(s.Links), s.Counts.LinksForged)
		}
		must(t, n.pairs())
	}
}

// Two guests that pass each other the probes of their ports make no link, because hosts were learnt there. If no host was learnt
// yet, an old probe makes no link either.
func TestRelayedLinks(t *testing.T) {
	n := leafSpine(t, 2, 1, 2)
	n.begin(t)
	for range 3 {
		one, two := n.probesFrom(t, at(1, 1)), n.probesFrom(t, at(2, 1))
		n.Inject(at(2, 1), one[len(one)-1])
		n.Inject(at(1, 1), two[len(two)-1])
		must(t, n.Settle())
	}
	if s := n.law.Status(); len(s.Links) != 2 || s.Counts.LinksForged != 6 {
		t.Errorf("%d links, %d refused: should be 2 and 6", len(s.Links), s.Counts.LinksForged)
	}

	n = leafSpine(t, 2, 1, 2)
	must(t, n.Run(2*time.Second))
	one, two := n.probesFrom(t, at(1, 1)), n.probesFrom(t, at(2, 1))
	must(t, n.Run(10*time.Second))
	n.Inject(at(2, 1), one[0])
	n.Inject(at(1, 1), two[0])
	must(t, n.Settle())
	if s := n.law.Status(); len(s.Links) != 2 || s.Counts.LinksForged != 2 {
		t.Errorf("stale: %d links, %d refused: should be 2 and 2", len(s.Links), s.Counts.LinksForged)
	}
}

// A link that carries frames in one direction only is not used.
func TestOneWayLink(t *testing.T) {
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, 2)
	n.AddSwitch(2, 2)
	n.connectAll()
	for range 20 {
		frames := n.probesFrom(t, at(1, 1))
		n.Inject(at(2, 1), frames[len(frames)-1])
		must(t, n.Settle())
	}
	if s := n.law.Status(); len(s.Links) != 0 {
		t.Errorf("links: %v", s.Links)
	}
}

// A link was cut, and carries frames in one direction only when its ports are up again. It stays out of every group until both
// directions work: frames sent there would be lost, and a switch cannot see that at its own port. Its ports are not used
// for hosts either: a broadcast sent there would enter the other switch, and its sender would seem to have moved.
func TestMendedLinkStaysOutUntilBothWaysAreHeard(t *testing.T) {
	for _, lossy := range []law.Port{at(1, 2), at(101, 1)} { // whose frames are lost
		n := leafSpine(t, 2, 2, 1)
		n.begin(t)
		n.SetLink(at(1, 2), false)
		must(t, n.Run(time.Second))
		n.Lossy[lossy] = true
		n.SetLink(at(1, 2), true)
		must(t, n.Run(20*time.Second))
		for id, s := range n.Switches {
			for g, ports := range s.Groups {
				if id == 1 && slices.Contains(ports, 2) || id == 101 && slices.Contains(ports, 1) {
					t.Errorf("frames of %v are lost, and %v sends group %#x by %v", lossy, id, g, ports)
				}
			}
		}
		for i := 1; i <= n.hosts; i++ {
			n.Send(hostMAC(i), modelnet.Ethernet(hostMAC(i), fabric.Broadcast))
		}
		must(t, n.Settle())
		if s := n.law.Status(); len(s.Links) != 3 || len(s.Hosts) != 2 || s.Counts.Moves != 0 {
			t.Errorf("%d links, %d hosts, %d moves: should be 3, 2 and none", len(s.Links), len(s.Hosts), s.Counts.Moves)
		}
		must(t, n.pairs())
		delete(n.Lossy, lossy)
		must(t, n.Run(2*time.Second))
		must(t, n.pairs())
		must(t, n.multipath())
	}
}

// A link was cut and is back, but its probes come 20 s late, as on a busy machine. Until then a broadcast must not cross it.
// Otherwise the sender would seem to be behind the link, and the probes would be taken for forged ones.
func TestMendedLinkIsFoundByLateProbes(t *testing.T) {
	n := leafSpine(t, 2, 2, 1)
	n.begin(t)
	n.SetLink(at(1, 2), false)
	must(t, n.Run(time.Second))
	n.Lossy[at(1, 2)], n.Lossy[at(101, 1)] = true, true
	n.SetLink(at(1, 2), true)
	must(t, n.Run(20*time.Second))
	clear(n.Lossy)
	for i := 1; i <= n.hosts; i++ {
		n.Send(hostMAC(i), modelnet.Ethernet(hostMAC(i), fabric.Broadcast))
		n.Send(hostMAC(i), modelnet.Ethernet(fabric.MAC{0x0a, 1, 0, 0, 0, byte(i)}, fabric.Broadcast)) // a new host
	}
	must(t, n.Settle())
	must(t, n.Run(2*time.Second))
	if s := n.law.Status(); len(s.Links) != 4 || s.Counts.Moves != 0 || s.Counts.LinksForged != 0 {
		t.Errorf("%d links, %d moves, %d probes refused: should be 4, none and none", len(s.Links), s.Counts.Moves, s.Counts.LinksForged)
	}
	must(t, n.pairs())
}

// A link that no frame crosses is removed after LinkAge, even if both its ports are up.
func TestSilentLinkAges(t *testing.T) {
	n := leafSpine(t, 2, 2, 1)
	n.begin(t)
	n.Link(at(1, 2), at(99, 1)) // the other end does not exist
	n.Link(at(101, 1), at(99, 2))
	n.AddSwitch(99, 2)
	must(t, n.Run(n.law.cfg.LinkAge+2*tick))
	if s := n.law.Status(); len(s.Links) != 3 {
		t.Errorf("%d links: should be 3", len(s.Links))
	}
	must(t, n.pairs())
}

// In a tree of three tiers all switches hash alike. The flows that the first tier sends to one switch of the second use all
// switches of the third. Both directions of a flow take the same way.
func TestSpreadOverTiers(t *testing.T) {
	// Two pods, each an edge switch with two switches above it. Each pair of these has a core above it. Edges are 1 and 2,
	// aggregation switches 11 to 22, cores 31 to 34.
	n := newNetwork(t, testConfig())
	for _, id := range []int{1, 2, 11, 12, 21, 22, 31, 32, 33, 34} {
		n.AddSwitch(law.Switch(id), 3)
	}
	for pod := 1; pod <= 2; pod++ {
		for a := 1; a <= 2; a++ {
			n.link(at(pod, a), at(10*pod+a, 1))
			for c := 1; c <= 2; c++ {
				n.link(at(10*pod+a, 1+c), at(30+2*(a-1)+c, pod))
			}
		}
		n.addHost(at(pod, 3))
	}
	n.connectAll()
	n.begin(t)
	must(t, n.multipath())
	used := map[law.Switch]int{}
	core := func(from, to int, hash int) law.Switch {
		n.Choose = func(k int) int { return hash % 16 % k } // buckets in turn, for 16 values of the hash
		way, err := n.walk(hostMAC(from), hostMAC(to), fabric.Tuple{Proto: 6, Src: hostIP(from), Dst: hostIP(to)})
		must(t, err)
		return way[4].Switch // in and out at the edge and above it, then the core
	}
	for hash := range 16 {
		c := core(1, 2, hash)
		used[c]++
		if back := core(2, 1, hash); back != c {
			t.Errorf("hash %d: by %v, back by %v", hash, c, back)
		}
	}
	for id := law.Switch(31); id <= 34; id++ {
		if used[id] != 4 {
			t.Errorf("core %d has %d of 16 flows, should have 4: %v", id, used[id], used)
		}
	}
}

func TestHostLimits(t *testing.T) {
	c := testConfig()
	c.HostsPerPort, c.HostsMax = 5, 8
	n := newNetwork(t, c)
	n.AddSwitch(1, 4)
	n.connectAll()
	must(t, n.Run(2*time.Second))
	send := func(port int, from, to int) {
		for i := from; i <= to; i++ {
			n.Inject(at(1, port), modelnet.Ethernet(hostMAC(i), fabric.Broadcast))
		}
		must(t, n.Settle())
	}
	send(1, 1, 20)
	if s := n.law.Status(); len(s.Hosts) != 5 || s.Counts.HostsRefused < 15 {
		t.Errorf("one port: %d hosts, %d refused: should be 5 and at least 15", len(s.Hosts), s.Counts.HostsRefused)
	}
	send(2, 101, 120)
	send(3, 201, 220)
	s := n.law.Status()
	if len(s.Hosts) != 8 {
		t.Errorf("in all: %d hosts, should be 8", len(s.Hosts))
	}
	if got, most := len(n.Switches[1].Flows), len(everywhere())+2*8; got != most {
		t.Errorf("%d flows, should be %d", got, most)
	}
	for _, m := range []fabric.MAC{{}, {1, 2, 3, 4, 5, 6}} { // none, a group
		n.Inject(at(1, 4), modelnet.Ethernet(m, fabric.Broadcast))
		must(t, n.Settle())
	}
	if got := n.law.Status(); len(got.Hosts) != 8 || got.Counts.HostsRefused != s.Counts.HostsRefused {
		t.Errorf("an address that no host has was learnt: %v", got.Hosts)
	}
}

// A host that claims more and more addresses gets eight. A host that asks on behalf of others gets none.
func TestAddressLimits(t *testing.T) {
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, 2)
	n.connectAll()
	must(t, n.Run(2*time.Second))
	for i := range 50 {
		n.Inject(at(1, 1), modelnet.ARP(hostMAC(1), hostIP(i+1), fabric.Broadcast, hostIP(999)))
	}
	must(t, n.Settle())
	forged := modelnet.ARP(hostMAC(3), hostIP(70), fabric.Broadcast, hostIP(999))
	m := hostMAC(2)
	copy(forged[6:], m[:]) // another sender in the Ethernet header
	n.Inject(at(1, 2), forged)
	must(t, n.Settle())
	s := n.law.Status()
	if len(s.Hosts) != 2 || len(s.Hosts[0].Addresses) != 8 || len(s.Hosts[1].Addresses) != 0 {
		t.Errorf("%+v", s.Hosts)
	}
}

// A port that floods is limited; others are not.
func TestFloodLimit(t *testing.T) {
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, 3)
	for p := 1; p <= 3; p++ {
		n.addHost(at(1, p))
	}
	n.connectAll()
	must(t, n.Run(2*time.Second))
	for range 1000 {
		n.Inject(at(1, 1), modelnet.Ethernet(hostMAC(1), fabric.Broadcast))
	}
	must(t, n.Settle())
	floods := slices.DeleteFunc(n.Received[hostMAC(3)], func(f []byte) bool { return fabric.MAC(f[:6]) != fabric.Broadcast })
	if len(floods) != 100 {
		t.Errorf("%d of 1000 arrived: should be the burst of 100", len(floods))
	}
	clear(n.Received)
	n.Inject(at(1, 2), modelnet.Ethernet(hostMAC(2), fabric.Broadcast))
	must(t, n.Settle())
	if got := len(n.Received[hostMAC(3)]); got != 1 {
		t.Errorf("another port: %d arrived, should be 1", got)
	}
}

// A request for a known host is answered at the port where it is asked, and no other host receives it.
func TestARPAnswered(t *testing.T) {
	n := leafSpine(t, 2, 1, 2)
	n.begin(t)
	clear(n.Received)
	n.Send(hostMAC(1), modelnet.ARP(hostMAC(1), hostIP(1), fabric.Broadcast, hostIP(4)))
	must(t, n.Settle())
	want := modelnet.ARP(hostMAC(4), hostIP(4), hostMAC(1), hostIP(1))
	if len(n.Received) != 1 || len(n.Received[hostMAC(1)]) != 1 || !bytes.HasPrefix(n.Received[hostMAC(1)][0], want) {
		t.Errorf("arrived: %x, should be %x", n.Received, want)
	}
	// Its port is down: the controller does not answer for it, but floods the request.
	n.Switches[2].Ports[2] = false
	n.Events = append(n.Events, &fabric.PortChanged{Switch: 2, Port: fabric.PortInfo{Port: 2}})
	must(t, n.Settle())
	clear(n.Received)
	n.Send(hostMAC(1), modelnet.ARP(hostMAC(1), hostIP(1), fabric.Broadcast, hostIP(4)))
	must(t, n.Settle())
	if len(n.Received[hostMAC(1)]) != 0 || len(n.Received[hostMAC(3)]) != 1 {
		t.Errorf("answered for a host that is down: %x", n.Received)
	}
}

// A frame for an unknown host goes once to every other port of a host, and to no switch.
func TestUnknownIsFloodedOnce(t *testing.T) {
	n := leafSpine(t, 3, 2, 2)
	n.begin(t)
	clear(n.Received)
	n.Send(hostMAC(1), modelnet.Ethernet(hostMAC(1), fabric.MAC{0x0e, 1}))
	must(t, n.Settle())
	for i := 2; i <= n.hosts; i++ {
		if got := len(n.Received[hostMAC(i)]); got != 1 {
			t.Errorf("host %d got %d", i, got)
		}
	}
	if len(n.Received[hostMAC(1)]) != 0 {
		t.Error("it came back")
	}
}

// SYN, FIN and RST are copied once, where they enter the fabric; other segments are not.
func TestCopies(t *testing.T) {
	n := leafSpine(t, 2, 1, 1)
	n.begin(t)
	flow := fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(2), SrcPort: 1000, DstPort: 80}
	for _, flags := range []byte{0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x14, 0x29} {
		n.Send(hostMAC(1), modelnet.TCP(hostMAC(1), hostMAC(2), flow, flags))
	}
	clear(n.Received)
	must(t, n.Settle())
	if c := n.law.Status().Counts; c.SYN != 2 || c.FIN != 2 || c.RST != 2 {
		t.Errorf("%d SYN, %d FIN, %d RST: should be 2 of each", c.SYN, c.FIN, c.RST)
	}
}

// A spine that was emptied gets all of its flows again when it is back. Leaves must not send to it before.
func TestSwitchEmptied(t *testing.T) {
	n := leafSpine(t, 3, 2, 2)
	n.begin(t)
	before := len(n.Switches[101].Flows)
	n.Restart(101)
	must(t, n.Settle())
	must(t, n.pairs())
	n.Connect(101)
	must(t, n.Run(time.Second))
	must(t, n.pairs())
	must(t, n.multipath())
	if got := len(n.Switches[101].Flows); got != before {
		t.Errorf("%d flows, before %d", got, before)
	}
}

// A pinned flow and its acknowledgements pass the same links. It moves when its spine leaves. It stays while one
// direction has packets, and ends when a switch reports that both were idle.
func TestPinned(t *testing.T) {
	n := leafSpine(t, 2, 4, 2)
	n.begin(t)
	flow := fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(3), SrcPort: 1000, DstPort: 80}
	n.Events = append(n.Events, &fabric.PinAsked{Tuple: flow, IdleSeconds: 30})
	must(t, n.Settle())
	n.Choose = func(k int) int { return k - 1 }
	must(t, n.symmetric([]fabric.Tuple{flow}))
	path := n.law.Path(flow)
	if len(path) != 3 {
		t.Fatalf("path %v", path)
	}
	n.Restart(path[1])
	must(t, n.Settle())
	other := n.law.Path(flow.Reverse())
	if len(other) != 3 || other[1] == path[1] {
		t.Fatalf("path %v after %v failed", other, path[1])
	}
	must(t, n.symmetric([]fabric.Tuple{flow}))
	expire := func(direction fabric.Tuple) {
		key := pinned(direction, 0, 0).FlowKey
		delete(n.Switches[1].Flows, key)
		n.Events = append(n.Events, &fabric.Expired{Switch: 1, Flow: key})
		must(t, n.Settle())
	}
	for range 2 { // the direction without packets is placed again with each path, and expires again
		expire(flow.Reverse())
		if got := n.pinnedFlows(); got != 5 || n.law.Path(flow) == nil {
			t.Fatalf("the other direction is in use: %d pinned flows, want 5; path %v", got, n.law.Path(flow))
		}
		last := n.law.Path(flow)[1]
		n.Connect(path[1])
		must(t, n.Run(time.Second))
		n.Restart(last)
		must(t, n.Settle())
		path = []law.Switch{0, last}
		if got := n.pinnedFlows(); got != 6 {
			t.Errorf("on a new path: %d pinned flows, want 6", got)
		}
	}
	expire(flow.Reverse())
	expire(flow)
	if got := n.pinnedFlows(); got != 0 || len(n.law.pins) != 0 {
		t.Errorf("%d pinned flows, %d pins", got, len(n.law.pins))
	}
}

// pinnedFlows counts the flows of pins on all switches.
func (n *network) pinnedFlows() (sum int) {
	for _, s := range n.Switches {
		for k := range s.Flows {
			if k.Table == tablePinned && k.Match != (fabric.Match{}) {
				sum++
			}
		}
	}
	return sum
}

// A pin that is asked for while routes must wait is placed when they have changed. The old ones lead over a link that is gone.
func TestPinned_WhileRoutesWait(t *testing.T) {
	n := leafSpine(t, 2, 2, 1)
	n.begin(t)
	n.AddSwitch(9, 1)
	n.pretend(9)
	n.Connect(9)
	must(t, n.Run(100*time.Millisecond))
	n.SetLink(at(1, 2), false)
	n.SetLink(at(1, 3), false)
	must(t, n.Run(100*time.Millisecond))
	if !n.law.findingLinks() {
		t.Fatal("the scenario does not occur")
	}
	flow := fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(2), SrcPort: 1000, DstPort: 80}
	n.Events = append(n.Events, &fabric.PinAsked{Tuple: flow, IdleSeconds: 30})
	must(t, n.Settle())
	n.SetLink(at(1, 2), true)
	must(t, n.Run(2*n.law.cfg.TakeOver))
	if path := n.law.Path(flow); len(path) != 3 {
		t.Errorf("path %v", path)
	}
}

func TestPinLimit(t *testing.T) {
	n := leafSpine(t, 2, 1, 1)
	n.begin(t)
	for i := range 2000 {
		n.Events = append(n.Events, &fabric.PinAsked{IdleSeconds: 30,
			Tuple: fabric.Tuple{Proto: 6, Src: hostIP(1), Dst: hostIP(2), SrcPort: uint16(i), DstPort: 80}})
	}
	must(t, n.Settle())
	if s := n.law.Status(); len(s.Pins) != 1024 || s.Counts.PinsRefused != 976 {
		t.Errorf("%d pins, %d refused", len(s.Pins), s.Counts.PinsRefused)
	}
}
