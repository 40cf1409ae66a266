package sed

import (
	"container/heap"
	"math"
	"slices"
	"time"
)

// Bytes of a full segment: of payload, in a queue (with Ethernet's header), and on a line (with preamble, checksum and gap).
const (
	segmentBytes = 1460
	frameBytes   = 1514
	lineBytes    = 1538
	packetBytes  = 1500 // as the paper counts
)

// leastBase is the part of all windows that flows without deadline have, whatever the deadlines ask for: they must not starve.
const leastBase = 0.25

// rounding is more than the error of the sums here, so that a set that just fits is admitted.
const rounding = 1e-9

// demand is a flow with a deadline when windows are allocated.
type demand struct {
	f     *flow
	left  float64 // bytes, when the flow's progress was reported last
	now   float64 // bytes that are left now, if it sent as fast as before, or its window allows, since
	until float64 // seconds to the deadline, less the margin
	grace float64 // seconds of the margin that a flow which was admitted before may use
	want  int64   // bytes of window; Eq. (4)
	most  int64   // more would not be used
}

// scratch is memory of an allocation that the next one reuses.
type scratch struct {
	urgent, late []demand
	others       []*flow
	kept         largest
}

// sizes are T_win of Eq. (3) and the round trip of Eq. (4) at a port.
type sizes struct {
	room float64 // T_win, bytes of payload
	trip float64 // seconds
	rate float64 // bytes of payload a second that the port can carry
}

// sizes returns the sizes of a port. SE-14: with windows of T_win the queue stands at K, so that a round trip takes RTT + K/C. The
// printed form has RTT alone, and windows are then 36 % of what the rates need, with K = 30 packets at 1 Gbit/s. SE-9: the printed
// form counts packets of 1500 bytes as windows, although a segment has 1460.
func (l *Law) sizes(at *port) sizes {
	k := float64(l.p.Threshold.Bytes())
	s := sizes{room: k + at.rate*l.rtt, trip: l.rtt, rate: at.rate}
	if l.p.RoundTrip == TripQueue {
		s.trip += k / at.rate
	}
	if !l.p.Overhead {
		return s
	}
	s.room = segmentBytes * (k/frameBytes + at.rate*l.rtt/lineBytes)
	s.rate *= float64(segmentBytes) / lineBytes
	if l.p.RoundTrip == TripQueue {
		s.trip = s.room / s.rate
	}
	return s
}

// allocate is Algorithm 2: the windows of a port's flows.
func (l *Law) allocate(now time.Duration, at *port) {
	if at.rate == 0 {
		return
	}
	s := l.sizes(at)
	l.sort(now, at, s)
	base := int64(l.p.BaseWindow)
	plain := len(l.scratch.others)
	if l.p.Overload == OverloadMost {
		others := min(float64(plain)*float64(base)/s.room, leastBase)
		l.admit(at, s.rate*(1-others))
	}
	reserve := l.reserve(s, plain)
	room := l.urgentWindows(at, int64(s.room)-int64(reserve))
	room = l.baseWindows(at, room+int64(reserve), base)
	l.spareWindows(at, room)
	l.counts.Allocations++
}

// sort divides a port's flows into those with a deadline that is still ahead, in the order of the deadlines (EDF), and others. A flow
// whose deadline has passed is one of the others (SE-7).
func (l *Law) sort(now time.Duration, at *port, s sizes) {
	w := &l.scratch
	w.urgent, w.late, w.others = w.urgent[:0], w.late[:0], w.others[:0]
	idle := l.idleAfter(at)
	for _, f := range at.flows {
		switch window := f.window(at); {
		case f.idle(now, idle) || f.done(): // it needs no share; if it sends again, that is reported
			*window = max(int64(l.p.BaseWindow), segmentBytes)
		case f.urgent(now):
			w.urgent = append(w.urgent, l.demand(now, f, *window, s))
		default:
			*window = 0
			w.others = append(w.others, f)
		}
	}
	slices.SortStableFunc(w.urgent, byDeadline)
}

// done reports whether a flow has sent all of its message.
func (f *flow) done() bool {
	m := &f.message
	return m.bytes > 0 && f.sent-min(m.from, f.sent) >= m.bytes
}

// demand returns what a flow asks for, Eq. (4): s/d x RTT. SE-8: one round trip less is left, because the last segment must also arrive,
// and a sender uses whole segments only. window is what the flow has now.
func (l *Law) demand(now time.Duration, f *flow, window int64, s sizes) demand {
	d := demand{f: f, left: f.left(), until: (f.message.deadline - now).Seconds()}
	d.now = max(d.left-min(max(float64(window), 0)/s.trip, f.pace)*min(now-f.sentAt, leastIdle).Seconds(), 0)
	d.most = whole(d.left)
	if !l.p.Overhead {
		d.want = int64(max(d.left/d.until*s.trip, segmentBytes)) // at least one MSS (SPEC 1.10)
		return d
	}
	if f.admitted {
		d.grace = s.trip
	}
	d.until = max(d.until-s.trip, s.trip/2)
	aim := max(d.until-l.margin, s.trip/2)
	d.want = min(whole(d.left/aim*s.trip), max(d.most, segmentBytes))
	return d
}

