package network

import (
	"math/rand/v2"

	"weir/experiment"
	"weir/sim/event"
)

// jitter is the time that hosts need until a packet is ready for the line, from 0 up to most, each as likely. Real
// hosts answer a little later each time. Where they do not, all that is sent keeps step with the bottleneck, and one
// flow can find the last place in a full buffer again and again which another never finds: phase effects (Floyd and
// Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", Internetworking: Research and Experience 3(3),
// 1992). Their remedy is this one, with what the bottleneck takes for a packet as the most; ns-2 calls it overhead_.
//
// A packet is drawn for as the host's NIC takes it, and begins then at earliest; before what was sent earlier it does
// not begin. While the line is busy for longer than that, no time is lost.
type jitter struct {
	most  int64        // ns
	hosts []*rand.Rand // by NodeID; nil: no host
}

// draw gives the time of one packet of that host.
func (j *jitter) draw(host NodeID) event.Time { return event.Time(j.hosts[host].Int64N(j.most + 1)) }

// delaySenders gives the NICs of hosts a jitter. Each host has a source of randomness of its own, so that it draws the
// same whatever others do. Those behind a hypervisor share its NIC, and the order there.
func (n *Network) delaySenders(seed int64, most event.Time) {
	if most == 0 {
		return
	}
	n.jitter = &jitter{most: int64(most), hosts: make([]*rand.Rand, len(n.nodes))}
	for i := range n.nodes {
		if n.nodes[i].kind == experiment.Guest {
			n.jitter.hosts[i] = event.NewRandom(seed, "host "+n.Name(NodeID(i)))
			n.NIC(NodeID(i)).jitter = n.jitter
		}
	}
}
