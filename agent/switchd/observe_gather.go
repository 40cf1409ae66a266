package switchd

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// Limits on the memory of an observation, for any duration and any traffic.
const (
	queueBins    = 1024  // of the histogram of a queue, over its buffer
	flowsKept    = 65536 // flows of a port that are followed one by one; the others count in its sums
	flowsInFlow  = 0.5   // fraction of the readings of a flow that decides how it is classified
	flowsListed  = 10    // in a report, by default
	flowsListMax = 10_000
)

// flowNow is the present state of one flow whose data leaves by a port.
type flowNow struct {
	From, To netip.AddrPort
	InFlight float64 // bytes, recent maximum; 0: the flow is silent
	Offered  float64 // window that its receiver advertises, bytes; 0: not known
	Limit    float64 // window that it is limited to now, bytes; 0: not limited
	Scale    uint8   // window scale of its receiver
}

type flowKey struct{ from, to netip.AddrPort }

// flowSeen sums up what was seen of one flow.
type flowSeen struct {
	looks, over int // readings with data in flight; readings with more than its window in flight
	limited     int // readings in which it filled the window that it is limited to
	sum, most   float64
	offered     float64
	scale       uint8
}

// histogram is the distribution of a queue's length over time.
type histogram struct {
	bins [queueBins + 1]uint64 // the last: at or above the buffer
	n    uint64
	sum  float64
	most uint32
	of   float64 // the buffer, bytes
}

func (h *histogram) add(bytes uint32) {
	i := queueBins
	if f := float64(bytes) / h.of * queueBins; f < queueBins {
		i = int(f)
	}
	h.bins[i]++
	h.n++
	h.sum += float64(bytes)
	h.most = max(h.most, bytes)
}

func (h *histogram) mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// quantile returns an upper bound with an error of one bin: a thousandth of the buffer.
func (h *histogram) quantile(q float64) float64 {
	var below uint64
	need := uint64(math.Ceil(q * float64(h.n)))
	for i, n := range h.bins {
		if below += n; below >= need && below > 0 {
			return min(float64(i+1)/queueBins*h.of, float64(h.most))
		}
	}
	return float64(h.most)
}

// gather collects the measurements of one port.
type gather struct {
	base load // known from the beginning: rate, buffer, target, frames

	queue           histogram
	cut, app        float64 // sums of min(queue, target): over all samples, and over those without an elastic flow
	apps            uint64
	elasticNow      bool
	elastic, looks  int     // readings with an elastic flow; readings with flows
	flows, flowsMax float64 // sum and largest of the counts
	seen            map[flowKey]*flowSeen
	unlisted        int // flows that did not fit in seen
	allLooks        int
	newFlows        int
	paced           int     // readings in which a port with credits would pace
	pacedFlows      float64 // sum of their counts
}

func newGather(base load) *gather {
	g := &gather{base: base, seen: map[flowKey]*flowSeen{}}
	g.queue.of = base.Buffer
	return g
}

// sampled adds a sample of the queue.
func (g *gather) sampled(bytes uint32) {
	g.queue.add(bytes)
	cut := min(float64(bytes), g.base.Target)
	g.cut += cut
	if !g.elasticNow {
		g.app += cut
		g.apps++
	}
}

// looked adds a reading of the flows; counted is the kernel's count of active flows.
func (g *gather) looked(counted uint32, flows []flowNow) {
	first := g.allLooks == 0
	g.allLooks++
	g.elasticNow = false
	n := float64(counted)
	if n == 0 {
		return
	}
	g.looks++
	n = max(n, float64(g.lasting()))
	g.flows += n
	g.flowsMax = max(g.flowsMax, n)
	if g.base.paces(n) {
		g.paced++
		g.pacedFlows += n
	}
	window := g.base.window(n)
	begun := 0
	for i := range flows {
		f := &flows[i]
		if f.InFlight <= 0 {
			continue
		}
		over := f.InFlight > window
		g.elasticNow = g.elasticNow || over
		key := flowKey{f.From, f.To}
		s := g.seen[key]
		if s == nil {
			begun++
			if len(g.seen) == flowsKept {
				g.unlisted++
				continue
			}
			s = &flowSeen{}
			g.seen[key] = s
		}
		s.looks++
		if over {
			s.over++
		}
		s.sum += f.InFlight
		s.most = max(s.most, f.InFlight)
		s.offered = max(s.offered, f.Offered)
		s.scale = f.Scale
		if f.Limit > 0 && f.InFlight >= f.Limit-g.base.Segment {
			s.limited++
		}
	}
	if !first {
		g.newFlows = max(g.newFlows, begun)
	}
	if g.elasticNow {
		g.elastic++
	}
}

// lasting returns how many flows existed most of the time. With the law each of them counts all the time; at present
// those that wait for a timeout do not.
func (g *gather) lasting() (n int) {
	for _, s := range g.seen {
		if float64(s.looks) >= flowsInFlow*float64(g.looks) {
			n++
		}
	}
	return n
}

// load returns the input of predict. Drops per second and other traffic come from the counters at begin and end.
func (g *gather) load(dropsPerSecond, other float64) *load {
	l := g.base
	l.Other, l.DropsPerSecond, l.NewFlows = other, dropsPerSecond, float64(g.newFlows)
	l.QueueNow = g.queue.mean()
	if g.queue.n > 0 {
		l.QueueCut = g.cut / float64(g.queue.n)
	}
	if g.apps > 0 {
		l.QueueApp = g.app / float64(g.apps)
	}
	if g.looks > 0 {
		l.Flows = g.flows / float64(g.looks)
	}
	if g.allLooks > 0 {
		l.Elastic = float64(g.elastic) / float64(g.allLooks)
		l.Paced = float64(g.paced) / float64(g.allLooks)
		l.PacedFlows = g.pacedFlows / float64(max(g.paced, 1))
	}
	for _, s := range g.seen {
		if float64(s.looks) >= flowsInFlow*float64(g.looks) {
			l.InFlight = append(l.InFlight, s.sum/float64(s.looks))
			step := float64(uint32(1) << min(s.scale, 14))
			l.Granted += math.Ceil(l.floor()/step) * step
		}
	}
	l.Granted /= float64(max(len(l.InFlight), 1))
	return &l
}

// limited returns the flows that mostly had more in flight than their window would be, the largest first.
func (g *gather) limited() (out []LimitedFlow) {
	for key, s := range g.seen {
		if float64(s.over) >= flowsInFlow*float64(s.looks) {
			out = append(out, LimitedFlow{
				From: key.from, To: key.to, InFlightMost: uint64(s.most), InFlightMean: uint64(s.sum / float64(s.looks)),
				OfferedBytes: uint64(s.offered),
			})
		}
	}
	slices.SortFunc(out, func(a, b LimitedFlow) int {
		return cmp.Or(cmp.Compare(b.InFlightMean, a.InFlightMean), a.From.Compare(b.From), a.To.Compare(b.To))
	})
	return out
}

// limitedNow returns how many flows a running switch limits already.
func (g *gather) limitedNow() (n int) {
	for _, s := range g.seen {
		if s.limited > 0 && float64(s.limited) >= flowsInFlow*float64(s.looks) {
			n++
		}
	}
	return n
}

// LimitedFlow is a flow that the law would limit.
type LimitedFlow struct {
	From         netip.AddrPort `json:"from"`
	To           netip.AddrPort `json:"to"`
	InFlightMost uint64         `json:"in_flight_most_bytes"`
	InFlightMean uint64         `json:"in_flight_mean_bytes"`
	OfferedBytes uint64         `json:"offered_bytes,omitempty"` // by its receiver; 0: not known
}
