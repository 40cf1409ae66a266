package switchd

import (
	"fmt"
	"math"
	"slices"
)

// load describes the measured traffic of a port, with windows as their receivers wrote them. Rates are in bytes/s,
// sizes in bytes. Queues count headers, windows do not.
type load struct {
	Rate, RTT      float64 // C; R in s, with empty queues
	Buffer, Target float64 // B; αB
	Cap            float64 // the largest window that the law grants; 0: no limit
	Floor          float64 // the smallest window that the law is configured to grant; 0: a segment and a byte
	Frame, Segment float64 // the largest packet of the port, and its payload
	LongestWait    float64 // of a packet for its credit, s
	Granted        float64 // mean of the floor rounded up to the units of the receivers' windows; 0: the floor itself
	Other          float64 // 0 to 1: fraction of C that is not data of the flows
	Flows          float64 // β, mean over the time with flows

	InFlight []float64 // of each flow, mean of the readings that showed it
	Elastic  float64   // 0 to 1: fraction of the time with a flow that would fill a larger window
	QueueNow float64   // mean over the whole time
	QueueCut float64   // mean of min(queue, target) over the whole time
	QueueApp float64   // the same over the time without an elastic flow

	Paced      float64 // 0 to 1: fraction of the time in which one segment of each flow exceeded BDP and target
	PacedFlows float64 // mean number of flows over that time

	DropsPerSecond float64
	NewFlows       float64 // the most flows that began between two readings
}

// prediction is the expected effect of the law on a load. docs/observe.md derives each line and states its error.
type prediction struct {
	Window, WindowMost               float64 // of each flow that is limited
	Queue, QueueLeast, QueueMost     float64 // mean
	Drops, DropsMost                 float64 // per second
	Room                             int     // flows that may begin at the same time without a drop
	Parked                           float64 // acknowledgements per second that would wait with credits
	Wait                             float64 // of each of them, s
	Floored, Overfull, OtherFillsAll bool
	Notes                            []string
}

const (
	initialWindow = 10   // segments that a sender may send at first (RFC 6928)
	otherMost     = 0.98 // of the rate: above it nothing useful can be calculated for the rest
)

// bdp returns C*R: the bytes in flight with empty queues.
func (l *load) bdp() float64 { return l.Rate * l.RTT }

// flowShare returns the fraction of the rate that the flows have together.
func (l *load) flowShare() float64 { return 1 - min(max(l.Other, 0), otherMost) }

func (l *load) floor() float64 {
	if l.Floor > 0 {
		return l.Floor
	}
	return l.Segment + 1
}

// least returns what a flow has in flight at the floor. The extra byte above a segment only makes its receiver
// acknowledge at once.
func (l *load) least() float64 {
	if l.Floor > 0 {
		return l.Floor
	}
	return l.Segment
}

// supply returns the payload in flight of all flows together when the queue has this length: f*(C*R + Q) less headers,
// where f is the flows' share of the rate.
func (l *load) supply(queue float64) float64 {
	return l.flowShare() * (l.bdp() + queue) * l.Segment / l.Frame
}

// onWire returns the bytes on the wire for so much payload of one flow: whole segments and a rest.
func (l *load) onWire(payload float64) float64 {
	whole := math.Floor(payload / l.Segment)
	bytes := whole * l.Frame
	if tail := payload - whole*l.Segment; tail > 0 {
		bytes += tail + l.Frame - l.Segment
	}
	return bytes
}

// queueOf returns the queue when all flows together have this much payload in flight.
func (l *load) queueOf(inFlight float64) float64 {
	return max(0, inFlight*l.Frame/l.Segment/l.flowShare()-l.bdp())
}

// window returns the window of each of n flows with the queue at the target: the value at which windows settle when
// every flow fills its own.
func (l *load) window(n float64) float64 {
	w := l.supply(l.Target) / max(n, 1)
	if l.Cap > 0 {
		w = min(w, l.Cap)
	}
	return max(w, l.floor())
}

// windowLeft returns the window when flows with less in flight leave the rest of theirs to the others.
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

// paces reports whether a port with credits would pace n flows: one segment of each exceeds BDP and target.
func (l *load) paces(n float64) bool { return n*l.floor() > l.bdp()+l.Target }

// credits returns how many acknowledgements per second would wait with credits, and for how long each. While the port
// paces, every segment has an acknowledgement that waited until the port had room: one cycle of all flows less BDP and
// target. Requests and handshakes, which wait too, are not included.
func (l *load) credits() (parked, wait float64) {
	rate := l.flowShare() * l.Rate
	if l.Paced <= 0 || rate <= 0 {
		return 0, 0
	}
	ahead := l.PacedFlows*l.onWire(l.floor()) - l.bdp() - l.Target
	return l.Paced * rate / l.onWire(l.floor()), min(max(0, ahead)/rate, l.LongestWait)
}

// predict calculates the expected effect of the law on the load.
func predict(l *load) prediction {
	p := prediction{Window: l.window(l.Flows), WindowMost: l.windowLeft()}
	p.Parked, p.Wait = l.credits()
	p.Room = int(max(0, l.Buffer-l.Target) / (initialWindow * l.Frame))
	// The queue that remains when every flow has its smallest window in flight.
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
		p.note("one segment of each flow is more than BDP and buffer together: the queue stays full and drops continue")
	case least > l.Target:
		p.Floored = true
		settled = least
		p.note("one segment of each flow is more than BDP and target together: the queue stays above the target")
	}
	p.queue(l, settled)
	switch {
	case p.Overfull:
		p.Drops, p.DropsMost = l.DropsPerSecond, l.DropsPerSecond
	case l.NewFlows > float64(p.Room):
		p.DropsMost = l.DropsPerSecond
		p.note("up to %.0f flows begin within a quarter of a second; the buffer above the target has room for %d at once", l.NewFlows, p.Room)
	}
	return p
}

// queue sets the expected queue. While some flow would fill a larger window, the law lets windows grow until the queue
// is at the target. Otherwise it only cuts longer queues.
func (p *prediction) queue(l *load, settled float64) {
	elastic := min(max(l.Elastic, 0), 1)
	if l.Flows <= 0 {
		elastic = 0
	}
	idle := min(l.QueueApp, settled)
	p.Queue = min(idle+elastic*(settled-idle), settled) // the minimum only guards against rounding
	p.QueueLeast = min(l.QueueCut, p.Queue)
	p.QueueMost = p.Queue
	if elastic > 0 || l.DropsPerSecond > 0 {
		// A flow that lost packets may have more to send than it could show.
		p.QueueMost = max(p.Queue, settled)
	}
	if l.Granted > l.floor() && elastic > 0 {
		// Windows are written in steps of 1 << scale, rounded up, and some senders use the difference.
		rounded := l.Flows*l.onWire(l.Granted)/l.flowShare() - l.bdp()
		p.QueueMost = min(max(p.QueueMost, rounded), l.Buffer)
	}
}

func (p *prediction) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}
