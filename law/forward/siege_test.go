package forward

import (
	"testing"
	"time"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// A peer that connects again and again, each time as another switch, does not keep out later switches. A switch that had a link
// is not forgotten to make room, because it may still forward.
func TestNamesOfSwitches(t *testing.T) {
	c := testConfig()
	c.SwitchesMax = 4
	n := newNetwork(t, c)
	n.AddSwitch(1, 3)
	n.AddSwitch(2, 3)
	n.link(at(1, 3), at(2, 3))
	n.addHost(at(1, 1))
	n.addHost(at(2, 1))
	n.connectAll()
	n.begin(t)
	n.Disconnect(2)
	for id := law.Switch(100); id < 200; id++ {
		n.AddSwitch(id, 1)
		n.Connect(id)
		must(t, n.Run(10*time.Millisecond))
		n.Disconnect(id)
		must(t, n.Settle())
	}
	s := n.law.Status()
	if len(s.Switches) != 4 || s.Counts.SwitchesRefused != 0 || len(n.law.groupIDs) > 4 {
		t.Errorf("%d switches, %d refused, %d group numbers: should be 4, none, at most 4", len(s.Switches), s.Counts.SwitchesRefused, len(n.law.groupIDs))
	}
	n.Connect(2)
	must(t, n.Run(2*time.Second))
	must(t, n.pairs())
	// Connected switches are not forgotten to make room.
	for id := law.Switch(300); id < 303; id++ {
		n.AddSwitch(id, 1)
		n.Connect(id)
	}
	must(t, n.Settle())
	if s := n.law.Status(); len(s.Switches) != 4 || s.Counts.SwitchesRefused != 1 {
		t.Errorf("%d switches, %d refused: should be 4 and 1", len(s.Switches), s.Counts.SwitchesRefused)
	}
}

// pretend has a switch say that it was part of a fabric: its port 1 had a link, and it has a group.
func (n *network) pretend(id law.Switch) {
	s := n.Switches[id]
	s.Groups[fabric.GroupBase|uint32(id)] = []fabric.PortNo{1}
	s.Flows[fromLink(1).FlowKey] = fromLink(1)
}

// A switch that joins again and again, each time with a link that nobody finds, delays changes of routes by seconds, and not for
// as long as it likes.
func TestTakeOverIsBounded(t *testing.T) {
	n := leafSpine(t, 2, 2, 1)
	n.begin(t)
	must(t, n.pairs())
	n.AddSwitch(9, 1)
	joins := func() {
		n.pretend(9)
		n.Connect(9)
		must(t, n.Run(2*time.Second))
		n.Disconnect(9)
	}
	joins()
	n.Restart(101) // all traffic must take the other spine
	n.Disconnect(101)
	for waited := time.Duration(0); n.pairsQuietly() != nil; waited += 2 * time.Second {
		if waited > 4*n.law.cfg.TakeOver {
			t.Fatal("routes do not change while a switch joins again and again")
		}
		joins()
	}
}

// Names of switches that only say that they had links are forgotten after their hosts, so they do not keep out others for good.
func TestNamesOfSwitches_Claims(t *testing.T) {
	c := testConfig()
	c.SwitchesMax, c.HostIdle = 4, 5
	n := newNetwork(t, c)
	for id := law.Switch(100); id < 104; id++ {
		n.AddSwitch(id, 1)
		n.pretend(id)
		n.Connect(id)
		must(t, n.Run(10*time.Millisecond))
		n.Disconnect(id)
	}
	n.AddSwitch(1, 1)
	n.Connect(1)
	must(t, n.Run(6*time.Second))
	if got := n.law.counts.SwitchesRefused; got != 1 {
		t.Errorf("%d refused while the others may still forward, want 1", got)
	}
	n.Disconnect(1)
	n.Connect(1)
	must(t, n.Settle())
	if d := n.law.switches[1]; d == nil || !d.joined {
		t.Error("four names without a switch behind them keep out a switch")
	}
}

// Hosts that are forgotten leave nothing behind, although many come and go at one port.
func TestForgottenHostsLeaveNothing(t *testing.T) {
	n := leafSpine(t, 2, 1, 2)
	n.begin(t)
	for round := range 5 {
		for i := range 10 {
			m := fabric.MAC{0x0a, 1, 0, 0, byte(round), byte(i)}
			n.Hosts[m] = at(1, 1)
			n.Send(m, modelnet.ARP(m, fabric.IPv4{10, 9, byte(round), byte(i)}, fabric.Broadcast, hostIP(1)))
			must(t, n.Run(time.Second))
			key := fromHost(m, 1, 0).FlowKey
			delete(n.Switches[1].Flows, key)
			n.Events = append(n.Events, &fabric.Expired{Switch: 1, Flow: key})
			delete(n.Hosts, m)
			must(t, n.Run(time.Second))
		}
	}
	if n.law.counts.Moves != 0 || len(n.law.hosts) != 4 {
		t.Fatalf("the scenario does not occur: %d hosts, %+v", len(n.law.hosts), n.law.counts)
	}
	if left := len(n.law.clearing); left != 0 {
		t.Errorf("%d hosts that are forgotten are still being cleared", left)
	}
}

// A switch that adds ports without end gets a limited number.
func TestPortLimit(t *testing.T) {
	n := newNetwork(t, testConfig())
	n.AddSwitch(1, 2)
	n.connectAll()
	must(t, n.Settle())
	for p := fabric.PortNo(1); p <= 5000; p++ {
		n.law.Step(n.Now, &fabric.PortChanged{Switch: 1, Port: fabric.PortInfo{Port: 10 * p, Up: true}}, nil)
	}
	if got, refused := len(n.law.switches[1].ports), n.law.counts.PortsRefused; got != PortsMax || refused != 5000-PortsMax+2 {
		t.Errorf("%d ports, %d refused: should be %d and %d", got, refused, PortsMax, 5000-PortsMax+2)
	}
}

// A switch may report any flow with Weir's cookie: also one with ports that it lacks, or one that this controller never makes.
func TestStrangeFlowsAreNotAdopted(t *testing.T) {
	const there, not = fabric.PortNo(1), fabric.PortNo(99)
	for _, kind := range []fabric.Kind{fabric.HostHere, fabric.HostThere, fabric.Source, fabric.Link, fabric.Pinned, fabric.Pass, 200} {
		for _, ports := range [][2]fabric.PortNo{{there, not}, {not, there}, {not, not}, {0, not}, {not, 0}, {0, 0}} {
			f := fabric.Flow{Kind: kind, Do: fabric.Do{Out: ports[1]}}
			f.Match = fabric.Match{InPort: ports[0], EthSrc: hostMAC(1), EthDst: hostMAC(2)}
			l := mustNew(t, testConfig())
			l.Step(0, &fabric.Joined{Switch: 1, Ports: []fabric.PortInfo{{Port: there, Up: true}}, Found: fabric.State{Flows: []fabric.Flow{f}}}, nil)
			for _, h := range l.hosts {
				if h.at != at(1, int(there)) {
					t.Errorf("%v from %d to %d: a host at %v, where there is no port", kind, ports[0], ports[1], h.at)
				}
			}
		}
	}
}
