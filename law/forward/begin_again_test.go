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

// The controller is killed and begins again, knowing nothing: what switches hold is taken over as it is.
// Frames pass all the time, and nothing is changed.
func TestControllerBeginsAgain(t *testing.T) {
	n := leafSpine(t, 3, 2, 2)
	n.begin(t)
	must(t, n.pairs())
	n.beginAgain(t)
	must(t, n.pairs())
	touched := 0
	n.Told = func(a law.Action) {
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

// beginAgain puts a controller that knows nothing in the place of the one that is there. No switch is connected to it.
func (n *network) beginAgain(t rapid.TB) {
	t.Helper()
	c := n.law.cfg
	c.Key = []byte("another key of its own")
	n.law = mustNew(t, c)
	n.BeginAgain(n.law)
}

// The controller begins again, and the first switch that connects to it was emptied. So nobody knows yet that two of its
// ports are links, and a host is heard there, through spines that still forward. When those connect, the links are found
// and the host is where its own switch sends to it, though it says nothing any more.
func TestControllerBeginsAgain_EmptiedSwitchFirst(t *testing.T) {
	for _, spine := range []law.Switch{101, 102} { // that the host's frame passes
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
				t.Fatalf("the scenario does not come about: %+v", s.Hosts)
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

// A switch that takes its time to carry out its first orders hears no probe before. That no other switch was heard on its
// ports says nothing then, so they are no ports of hosts: a broadcast that comes in there is not its sender's move.
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

// A host moved, and a switch left before it had taken the host's old flow off. Later the others get to the host's new place
// by another way. They must not send to it by the way they had before, which leads by that switch.
func TestHostThatMovedIsNotSentByASwitchThatLeft(t *testing.T) {
	// 1 is linked to 4 by 2, and by 3 and 5. Host 1 moves from 1 to 4, where host 2 is.
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

// settleBut carries out everything but what one switch is told.
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

// pairsQuietly is pairs while the controller may be asked.
func (n *network) pairsQuietly() error {
	n.Events = nil
	return n.pairs()
}
