//go:build cgo

package laws

import (
	"weir/datapath/native"
	"weir/sim/event"
	"weir/sim/network"
)

// acdc is the virtual switches of all hosts. Each knows the ends of its own connections. All ends are in one array,
// because every end belongs to one host. The law is there from the start, so every connection begins with its SYN.
// Connections that a full table refused, or that were forgotten, pass unchanged.
type acdc struct {
	Quiet
	net      *network.Network
	gain     uint32
	least    uint32 // least window, bytes; 0: the flow's own
	patience event.Time
	police   bool

	index     []int32 // slot by place; 0: none
	ends      []acdcEnd
	free      int32
	entries   map[network.NodeID]int // ends by host
	mostConns int                    // entries per host, at most
	known     int
	sweeps    uint32
	sweep     event.Event
	counts    acdcCounts
}

// acdcSYN is what the virtual switch read from a SYN.
type acdcSYN struct {
	first uint32 // its sequence number
	mss   uint16 // 0: no option
	scale int8   // -1: no option
	seen  bool
}

// acdcEnd is what the virtual switch of a host knows of one end of a connection.
type acdcEnd struct {
	window  dctcpWindow // of the data that the host sends
	own     acdcSYN
	peer    acdcSYN
	host    network.NodeID
	place   int32
	slot    int32
	after   int32  // next in the list of free slots
	seen    uint32 // the sweep in which it was last seen
	began   bool   // both SYNs were seen: there is a window
	finOut  bool
	finIn   bool
	reset   bool
	granted bool // right is valid

	// About the data that the host sends: what the other virtual switch reported.
	reported                      bool
	reportedTotal, reportedMarked uint32
	right                         uint32 // the furthest right edge that the guest was granted
	field                         uint16 // window of the last ACK, as it came
	asked                         native.WindowAck
	answer                        uint16 // the answer to asked

	// About the data that the host gets, in bytes modulo 2^32.
	total, marked uint32
	lastReported  uint32 // total, as it was last reported
}

func (e *acdcEnd) closed() bool { return e.reset || e.finOut && e.finIn }

// placeOf returns the index of an end. side is 0 for the dialler, 1 for the acceptor.
func placeOf(conn int32, side int) int32 { return 2*conn + int32(side) }

func (a *acdc) find(place int32) *acdcEnd {
	if uint32(place) < uint32(len(a.index)) {
		if slot := a.index[place]; slot != 0 {
			return &a.ends[slot]
		}
	}
	return nil
}

// begin adds an end, and returns nil if the host's table is full. It invalidates pointers to other ends. An end that is
// already at the place is over, because numbers of connections are reused.
func (a *acdc) begin(host network.NodeID, place int32, now event.Time) *acdcEnd {
	if e := a.find(place); e != nil {
		a.remove(e)
	}
	if a.entries[host] >= a.mostConns {
		a.counts.refused++
		return nil
	}
	if a.entries == nil {
		a.entries = map[network.NodeID]int{}
	}
	a.entries[host]++
	a.counts.opened++
	if a.known++; a.known == 1 {
		a.net.Queue.Set(&a.sweep, (now/sweepEvery+1)*sweepEvery)
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

// remove removes an end from the table.
func (a *acdc) remove(e *acdcEnd) {
	a.known--
	a.entries[e.host]--
	a.index[e.place] = 0
	slot := e.slot
	*e = acdcEnd{slot: slot, after: a.free, place: -1}
	a.free = slot
}

// Happen is a sweep. It removes the ends of connections that are over or were silent for long.
func (a *acdc) Happen(_ *event.Event, now event.Time) {
	a.sweeps++
	for i := range a.ends {
		e := &a.ends[i]
		if unseen := a.sweeps - e.seen; i > 0 && e.place >= 0 && unseen >= closedSweeps && (e.closed() || unseen >= forgetSweeps) {
			a.remove(e)
		}
	}
	if a.known > 0 {
		a.net.Queue.Set(&a.sweep, now+sweepEvery)
	}
}
