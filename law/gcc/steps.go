package gcc

import (
	"time"

	"weir/law/limiter"
)

// Constants of the Open vSwitch listings (SPEC 1.8).
const (
	ovsRecent = 4 * time.Millisecond // marks count for so long
	ovsWeight = 16
)

// steps is what a variant keeps of a VM.
type steps struct {
	marks     float64 // since the last fractions
	alpha     float64 // the moving average of the marked fraction: 0 to 1
	published limiter.Published
}

// Marked takes a message: marks of a VM within about an interval.
func (h *Host) Marked(g *guest, marks float64, first bool, since time.Duration) {
	switch h.p.Variant {
	case OVS:
		g.State.marks += marks
	case Code:
		g.Rate = h.p.Params.Fall(&g.State.published, g.Rate, g.Least, marks, float64(h.p.Decrease), first, since)
	default:
		g.Rate = h.p.Steps.Fall(g.Rate, g.Least, marks, h.Could())
	}
}

// Rise is a period of the timer, for a VM that is active and not congested.
func (h *Host) Rise(g *guest, ended bool, quiet time.Duration) {
	if h.p.Variant == Code {
		g.Rate = h.p.Params.Rise(&g.State.published, g.Rate, g.Share, g.Weight, ended)
		return
	}
	g.Rate = h.p.Steps.Rise(g.Rate, g.Share, g.Weight, float64(h.p.Increase), quiet)
}

// Seen ends an interval of the listings' law: the fraction of marked packets, and the rate that follows.
func (h *Host) Seen(now time.Duration, guests []*guest) {
	for _, g := range guests {
		if !g.Active || h.p.Variant != OVS {
			g.Out = 0
			continue
		}
		s := &g.State
		f := 0.0
		if now-g.Heard <= max(ovsRecent, time.Duration(h.p.Interval)) && g.Out > 0 {
			f = min(1, s.marks/float64(g.Out)) // GO-6
		}
		s.alpha += (f - s.alpha) / ovsWeight
		g.Out, s.marks = 0, 0 // GO-2
		g.Rate = max(g.Least, g.Share*(1-s.alpha))
	}
}
