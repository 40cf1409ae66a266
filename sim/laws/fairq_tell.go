//go:build cgo

package laws

import (
	"weir/experiment"
	"weir/sim/event"
	"weir/sim/network"
)

// Edge mode in the switch (datapath/bpf/fairq/edge_tell.h): which ACKs tell the edge a window. The others pass as they are.
//
//	grant < own window     told once an interval, and at once when the grant has moved by more than an eighth
//	grant >= own window    nothing to hold: the own window is told while it is above what the edge remembers
//	an ACK is flagged      a switch before this one told it: it is lowered to this one's grant if need be, and noted
//
// Windows are bytes, as the ACK's sender scales them. SYN-ACKs are always rewritten and never flagged.

const (
	// edgeFlag is the highest of the header's reserved bits (datapath/bpf/fairq/edge.h, where AE counts as one of them).
	edgeFlag   = 1 << 2
	edgeNone   = 1 << 30 // bytes: no limit
	edgeChange = uint64(experiment.FairQEdgeChange * 256)
)

// edgeClock is a time as edge mode counts it, in units of 2^20 ns. (A kernel's clock is as coarse as its tick besides.)
func edgeClock(t event.Time) uint32 { return uint32(t >> 20) }

var edgeLease = edgeClock(event.Time(experiment.FairQEdgeLease))

// teller is what a switch told the edge of the ACKs of one end.
type teller struct {
	told       uint32 // window, bytes; 0: none
	toldAt     uint32 // of edgeClock
	upstreamAt uint32 // when a switch before this one told it
	upstream   uint16 // the field that it told; 0: none
}

// field is that of an ACK that the switches before this one leave to it.
func (t *teller) field(field uint16, now uint32) uint16 {
	if t.upstream != 0 && now-t.upstreamAt < edgeLease {
		return min(field, t.upstream)
	}
	return field
}

func edgeBytes(grantQ8 uint64) uint32 {
	if bytes := grantQ8 >> 8; bytes > 0 && bytes < edgeNone {
		return uint32(bytes)
	}
	return edgeNone
}

func (t *teller) moved(to uint32) bool {
	by := uint32(uint64(t.told) * edgeChange >> 8)
	return to > t.told+by || to < t.told-by
}

// due says whether an ACK is to tell the edge.
func (t *teller) due(pk *network.Packet, shift uint8, grantQ8 uint64, interval, now uint32) bool {
	past, grant := now-t.toldAt, edgeBytes(grantQ8)
	own := uint32(t.field(pk.Window(), now)) << shift
	switch {
	case pk.Reserved()&edgeFlag != 0:
		return true
	case t.told == 0 || past >= edgeLease:
		return grant < own
	case grant < own:
		return past >= interval || t.moved(grant)
	}
	return own > t.told && (past >= interval || t.moved(own))
}

// tellEdge leaves an ACK to the edge, or makes it tell.
func (q *fairQPort) tellEdge(c *connection, pk *network.Packet, at *fairQPort, grantQ8 uint64, time event.Time) {
	from, now := side(pk), edgeClock(time)
	t, shift, offered := &q.sw.tellers[c.slot][from], c.ends[from].shift, pk.Window()
	due := t.due(pk, shift, grantQ8, q.sw.interval, now)
	if !due && t.told != 0 && c.ends[1-from].port != nil {
		q.left++
		return
	}
	q.hold(c, pk, at, grantQ8)
	if !due {
		return
	}
	if pk.Reserved()&edgeFlag != 0 {
		t.upstream, t.upstreamAt = offered, now
	} else {
		pk.SetReserved(pk.Reserved() | edgeFlag)
		q.told++
	}
	pk.SetWindow(t.field(pk.Window(), now))
	// The floor, or rounding, may be above the grant: the next is compared with that.
	t.told, t.toldAt = min(uint32(pk.Window())<<shift, edgeBytes(grantQ8)), now
}
