//go:build cgo

package laws

import (
	"math"

	"weir/datapath/native"
	"weir/experiment"
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
	floor  uint32        // of every flow's window, bytes; 0: its own MSS
	avoid  bool          // shrink
	forged uint64        // ACKs from hosts whose flag was cleared
}

// edgeFlow is what the port next to one end of a connection knows of the ACKs that go there.
type edgeFlow struct {
	edge       native.WindowEdge // that they granted; kept with shrink: avoid
	toldAt     uint32            // of edgeClock
	asked      uint32            // acknowledges the last SYN
	field      uint16            // told; 0: nothing was yet
	askedMSS   uint16
	mss        uint16 // of who sends the ACKs; 0: no such option
	askedScale int8   // -1: none
	shift      uint8  // of their windows; 0 where the handshake is not known
	hasAsked   bool
	known      bool // the handshake: shift and mss
	// What the law answered last: with shrink: allow it depends on nothing but the field.
	answered       bool
	before, behind uint16
}

// edgeAskedMost is how far an answer may acknowledge beyond a SYN: data in it (RFC 7413).
const edgeAskedMost = math.MaxUint16

type (
	edgeApply struct{ *fairQEdges }
	edgeGuard struct{ *fairQEdges }
)

// putEdge puts the edge before every host.
func putEdge(n *network.Network, g *experiment.Graph, p *experiment.FairQParams) {
	s := &fairQEdges{floor: uint32(p.MinWindow), avoid: p.Shrink == "avoid"}
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
		s.acknowledgement(s.flow(pk.Conn(), to), pk, edgeClock(now))
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
	f := s.flow(pk.Conn(), host)
	switch {
	case pk.Flags()&(network.RST|network.FIN) != 0:
	case pk.Flags()&network.ACK == 0: // its answer says whether it counts
		f.hasAsked, f.asked, f.askedScale, f.askedMSS = true, pk.Seq()+1, pk.Scale(), pk.MSS()
	case f.hasAsked && pk.Ack()-f.asked <= edgeAskedMost:
		*f = edgeFlow{hasAsked: true, asked: f.asked, askedScale: f.askedScale, askedMSS: f.askedMSS, known: true}
		scale := pk.Scale()
		f.mss = pk.MSS()
		if host == 1 { // next to who accepted: the ACKs that go there are the opener's
			scale, f.mss = f.askedScale, f.askedMSS
		} else {
			native.WindowGranted(&f.edge, pk.Ack(), uint32(pk.Window()))
		}
		if pk.Scale() >= 0 && f.askedScale >= 0 { // RFC 7323 1.3
			f.shift = uint8(min(scale, mostShift))
		}
	}
}

// acknowledgement holds an ACK to what was told of its flow.
func (s *fairQEdges) acknowledgement(f *edgeFlow, pk *network.Packet, now uint32) {
	switch {
	case pk.Reserved()&edgeFlag != 0:
		pk.SetReserved(pk.Reserved() &^ edgeFlag)
		if pk.Window() != 0 { // a receiver that is full says nothing of the network
			f.field, f.toldAt, f.answered = pk.Window(), now, false
			pk.SetWindow(s.apply(f, pk, true))
		}
	case f.field == 0 || now-f.toldAt >= edgeLease:
		if s.avoid && f.known {
			native.WindowGranted(&f.edge, pk.Ack(), uint32(pk.Window())<<f.shift)
		}
	default:
		if !f.answered || f.before != pk.Window() || s.avoid {
			f.answered, f.before, f.behind = true, pk.Window(), s.apply(f, pk, false)
		}
		pk.SetWindow(f.behind)
	}
}

// apply is the field that an ACK leaves with.
func (s *fairQEdges) apply(f *edgeFlow, pk *network.Packet, told bool) uint16 {
	if s.avoid && !f.known {
		return pk.Window()
	}
	a := native.WindowAck{WindowQ8: uint64(f.field) << f.shift << 8, FloorBytes: s.leastWindow(f), Ack: pk.Ack(), Field: pk.Window(), Shift: f.shift}
	if s.avoid {
		a.Shrink = native.ShrinkAvoid
	}
	// What a flagged ACK's sender announced is lost. It announced more before, if more was granted.
	if told && s.avoid && f.edge.Known != 0 {
		a.Field = math.MaxUint16
	} else if told {
		a.WindowQ8 = edgeNone << 8
	}
	return native.WindowRewrite(&a, &f.edge)
}

// leastWindow is in bytes; of a flow whose scale is not known, a field.
func (s *fairQEdges) leastWindow(f *edgeFlow) uint32 {
	switch {
	case !f.known:
		return 1
	case s.floor != 0:
		return s.floor
	}
	return native.WindowFloor(min(uint32(f.mss), mostMSS), 0)
}
