//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/experiment"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// The edge of edge mode (datapath/bpf/fairq/edge.bpf.c): what a switch tells of a flow on some of its ACKs, the edge writes
// into all of them. It is at the last port before each host, a switch's or a hypervisor's, as in the lab.
//
//	apply  towards the host. A flagged ACK: its window is remembered, the flag cleared. Any other is held to what is
//	       remembered, until a lease after the last flagged one.
//	guard  from the host, at its own port. A flag that comes from there is cleared.
//
// Both read SYNs, for scale and least window. Where the kernel forgets the flow unused longest of 65,536, every
// connection has its place here.

// fairQEdges is the edge of all hosts.
type fairQEdges struct {
	flows  [][2]edgeFlow // by Packet.Conn, and by the side of the host next to the port
	rules  native.EdgeRules
	forged uint64 // ACKs from hosts whose flag was cleared
}

// edgeFlow is what the port next to one end of a connection knows of the ACKs that go there.
type edgeFlow struct {
	native.EdgeFlow
	// What was decided last of an ACK without a flag. With shrink: allow the same is decided of the same field, at the
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

// handshake takes a SYN or SYN-ACK that passes the port next to an end.
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

// acknowledgement holds an ACK to what was told of its flow.
func (s *fairQEdges) acknowledgement(f *edgeFlow, pk *network.Packet, now native.EdgeTime) {
	window, flagged := pk.Window(), pk.Reserved()&edgeFlag != 0
	if !flagged {
		if f.answered && f.before == window && now == f.at {
			pk.SetWindow(f.behind)
			return
		}
		if f.Field == 0 && s.rules.Shrink == 0 { // nothing was told, and no edge is kept
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
