//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

// acdc is the virtual switches of all hosts. Each knows its own ends of connections; they lie in one array, as every end
// belongs to one host. Nobody begins before the law does, so that a connection begins with its SYN; where a host has no
// room for one more it passes, and so does one that was forgotten.
type acdc struct {
	Quiet
	net      *network.Network
	gain     uint32
	least    uint32 // 0: the flow's own
	patience event.Time
	police   bool

	index     []int32 // slot by place; 0: none
	ends      []acdcEnd
	free      int32
	held      map[network.NodeID]int // ends by host
	mostConns int                    // of a host
	known     int
	sweeps    uint32
	sweep     event.Event
	counts    acdcCounts
}

// acdcSYN is what a SYN told.
type acdcSYN struct {
	first uint32 // its sequence number
	mss   uint16 // 0: no option
	scale int8   // -1: no option
	seen  bool
}

// acdcEnd is what the virtual switch of a host knows of a connection.
type acdcEnd struct {
	window  dctcpWindow // of what the host sends
	own     acdcSYN
	peer    acdcSYN
	host    network.NodeID
	place   int32
	slot    int32
	after   int32  // among free ones
	seen    uint32 // the sweep in which it was last seen
	began   bool   // both SYNs were seen: there is a window
	finOut  bool
	finIn   bool
	reset   bool
	granted bool // right is valid

	// Of what the host sends: what the other virtual switch told.
	told                  bool
	toldTotal, toldMarked uint32
	right                 uint32 // the furthest right edge that the guest was granted
	field                 uint16 // window of the last ACK, as it came
	asked                 native.WindowAck
	answer                uint16 // to asked

	// Of what it gets, modulo 2^32.
	total, marked uint32
	lastTold      uint32 // total, as it was last told
}

func (e *acdcEnd) closed() bool { return e.reset || e.finOut && e.finIn }

// placeOf is the index of an end: 0 who dialled, 1 who accepted.
func placeOf(conn int32, side int) int32 { return 2*conn + int32(side) }

func (a *acdc) find(place int32) *acdcEnd {
	if uint32(place) < uint32(len(a.index)) {
		if slot := a.index[place]; slot != 0 {
			return &a.ends[slot]
		}
	}
	return nil
}

// begin makes an end known; nil: its host has no room. Pointers to others are not valid any more. One that is at the
// place is over: numbers of connections are used again.
func (a *acdc) begin(host network.NodeID, place int32, now event.Time) *acdcEnd {
	if e := a.find(place); e != nil {
		a.remove(e)
	}
	if a.held[host] >= a.mostConns {
		a.counts.refused++
		return nil
	}
	if a.held == nil {
		a.held = map[network.NodeID]int{}
	}
	a.held[host]++
	a.counts.opened++
	if a.known++; a.known == 1 {
		a.net.Queue.Set(&a.sweep, (now/beat+1)*beat)
	}
	if place >= int32(len(a.index)) {
		a.index = append(a.index, make([]int32, int(place)+1-len(a.index))...)
	}
	slot := a.free
	if slot == 0 {
		slot = int32(len(a.ends))
		a.ends = append(a.ends, acdcEnd{})
	}
	e := &a.ends[slot]
	a.free = e.after
	*e = acdcEnd{host: host, place: place, slot: slot, seen: a.sweeps}
	a.index[place] = slot
	return e
}

// remove forgets an end.
func (a *acdc) remove(e *acdcEnd) {
	a.known--
	a.held[e.host]--
	a.index[e.place] = 0
	slot := e.slot
	*e = acdcEnd{slot: slot, after: a.free, place: -1}
	a.free = slot
}

// Happen is a sweep: ends of connections that are over, or were silent for long, are forgotten.
func (a *acdc) Happen(_ *event.Event, now event.Time) {
	a.sweeps++
	for i := range a.ends {
		e := &a.ends[i]
		if unseen := a.sweeps - e.seen; i > 0 && e.place >= 0 && unseen >= closedSweeps && (e.closed() || unseen >= forgetSweeps) {
			a.remove(e)
		}
	}
	if a.known > 0 {
		a.net.Queue.Set(&a.sweep, now+beat)
	}
}