// whole returns bytes rounded up to whole segments, at least one.
func whole(bytes float64) int64 {
	return int64(max(math.Ceil(min(bytes, noLimit)/segmentBytes), 1)) * segmentBytes
}

// reserve returns what flows without deadline have before any deadline: their base windows. SE-5: as printed these can be more than
// all windows, and no deadline is met any more. Here they yield to deadlines down to a quarter. plain: the number of flows, without
// those whose deadline cannot be met.
func (l *Law) reserve(s sizes, plain int) float64 {
	base := float64(plain) * float64(l.p.BaseWindow)
	if l.p.Shortage == ShortageNone {
		return min(base, s.room)
	}
	need := 0.0
	for i := range l.scratch.urgent {
		need += float64(l.scratch.urgent[i].want)
	}
	return min(base, max(s.room-need, leastBase*s.room))
}

// admit removes flows from the urgent ones until the others can meet their deadlines with so many bytes a second. Moore's rule leaves the
// fewest late: at each deadline that cannot be met, it gives up the flow with the most bytes left of those so far; with values, the most
// bytes for its value. These flows become flows without deadline, behind the others. Bytes left are those of now: by the last report, a
// flow that is nearly done would seem too late, and would be given up. For the same reason the margin counts only until a flow is
// admitted.
func (l *Law) admit(at *port, rate float64) {
	w := &l.scratch
	w.kept = w.kept[:0]
	sum := 0.0
	for i := range w.urgent {
		d := &w.urgent[i]
		sum += d.now
		heap.Push(&w.kept, d)
		if sum > rate*(d.until+d.grace)*(1+rounding) {
			out := heap.Pop(&w.kept).(*demand)
			sum -= out.now
			out.want = 0
		}
	}
	keep := w.urgent[:0]
	for _, d := range w.urgent {
		if d.f.admitted = d.want > 0; d.f.admitted {
			keep = append(keep, d)
			continue
		}
		l.counts.Late++
		*d.f.window(at) = 0
		w.others = append(w.others, d.f)
	}
	w.urgent = keep
}

// urgentWindows gives flows with deadlines what they ask for, the earliest first, and returns what is left. The first one that does
// not fit gets the rest in whole segments (ShortagePart). As printed it gets nothing, and then a set of flows that EDF would serve in
// time is not: the rest of the link is unused while it waits.
func (l *Law) urgentWindows(at *port, room int64) int64 {
	for i := range l.scratch.urgent {
		d := &l.scratch.urgent[i]
		got := d.want
		if got > room {
			got = 0
			if l.p.Shortage == ShortagePart {
				got = room / segmentBytes * segmentBytes
			}
		}
		*d.f.window(at) = got
		room -= got
	}
	return room
}

// baseWindows gives flows without deadline their base windows, as far as there is room, and returns what is left. If there is not
// enough for all, the next allocation begins with the flow behind the last one that got its window.
func (l *Law) baseWindows(at *port, room, base int64) int64 {
	n := len(l.scratch.others)
	if n == 0 {
		return room
	}
	first := at.turn % n
	for i := range n {
		if room < base && l.p.Shortage == ShortagePart {
			at.turn = (first + i) % n
			return max(room, 0)
		}
		*l.scratch.others[(first+i)%n].window(at) = base
		room -= base
	}
	return room
}

// spareWindows gives what is left to flows without deadline in equal shares (the body of the paper, lines 26 to 28), or to the
// earliest deadlines (the abstract; SE-3).
func (l *Law) spareWindows(at *port, room int64) {
	w := &l.scratch
	n := int64(len(w.others))
	toOthers := l.p.Spare == SpareOthers || l.p.Spare == SpareBoth && n > 0
	if room <= 0 {
		return
	}
	if !toOthers {
		for i := range w.urgent {
			d := &w.urgent[i]
			window := d.f.window(at)
			more := min(max(d.most-*window, 0), room/segmentBytes*segmentBytes)
			*window += more
			room -= more
		}
	}
	if n == 0 || room <= 0 {
		return
	}
	if !l.p.Overhead {
		for _, f := range w.others {
			*f.window(at) += room / n
		}
		return
	}
	segments := room / segmentBytes
	for i := range n {
		f := w.others[(int64(at.turn)+i)%n]
		*f.window(at) += (segments/n + min(max(segments%n-i, 0), 1)) * segmentBytes
	}
}

// largest is a heap of demands, the one with the most bytes left for its value first.
type largest []*demand

// cost returns the bytes that a flow has left, for its value.
func (d *demand) cost() float64 { return d.now / max(d.f.message.value, 1) }

func (h largest) Len() int           { return len(h) }
func (h largest) Less(i, j int) bool { return h[i].cost() > h[j].cost() }
func (h largest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *largest) Push(d any) { *h = append(*h, d.(*demand)) }

// Pop implements heap.Interface.
func (h *largest) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	*h = (*h)[:last]
	return d
}
