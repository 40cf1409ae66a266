//go:build cgo

package laws

import (
	"encoding/binary"

	"weir/law"
	"weir/law/fabric"
	"weir/sim/control"
	"weir/sim/event"
	"weir/sim/network"
)

// packetInBytes is the size of a message with a copied segment: OpenFlow's header and match, and the frame's headers with options.
const packetInBytes = 140

// copies is an OpenFlow switch that copies SYN, FIN and RST segments to a controller where they enter the fabric.
type copies struct {
	at     law.Switch
	site   *control.Site
	to     *control.Site
	access map[network.NodeID]*network.Port // of the hosts at this switch
	in     fabric.PacketIn
}

// copy has a switch copy segments. A port's number is its ID in the network, as in reports.
func (c *controlled) copy(ports []*network.Port, number law.Switch, site *control.Site) {
	s := &copies{at: number, site: site, to: c.controller, access: map[network.NodeID]*network.Port{}}
	for vm := range c.sites {
		host := network.NodeID(vm - 1)
		for _, p := range ports {
			if c.net.AccessPort(host) == p {
				s.access[host] = p
			}
		}
	}
	for _, p := range ports { // a law at the ports where packets leave sees each one as soon as the switch has it
		add(p, s)
	}
}

// flags is those of copied segments, as in network.Packet and on the wire.
const flags = network.SYN | network.FIN | network.RST

// Packet copies a segment of a host at this switch. It changes nothing.
func (s *copies) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	if pk.Proto() != network.TCP || pk.Flags()&flags == 0 {
		return network.Pass
	}
	from := s.access[pk.Src()]
	if from == nil {
		return network.Pass
	}
	t := fabric.Tuple{
		Proto: network.TCP, Src: HostAddress(pk.Src()).As4(), Dst: HostAddress(pk.Dst()).As4(), SrcPort: pk.SrcPort(), DstPort: pk.DstPort(),
	}
	s.in.At, s.in.Kind = law.Port{Switch: s.at, N: uint32(from.ID)}, copiedAs(pk.Flags())
	s.in.Frame = fabric.AppendSegment(s.in.Frame[:0], macOf(pk.Src()), macOf(pk.Dst()), t, uint8(pk.Flags()))
	s.site.Report(s.to, packetInBytes, 0, &s.in)
	return network.Pass
}

// copiedAs is the purpose of the flow that copies a segment: of two flags the more important one counts (law/forward).
func copiedAs(flags uint16) fabric.Kind {
	switch {
	case flags&network.RST != 0:
		return fabric.RST
	case flags&network.SYN != 0:
		return fabric.SYN
	}
	return fabric.FIN
}

// macOf is the address of a host's port: locally administered.
func macOf(host network.NodeID) (m fabric.MAC) {
	m[0] = 2
	binary.BigEndian.PutUint32(m[2:], uint32(host))
	return m
}
