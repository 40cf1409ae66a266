package network

import (
	"fmt"
	"math/rand/v2"

	"weir/experiment"
	"weir/sim/event"
)

// jitter delays the packets of a port by a uniform time, from 0 to most after the line has sent them. Packets
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
// of random numbers, so that others do not change what it draws. Guests of one hypervisor share its NIC. It returns an
// error if most is out of range.
func (n *Network) DelayHosts(seed int64, most event.Time) error {
	if err := checkJitter("hosts", most); err != nil {
		return err
	}
	for i := range n.nodes {
		if n.nodes[i].kind == experiment.Guest {
			nic := n.NIC(NodeID(i))
			nic.delayUpTo(seed, "host "+n.Name(nic.Node), most)
		}
	}
	return nil
}

// DelaySwitches does the same with the ports of switches whose links lead to other switches. A line from a switch that
// is busy all the time is as regular as an exact host, and undoes the delays of hosts behind it.
func (n *Network) DelaySwitches(seed int64, most event.Time) error {
	if err := checkJitter("switches", most); err != nil {
		return err
	}
	for _, p := range n.Ports {
		if n.nodes[p.Node].kind == experiment.Switch && n.nodes[p.Peer].kind == experiment.Switch {
			p.delayUpTo(seed, "port "+p.Name, most)
		}
	}
	return nil
}

func checkJitter(of string, most event.Time) error {
	if most < 0 || most > maxJitter {
		return fmt.Errorf("jitter of %s: %d ns is out of range: set 0 to %d", of, most, maxJitter)
	}
	return nil
}

// delayUpTo gives a port a jitter of up to most ns, with random numbers of this name; 0: none.
func (p *Port) delayUpTo(seed int64, name string, most event.Time) {
	if p.jitter = nil; most > 0 {
		p.jitter = &jitter{most: int64(most), random: event.NewRandom(seed, name)}
	}
}
