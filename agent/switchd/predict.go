package switchd

import (
	"fmt"
	"math"
	"slices"
)

// load is what was measured of a port while its windows were as their receivers wrote them. Rates are in
// bytes/s, sizes in bytes. What lies in a queue counts with its headers, what a window grants without.
type load struct {
	Rate, RTT      float64 // C; R in s, of flows when nothing queues
	Buffer, Target float64 // B; αB
	Cap            float64 // the largest window that the law grants, 0: none
	Floor          float64 // the least that the law is told to grant; 0: a segment and a byte
	Frame, Segment float64 // the largest packet of the port; the payload that it carries
	Granted        float64 // what the floor comes to in the units that receivers write windows in, mean; 0: the floor itself
	Other          float64 // 0 to 1: part of C that is not data of the flows
	Flows          float64 // β, mean of the time with flows

	InFlight []float64 // of each flow, mean of the times it was seen, at most what it had
	Elastic  float64   // 0 to 1: part of the time with a flow that would fill a larger window
	QueueNow float64   // mean, of all times
	QueueCut float64   // mean of min(queue, target), of all times
	QueueApp float64   // the same of the times without an elastic flow

	DropsPerSecond float64
	NewFlows       float64 // the most flows that began between two looks
}

// prediction is what the law is expected to make of a load. docs/observe.md derives each line and says how
// far off it may be.
type prediction struct {
	Window, WindowMost               float64 // of each flow that is limited
	Queue, QueueLeast, QueueMost     float64 // mean
	Drops, DropsMost                 float64 // per second
	Room                             int     // flows that may begin at once without a drop
	Floored, Overfull, OtherFillsAll bool
	Notes                            []string
}

const (
	initialWindow = 10   // segments that a sender may send at first (RFC 6928)
	otherMost     = 0.98 // of the rate: what is left is no rate to reckon with
)

// pipe is what is on its way when nothing queues: C*R.
func (l *load) bdp() float64 { return l.Rate * l.RTT }

// free is the part of the rate that the flows have together.
func (l *load) flowShare() float64 { return 1 - min(max(l.Other, 0), otherMost) }

func (l *load) floor() float64 {
	if l.Floor > 0 {
		return l.Floor
	}
	return l.Segment + 1
}

// least is what a flow has in flight at the floor: the byte over a segment is for its receiver.
func (l *load) least() float64 {
	if l.Floor > 0 {
		return l.Floor
	}
	return l.Segment
}

// supply is the payload that all flows together have in flight when the queue holds this many bytes: with
// their part f of the rate, f*(C*R + Q) less headers.
func (l *load) supply(queue float64) float64 {
	return l.flowShare() * (l.bdp() + queue) * l.Segment / l.Frame
}

// onWire is what so much payload of one flow is on the wire: whole segments and what is left.
func (l *load) onWire(payload float64) float64 {
	whole := math.Floor(payload / l.Segment)
	bytes := whole * l.Frame
	if tail := payload - whole*l.Segment; tail > 0 {
		bytes += tail + l.Frame - l.Segment
	}
	return bytes
}

// queueOf is the queue when all flows together have this much payload in flight.
func (l *load) queueOf(inFlight float64) float64 {
	return max(0, inFlight*l.Frame/l.Segment/l.flowShare()-l.bdp())
}

// window is the share of each of n flows at the target: what the law's windows settle at when every
// flow fills its own.
func (l *load) window(n float64) float64 {
	w := l.supply(l.Target) / max(n, 1)
	if l.Cap > 0 {
		w = min(w, l.Cap)
	}
	return max(w, l.floor())
}

// windowLeft is the share when the flows that have less in flight than theirs leave the rest to the others.
func (l *load) windowLeft() float64 {
	sorted := slices.Clone(l.InFlight)
	slices.Sort(sorted)
	left, n := l.supply(l.Target), max(l.Flows, float64(len(sorted)))
	if n < 1 {
		return l.window(1)
	}
	for _, have := range sorted {
		if have >= left/n || n <= 1 {
			break
		}
		left -= have
		n--
	}
	w := max(left/n, l.window(l.Flows))
	if l.Cap > 0 {
		w = max(min(w, l.Cap), l.floor())
	}
	return w
}

// predict says what the law makes of the load.
func predict(l *load) prediction {
	p := prediction{Window: l.window(l.Flows), WindowMost: l.windowLeft()}
	p.Room = int(max(0, l.Buffer-l.Target) / (initialWindow * l.Frame))
	// The queue that remains when every flow has its least window in flight.
	least := l.queueOf(max(l.Flows, 0) * l.least())
	settled := l.Target
	switch {
	case l.Other >= otherMost:
		p.OtherFillsAll = true
		p.note("other traffic takes %.0f %% of the rate: windows do not change its queue", 100*l.Other)
		p.Queue, p.QueueLeast, p.QueueMost = l.QueueNow, min(l.QueueCut, l.QueueNow), l.QueueNow
		p.Drops, p.DropsMost = l.DropsPerSecond, l.DropsPerSecond
		return p
	case least > l.Buffer:
		p.Floored, p.Overfull = true, true
		settled = l.Buffer
		p.note("one segment of each flow is more than the pipe and the buffer hold: the queue stays full and drops go on")
	case least > l.Target:
		p.Floored = true
		settled = least
		p.note("one segment of each flow is more than the pipe and the target hold: the queue stays above the target")
	}
	p.queue(l, settled)
	switch {
	case p.Overfull:
		p.Drops, p.DropsMost = l.DropsPerSecond, l.DropsPerSecond
	case l.NewFlows > float64(p.Room):
		p.DropsMost = l.DropsPerSecond
		p.note("up to %.0f flows begin within a quarter of a second, and %d at once are what fits above the target", l.NewFlows, p.Room)
	}
	return p
}

// queue: while some flow would fill a larger window, the law lets windows grow until the queue is as long
// as it shall be; while none would, it only cuts what is longer.
func (p *prediction) queue(l *load, settled float64) {
	elastic := min(max(l.Elastic, 0), 1)
	if l.Flows <= 0 {
		elastic = 0
	}
	idle := min(l.QueueApp, settled)
	p.Queue = min(idle+elastic*(settled-idle), settled) // rounding
	p.QueueLeast = min(l.QueueCut, p.Queue)
	p.QueueMost = p.Queue
	if elastic > 0 || l.DropsPerSecond > 0 {
		// Who lost packets may have more to send than it could show.
		p.QueueMost = max(p.Queue, settled)
	}
	if l.Granted > l.floor() && elastic > 0 {
		// Windows are written in steps of 1 << scale, rounded up, and some senders use what that adds.
		rounded := l.Flows*l.onWire(l.Granted)/l.flowShare() - l.bdp()
		p.QueueMost = min(max(p.QueueMost, rounded), l.Buffer)
	}
}

func (p *prediction) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}
