package forward

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/fabric"
	"weir/law/fabric/modelnet"
)

// The controller is killed and begins again without state: it takes over the flows and groups of the switches as they are.
// Frames pass all the time, and no flow or group is changed.
func TestControllerBeginsAgain(t *testing.T) {
	n := leafSpine(t, 3, 2, 2)
	n.begin(t)
	must(t, n.pairs())
	n.beginAgain(t)
	must(t, n.pairs())
	touched := 0
	n.OnAction = func(a law.Action) {
		switch a.(type) {
		case fabric.SetFlow, fabric.DropFlow, fabric.SetGroup, fabric.DropGroup, fabric.SetMeter:
			touched++
		}
	}
	n.connectAll()
	for range 150 {
		must(t, n.Run(tick))
		must(t, n.pairsQuietly())
	}
	if s := n.law.Status(); touched != 0 || len(s.Hosts) != 6 || len(s.Links) != 6 || !s.Settled {
		t.Errorf("%d changes, %d hosts, %d links, settled %v", touched, len(s.Hosts), len(s.Links), s.Settled)
	}
}

// beginAgain replaces the controller by one without state. No switch is connected to it.
func (n *network) beginAgain(t rapid.TB) {
	t.Helper()
	c := n.law.cfg
	c.Key = []byte("another key of its own")
	n.law = mustNew(t, c)
	n.BeginAgain(n.law)
}

// The controller begins again, and a leaf cannot reach it. The others keep the flows to its hosts until these would be forgotten.
func TestControllerBeginsAgain_SwitchStaysAway(t *testing.T) {
	n := leafSpine(t, 2, 1, 1)
	n.begin(t)
	must(t, n.pairs())
	n.beginAgain(t)
	n.Connect(1)
	n.Connect(101)
	must(t, n.Run(n.law.cfg.Adopt+2*time.Second))
	must(t, n.pairsQuietly())
	must(t, n.Run(n.law.hostIdle()))
	for _, id := range []law.Switch{1, 101} {
		if f, there := n.Switches[id].Flows[hostKey(hostMAC(2))]; there {
			t.Errorf("%v keeps %v", id, f)
		}
	}
	n.Connect(2)
	must(t, n.Run(2*time.Second))
	n.greet()
	must(t, n.Run(time.Second))
	must(t, n.pairs())
}

// The controller begins again, and the first switch that connects to it was emptied. So the controller does not know that two
// of its ports are links, and it learns a host there, through spines that still forward. When those connect, the links are
// found. The host is then at the port where its own switch sends to it, although it sends nothing.
func TestControllerBeginsAgain_EmptiedSwitchFirst(t *testing.T) {
	for _, spine := range []law.Switch{101, 102} { // on the way of the host's frame
		for _, order := range [][]law.Switch{{2, 101, 102}, {101, 102, 2}, {101, 2, 102}} {
			n := leafSpine(t, 2, 2, 1)
			n.begin(t)
			n.Restart(1)
			n.beginAgain(t)
			n.Connect(1)
			must(t, n.Run(1300*time.Millisecond))
			n.Choose = func(k int) int { return min(int(spine)-101, k-1) }
			n.Send(hostMAC(2), modelnet.Ethernet(hostMAC(2), hostMAC(1)))
			must(t, n.Settle())
			if s := n.law.Status(); len(s.Hosts) != 1 || s.Hosts[0].At == at(2, 1).String() {
				t.Fatalf("the scenario does not occur: %+v", s.Hosts)
			}
			for _, id := range order {
				n.Connect(id)
				for range 50 {
					must(t, n.Run(tick))
					must(t, n.loops(nil))
				}
			}
			must(t, n.Run(time.Second))
			s := n.law.Status()
			if len(s.Links) != 4 || !s.Settled || len(s.Hosts) != 1 || s.Hosts[0].At != at(2, 1).String() {
				t.Errorf("by %v, then %v: settled %v, links %v, hosts %v", spine, order, s.Settled, s.Links, s.Hosts)
			}
			n.greet()
			must(t, n.Run(time.Second))
			must(t, n.pairs())
			must(t, n.multipath())
		}
	}
}

// A switch that is slow to carry out its first orders passes no probe to the controller before that. So the lack of probes does
// not make its ports ports of hosts: a broadcast that comes in there does not move its sender.
func TestSlowSwitchIsGivenTime(t *testing.T) {
	n := leafSpine(t, 2, 1, 1)
	for range 30 {
		n.Tick(tick)
		must(t, n.settleBut(1))
	}
	for slow := n.Switches[1]; len(slow.Flows) < len(everywhere()); {
		must(t, n.Deliver(1))
	}
	n.Send(hostMAC(2), modelnet.Ethernet(hostMAC(2), fabric.Broadcast))
	must(t, n.settleBut(1))
	must(t, n.Run(2*time.Second))
	if s := n.law.Status(); len(s.Links) != 2 || s.Counts.Moves != 0 || s.Counts.LinksForged != 0 {
		t.Errorf("links %v, %+v", s.Links, s.Counts)
	}
}

// A host moved, and a switch left before it had removed the host's old flow. Later the others reach the host's new port by
// another way. They must not send to it by the old way, which leads through that switch.
func TestHostThatMovedIsNotSentByASwitchThatLeft(t *testing.T) {
	// 1 is linked to 4 through 2, and through 3 and 5. Host 1 moves from 1 to 4, where host 2 is.
	n := newNetwork(t, testConfig())
	for id, ports := range []int{3, 2, 2, 4, 2} {
		n.AddSwitch(law.Switch(id+1), ports)
	}
	n.link(at(1, 2), at(2, 1))
	n.link(at(2, 2), at(4, 1))
	n.link(at(1, 3), at(3, 1))
	n.link(at(3, 2), at(5, 1))
	n.link(at(5, 2), at(4, 2))
	n.addHost(at(1, 1))
	n.addHost(at(4, 3))
	n.connectAll()
	n.begin(t)
	n.SetLink(at(5, 2), false)
	must(t, n.Run(time.Second))
	must(t, n.pairs())

	n.Hosts[hostMAC(1)] = at(4, 4)
	n.Send(hostMAC(1), modelnet.Ethernet(hostMAC(1), hostMAC(2)))
	must(t, n.settleBut(2))
	n.Disconnect(2)
	must(t, n.Run(time.Second))
	n.SetLink(at(5, 2), true)
	for range 20 {
		n.Tick(tick)
		for {
			for id, s := range n.Switches {
				for len(s.Orders) > 0 {
					must(t, n.Deliver(id))
					must(t, n.loops(nil))
				}
			}
			if len(n.Events) == 0 {
				break
			}
			n.Hear()
		}
	}
	must(t, n.pairs())
}

// settleBut carries out all orders except those of one switch.
func (n *network) settleBut(slow law.Switch) error {
	for busy := true; busy; {
		busy = len(n.Events) > 0
		for len(n.Events) > 0 {
			n.Hear()
		}
		for _, id := range slices.Sorted(maps.Keys(n.Switches)) {
			for id != slow && len(n.Switches[id].Orders) > 0 {
				busy = true
				if err := n.Deliver(id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pairsQuietly is pairs, but frames may go to the controller.
func (n *network) pairsQuietly() error {
	n.Events = nil
	return n.pairs()
}
