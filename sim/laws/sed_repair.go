//go:build cgo

package laws

import (
	"slices"

	"weir/law/flows"
	"weir/law/sed"
	"weir/sim/event"
	"weir/sim/network"
)

// answers reports whether losses are answered with acknowledgements.
func (s *sedSwitch) answers() bool {
	return s.p.Repair == sed.RepairDupACKs || s.p.Repair == sed.RepairDrained
}

// due answers a loss now, or when the queue that dropped the segment has drained: else the retransmission meets the same queue.
func (s *sedSwitch) due(k dataKey, a *ackSeen, o *flows.Acks) {
	i := slices.IndexFunc(s.ports, func(q *sedPort) bool { return q.at == o.At })
	if s.p.Repair == sed.RepairDupACKs || i < 0 || len(s.ports[i].answers) >= sedFlows {
		s.answer(k, a, o.N)
		return
	}
	q := s.ports[i]
	q.answers = append(q.answers, sedAnswer{k, o.Ack, o.N})
	q.see(q.port.Backlog(), s.of.net.Queue.Now())
}

// sedAnswer is an answer to a loss that waits until the queue has drained.
type sedAnswer struct {
	key dataKey
	ack uint32
	n   uint8
}

// retransmissions has senders retransmit while the queue is below half of the buffer, one segment in the time of each.
func (q *sedPort) retransmissions(now event.Time) {
	for len(q.answers) > 0 && now >= q.nextAnswer && q.fill() <= 0.5 {
		first := q.answers[0]
		q.answers = q.answers[1:]
		if a := q.sw.acks[first.key]; a != nil && a.ack == first.ack { // else it was repaired meanwhile
			q.nextAnswer = now + event.Time(fullFrameBits*1e9/float64(q.port.Rate))
			q.sw.answer(first.key, a, first.n)
		}
	}
}

const fullFrameBits = 1538 * 8

// answer sends copies of the last acknowledgement of a flow to its sender (RS-2: with its window), by the same port. They wait there
// behind other packets (RS-5).
func (s *sedSwitch) answer(k dataKey, a *ackSeen, n uint8) {
	for range n {
		pk := s.of.net.NewPacket()
		pk.SetEnds(k.dst, k.src, k.dstPort, k.srcPort)
		pk.SetProto(network.TCP)
		pk.SetHash(network.FlowHash(pk.Src(), pk.Dst(), pk.SrcPort(), pk.DstPort(), network.TCP))
		pk.SetConn(a.conn)
		pk.SetToAcceptor(a.toAcceptor)
		pk.SetPriority(a.priority)
		pk.SetBytes(a.bytes)
		pk.SetTag(a.tag)
		pk.SetFlags(network.ACK)
		pk.SetSeq(a.seq)
		pk.SetAck(a.ack)
		pk.SetWindow(a.window)
		a.port.Inject(s.lawAt(a.port), pk)
	}
}

// lawAt returns the law at a port of the switch.
func (s *sedSwitch) lawAt(p *network.Port) network.Law {
	for _, q := range s.ports {
		if q.port == p {
			return q
		}
	}
	return nil
}

// fill returns which part of the buffer is full, in the unit of its limit.
func (q *sedPort) fill() float64 {
	if q.port.Buffer.Packets {
		return float64(q.port.BacklogPackets()) / float64(q.port.Buffer.N)
	}
	return float64(q.port.Backlog()) / float64(q.port.Buffer.N)
}
