//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/law/fairq"
	"weir/sim/event"
	"weir/sim/network"
)

// Edge mode in the switch: core decides which ACKs advertise a window to the edge (core/fairq/edge.h). The others pass
// unchanged. SYN-ACKs are always rewritten and never flagged.

const (
	// edgeFlag is the highest of the header's reserved bits (datapath/bpf/fairq/edge.h, where AE counts as one of
	// them).
	edgeFlag   = 1 << 2
	edgeChange = uint32(fairq.EdgeChange * 256)
)

var edgeLease = native.EdgeTimeOf(int64(fairq.EdgeLease))

// left is the last ACK of an end that was left to the edge. The next one is left too if the question about it is the
// same.
type left struct {
	asked native.Ack
	now   native.EdgeTime
	at    uint16 // fairQPort.id; 0: none was left
}

// advertise leaves an ACK to the edge, or writes an advertised window and the flag into it.
func (q *fairQPort) advertise(c *connection, pk *network.Packet, at *fairQPort, a *native.Ack, time event.Time) {
	from, now, id := side(pk), native.EdgeTimeOf(int64(time)), -1
	if at != nil {
		id = int(at.id) - 1
	}
	asked, flagged := left{*a, now, uint16(id + 1)}, pk.Reserved()&edgeFlag != 0
	last := &q.sw.lefts[c.slot][from]
	if asked == *last && !flagged {
		q.left++
		return
	}
	f := q.sw.state.Advertise(id, now, flagged, true, a, &c.ends[from], &c.edges[from])
	if *last = (left{}); f.LeftToEdge() {
		*last = asked
		q.left++
		return
	}
	if !f.Advertises() {
		q.write(pk, f)
		return
	}
	switch {
	case !f.Governed():
		q.ungoverned++
	case f.Law() == f.Own():
		q.smaller++
	default:
		q.rewritten++
	}
	if !flagged {
		pk.SetReserved(pk.Reserved() | edgeFlag)
		q.advertised++
	}
	pk.SetWindow(f.Left())
}
