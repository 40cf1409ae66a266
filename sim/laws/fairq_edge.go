//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/experiment"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// The edge of edge mode (datapath/bpf/fairq/edge.bpf.c). A switch advertises a flow's window in some of its ACKs, and
// the edge writes it into all of them. The edge is at the last port before each host, of a switch or of a hypervisor,
// as in the lab.
//
//	apply  Towards the host. It remembers the window of a flagged ACK and clears the flag. It limits any other
//	       ACK to the remembered window, until a lease after the last flagged one.
//	guard  From the host, at the host's own port. It clears a flag that the host set.
//
// Both read SYNs, for the scale and the least window. The kernel's table has 65,536 entries and evicts the least
// recently used one; here every connection has its place.

// fairQEdges is the edge of all hosts.
type fairQEdges struct {
	flows  [][2]edgeFlow // by Packet.Conn, and by the side of the host next to the port
	rules  native.EdgeRules
	forged uint64 // ACKs from hosts whose flag was cleared
}

// edgeFlow is the state of one direction's ACKs, at the port next to the host that gets them.
type edgeFlow struct {
	native.EdgeFlow
	// The last answer for an ACK without a flag. With shrink: allow, the answer is the same for the same field at the
	// same time of the edge's clock.
	answered       bool
	at             native.EdgeTime
	before, behind uint16
}

type (
	edgeApply struct{ *fairQEdges }
	edgeGuard struct{ *fairQEdges }
)

// putEdge puts the edge before every host.
func putEdge(n *network.Network, g *experiment.Graph, p *fairq.Params) {
	s := &fairQEdges{rules: native.EdgeRules{Lease: edgeLease, FloorBytes: uint32(p.MinWindow), MSSMax: mostMSS}}
	if p.Shrink == "avoid" {
		s.rules.Shrink = uint32(native.ShrinkAvoid)
	}
	for _, port := range n.Ports {
		switch {
		case g.Nodes[port.Node].Kind == experiment.Guest:
			add(port, edgeGuard{s})
		case g.Nodes[port.Peer].Kind == experiment.Guest:
			add(port, edgeApply{s})
		}
	}
}

func (s edgeGuard) Packet(_ *network.Port, pk *network.Packet, _ event.Time) network.Verdict {
	switch {
	case pk.Proto() != network.TCP:
	case pk.Flags()&network.SYN != 0:
		s.handshake(pk, side(pk))
	case pk.Reserved()&edgeFlag != 0:
		pk.SetReserved(pk.Reserved() &^ edgeFlag)
		s.forged++
	}
	return network.Pass
}

func (s edgeApply) Packet(_ *network.Port, pk *network.Packet, now event.Time) network.Verdict {
	to := 1 - side(pk)
	switch {
	case pk.Proto() != network.TCP:
	case pk.Flags()&network.SYN != 0:
		s.handshake(pk, to)
	case pk.Flags()&(network.ACK|network.RST) == network.ACK:
		s.acknowledgement(s.flow(pk.Conn(), to), pk, native.EdgeTimeOf(int64(now)))
	default:
		pk.SetReserved(pk.Reserved() &^ edgeFlag)
	}
	return network.Pass
}

func (s *fairQEdges) flow(conn int32, host int) *edgeFlow {
	if missing := int(conn) + 1 - len(s.flows); missing > 0 {
		s.flows = append(s.flows, make([][2]edgeFlow, missing)...)
	}
	return &s.flows[conn][host]
}

// handshake processes a SYN or SYN-ACK that passes the port next to a host.
func (s *fairQEdges) handshake(pk *network.Packet, host int) {
	if pk.Flags()&(network.RST|network.FIN) != 0 {
		return
	}
	syn := native.SYN{Seq: pk.Seq(), Ack: pk.Ack(), MSS: pk.MSS(), Shift: uint8(max(0, min(pk.Scale(), mostShift))), Side: uint8(side(pk))}
	if pk.Scale() >= 0 {
		syn.Flags = native.SYNScale
	}
	f := s.flow(pk.Conn(), host)
	if f.Handshake(&syn, pk.Window(), pk.Flags()&network.ACK != 0, uint8(1-host)) {
		f.answered = false
	}
}

// acknowledgement limits an ACK to the window advertised for its flow.
func (s *fairQEdges) acknowledgement(f *edgeFlow, pk *network.Packet, now native.EdgeTime) {
	window, flagged := pk.Window(), pk.Reserved()&edgeFlag != 0
	if !flagged {
		if f.answered && f.before == window && now == f.at {
			pk.SetWindow(f.behind)
			return
		}
		if f.Field == 0 && s.rules.Shrink == 0 { // nothing was advertised, and right edges are not kept
			return
		}
	}
	after := f.Acknowledge(&s.rules, pk.Ack(), window, flagged, now)
	f.answered, f.before, f.behind, f.at = !flagged && s.rules.Shrink == 0, window, after, now
	pk.SetWindow(after)
	if flagged {
		pk.SetReserved(pk.Reserved() &^ edgeFlag)
	}
}
