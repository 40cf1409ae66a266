package network

import (
	"slices"

	"weir/sim/event"
)

// Guard is between hosts and the network: a hypervisor's virtual switch, or the same in the driver of a host's NIC. It
// may change packets, and their Bytes too. The verdicts are those of a Law.
//
// Several guards form a chain. The first is next to the host: it sees a packet from the host first, and a packet to the
// host last. If a guard injects or returns packets while it looks at one, they continue directly behind that one.
type Guard interface {
	// Out sees the packets that a host sends before the host's port does. The port drops a packet that Out drops, by
	// its law.
	Out(host NodeID, pk *Packet, now event.Time) Verdict
	// In sees the packets that arrived before the host does. A packet that In drops was meant for the guard, and ends
	// there.
	In(host NodeID, pk *Packet, now event.Time) Verdict
}

// Arrivals counts packets for a host behind guards. In = Delivered + Ended + Taken at any time.
type Arrivals struct {
	In        Count // came from the host's link, or were injected
	Own       Count // of In: injected by guards
	Delivered Count // handed to the host
	Ended     Count // ended at a guard
	Taken     Count // with guards now
}

// end frees a packet that ends at a guard.
func (a *Arrivals) end(n *Network, pk *Packet) {
	a.Ended.add(pk)
	n.Free(pk)
}

// SetGuards puts guards between all hosts and their links, and replaces earlier ones. Without arguments it removes
// them. It panics if there are more than 64 guards, or one twice.
func (n *Network) SetGuards(guards ...Guard) {
	if len(guards) > mostLaws {
		panic("network: more than 64 guards")
	}
	n.guards = slices.Clone(guards)
	for i, g := range guards {
		if slices.Index(guards, g) != i {
			panic("network: the same guard is given twice")
		}
	}
	if len(guards) > 0 && n.arrivals == nil {
		n.arrivals = make([]Arrivals, len(n.nodes))
	}
}

// Guards returns the guards, from the hosts to their links. The caller may append to the list.
func (n *Network) Guards() []Guard { return slices.Clip(n.guards) }

// Arrivals returns the counters of packets for a host. They begin with the first SetGuards.
func (n *Network) Arrivals(host NodeID) Arrivals {
	if n.arrivals == nil {
		return Arrivals{}
	}
	return n.arrivals[host]
}

// InjectOut sends a guard's own packet (NewPacket) as if the host had sent it. The packet passes the guards after by,
// towards the link, or all guards if by is nil.
func (n *Network) InjectOut(by Guard, host NodeID, pk *Packet) {
	n.inject(putting{pk: pk, p: n.nodes[host].uplink, by: slices.Index(n.guards, by) + 1, kind: takenOut})
}

// InjectIn delivers a guard's own packet (NewPacket) to the host as if it had come for it. The packet passes the guards
// between by and the host, or all guards if by is nil.
func (n *Network) InjectIn(by Guard, host NodeID, pk *Packet) {
	i := slices.Index(n.guards, by)
	if i < 0 {
		i = len(n.guards)
	}
	n.inject(putting{pk: pk, p: n.nodes[host].uplink, by: i - 1, kind: takenIn})
}

// InjectBehind sends a packet of a host's hypervisor (NewPacket). It passes neither guards nor the host's port. Without
// hypervisors it leaves by the host's port, before the host's packets that wait there (Priorities).
func (n *Network) InjectBehind(host NodeID, pk *Packet) {
	p := n.nodes[host].uplink
	if at := n.places[host].hypervisor; at >= 0 {
		p = n.nodes[at].towards(pk)
	} else {
		pk.priority = Priorities - 1
	}
	p.Inject(nil, pk)
}

// out passes a packet of the host at port p to the guards from number i on, and then to the port.
func (n *Network) out(p *Port, pk *Packet, i int) {
	now := n.Queue.Now()
	for ; i < len(n.guards); i++ {
		n.asking++
		v := n.guards[i].Out(p.Node, pk, now)
		n.asking--
		if v == Pass {
			continue
		}
		p.in.add(pk)
		if v == Take {
			pk.state, pk.by, pk.at = takenOut, uint8(i), p
			p.byLaws().taken.add(pk)
		} else {
			p.drop(pk, DropLaw, now)
		}
		n.settle()
		return
	}
	p.Send(pk)
	n.settle()
}

// in passes a packet for the host at port p to the guards from number i down, and then to the host.
func (n *Network) in(p *Port, pk *Packet, i int) {
	now, a := n.Queue.Now(), &n.arrivals[p.Node]
	a.In.add(pk)
	for ; i >= 0; i-- {
		bytes := pk.bytes
		n.asking++
		v := n.guards[i].In(p.Node, pk, now)
		n.asking--
		a.In.Bytes += int64(pk.bytes - bytes)
		if v == Pass {
			continue
		}
		if v == Take {
			pk.state, pk.by, pk.at = takenIn, uint8(i), p
			a.Taken.add(pk)
		} else {
			a.end(n, pk)
		}
		n.settle()
		return
	}
	a.Delivered.add(pk)
	n.Sink.Deliver(p.Node, pk, now)
	n.settle()
}
