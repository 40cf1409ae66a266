package network

import (
	"fmt"
	"math/rand/v2"

	"weir/experiment"
	"weir/sim/event"
)

// jitter is how late a host's NIC lets a packet go, from 0 up to most behind its line, each as likely. The line itself
// goes on: what had to wait behind a late packet leaves with it, in order, as from a token bucket that the kernel's timer
// wakes late. So where frames of a train leave is as ragged as a real host's, and no rate is lost.
//
// Where hosts are on time to the nanosecond, all that is sent keeps step with the bottleneck, and one flow can find the
// last place in a full buffer again and again which another never finds: phase effects (Floyd and Jacobson, "On Traffic
// Phase Effects in Packet-Switched Gateways", Internetworking: Research and Experience 3(3), 1992), whose remedy is a
// random time of up to what the bottleneck takes for a packet.
type jitter struct {
	most   int64 // ns
	last   event.Time
	random *rand.Rand
}

// leaves gives the time at which a packet is gone that the line is done with at the time done.
func (j *jitter) leaves(done event.Time) event.Time {
	j.last = max(j.last, done+event.Time(j.random.Int64N(j.most+1)))
	return j.last
}

// maxJitter is far more than any machine is late.
const maxJitter = 10 * event.Second

// DelayHosts lets hosts' NICs send up to most behind their lines from now on; 0: on time. Each NIC has a source of
// randomness of its own, so that it draws the same whatever others do; guests of one hypervisor share its NIC.
func (n *Network) DelayHosts(seed int64, most event.Time) error {
	if most < 0 || most > maxJitter {
		return fmt.Errorf("hosts that send up to %d ns late: 0 to %d", most, maxJitter)
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
