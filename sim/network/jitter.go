package network

import (
	"fmt"
	"math/rand/v2"

	"weir/experiment"
	"weir/sim/event"
)

// jitter delays the packets of a host's NIC by a uniform time, from 0 to most after the line has sent them. Packets
// that waited behind a late packet leave with it, in order, as from a token bucket that the kernel's timer wakes late.
// So frames leave a host as irregularly as a real one, and no rate is lost.
//
// If all hosts are on time to the nanosecond, they keep step with the bottleneck. Then one flow can find the last place
// in a full buffer again and again, and another flow never does. These are phase effects (Floyd and Jacobson, "On
// Traffic Phase Effects in Packet-Switched Gateways", Internetworking: Research and Experience 3(3), 1992). Their
// remedy is a random time of up to one packet's time at the bottleneck.
type jitter struct {
	most   int64 // ns
	last   event.Time
	random *rand.Rand
}

// leaves returns the time at which a packet leaves the NIC, if the line has sent it at the time done.
func (j *jitter) leaves(done event.Time) event.Time {
	j.last = max(j.last, done+event.Time(j.random.Int64N(j.most+1)))
	return j.last
}

// maxJitter is far above the delay of any real machine.
const maxJitter = 10 * event.Second

// DelayHosts delays the packets of hosts' NICs by up to most ns from now on; 0: no delay. Each NIC has its own source
// of random numbers, so that others do not change what it draws. Guests of one hypervisor share its NIC.
func (n *Network) DelayHosts(seed int64, most event.Time) error {
	if most < 0 || most > maxJitter {
		return fmt.Errorf("jitter of hosts: %d ns is out of range: set 0 to %d", most, maxJitter)
	}
	for i := range n.nodes {
		if n.nodes[i].kind != experiment.Guest {
			continue
		}
		nic := n.NIC(NodeID(i))
		if nic.jitter = nil; most > 0 {
			nic.jitter = &jitter{most: int64(most), random: event.NewRandom(seed, "host "+n.Name(nic.Node))}
		}
	}
	return nil
}
