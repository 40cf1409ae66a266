//go:build cgo

package laws

import (
	"slices"

	"weir/law/sed"
	"weir/sim/event"
	"weir/sim/network"
)

// park is the packets that a port keeps for which its buffer had no room. They join the queue again when it has drained to half of the
// buffer. Later data of their flows stays behind them, so that no flow is reordered.
type park struct {
	packets []parked
	bytes   int64
	of      map[dataKey]int // packets, by flow
	kept    uint64          // so far
}

type parked struct {
	pk    *network.Packet
	until event.Time
}

// keep keeps a packet, and reports whether it did.
func (q *sedPort) keep(pk *network.Packet, now event.Time) bool {
	w := &q.park
	if w.bytes+int64(pk.Bytes()) > int64(q.sw.p.Park) {
		return false
	}
	if w.of == nil {
		w.of = map[dataKey]int{}
	}
	w.packets = append(w.packets, parked{pk, now + event.Time(q.sw.p.ParkMost)})
	w.bytes += int64(pk.Bytes())
	w.of[keyOfData(pk)]++
	w.kept++
	if !q.look.Pending() {
		q.sw.of.net.Queue.Set(&q.look, now+lookEvery)
	}
	return true
}

// behind keeps data of a flow that has packets here already. A retransmission of one of these replaces it: its sender believes that
// the packet is lost.
func (q *sedPort) behind(pk *network.Packet, now event.Time) network.Verdict {
	w := &q.park
	if q.sw.p.Repair != sed.RepairReinject || w.bytes == 0 || pk.Payload() == 0 {
		return network.Pass
	}
	k := keyOfData(pk)
	if w.of[k] == 0 {
		return network.Pass
	}
	for i := range w.packets {
		if o := w.packets[i].pk; keyOfData(o) == k && o.Seq() == pk.Seq() {
			q.take(i)
			q.sw.of.net.Discard(o)
			return network.Pass
		}
	}
	if q.keep(pk, now) {
		return network.Take
	}
	return network.Pass
}

// take removes the packet number i.
func (q *sedPort) take(i int) *network.Packet {
	w := &q.park
	pk := w.packets[i].pk
	w.packets = slices.Delete(w.packets, i, i+1)
	w.bytes -= int64(pk.Bytes())
	k := keyOfData(pk)
	if w.of[k]--; w.of[k] == 0 {
		delete(w.of, k)
	}
	return pk
}

// drain has packets join the queue while it is below half of the buffer. One that waited too long joins it if there is room, or is
// dropped.
func (q *sedPort) drain(now event.Time) {
	for range len(q.park.packets) { // one that the port has no room for comes back
		old := q.park.packets[0].until <= now
		if q.fill() > 0.5 && !old {
			return
		}
		pk := q.take(0)
		if q.fill() > 1-1/float64(spareFrames) {
			q.sw.of.net.Discard(pk)
			continue
		}
		q.sw.of.net.Return(pk)
	}
}

// spareFrames is so many that a buffer with a part of 1/spareFrames left has room for a frame.
const spareFrames = 16

// fill returns which part of the buffer is full, in the unit of its limit.
func (q *sedPort) fill() float64 {
	if q.port.Buffer.Packets {
		return float64(q.port.BacklogPackets()) / float64(q.port.Buffer.N)
	}
	return float64(q.port.Backlog()) / float64(q.port.Buffer.N)
}
