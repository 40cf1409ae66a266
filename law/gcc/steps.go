package gcc

import (
	"time"

	"weir/law"
)

// Constants of the published code (SPEC 1.8).
const (
	ovsRecent  = 4 * time.Millisecond // marks count for so long
	ovsWeight  = 16
	codeRecent = 3 * time.Millisecond // after it a lower mark rate counts, too
	codeSpare  = 10e6                 // bit/s that must remain after a step
)

// stepState is what a variant keeps of a VM.
type stepState struct {
	out   uint64  // packets since the last fractions
	marks float64 // since then
	alpha float64 // the moving average of the marked fraction: 0 to 1

	before   float64 // the rate when congestion began
	lastRate float64 // marks in the last message
}

// marked takes a message: marks of a VM within about an interval.
func (h *Host) marked(now time.Duration, g *guest, marks float64) {
	since := now - g.heard
	first := !g.congested
	g.congested, g.heard = true, now
	s := &g.steps
	switch h.p.Variant {
	case OVS:
		s.marks += marks
	case Code:
		if first {
			s.before = g.rate
		}
		step := float64(h.p.Decrease) * marks
		if g.rate > step/5+codeSpare && (marks >= s.lastRate || since >= codeRecent) {
			g.rate = max(g.least, g.rate-step)
		}
		s.lastRate = marks
	default:
		g.rate = max(g.least, g.rate*(1-h.p.Gain*h.fraction(marks)))
	}
}

// fraction is marked packets as a part of those that the uplink could have sent in an interval, at most 1. The paper divides marks
// by the time since the last message, which is long for the first one (GS-4), and short if two controllers or two switches send at
// the same time. Each message is about one interval.
func (h *Host) fraction(marks float64) float64 {
	could := h.uplink * time.Duration(h.p.Interval).Seconds() / (8 * law.PacketBytes)
	return min(1, marks/could)
}

// rise is a period of the timer, for a VM that is active.
func (h *Host) rise(at time.Duration, g *guest) {
	if h.p.Variant == OVS {
		return
	}
	quiet := at - g.heard
	ended := g.congested && quiet >= time.Duration(h.p.Timeout)
	if ended {
		g.congested = false
	}
	if g.congested {
		return
	}
	step := float64(h.p.Increase) * g.weight
	switch {
	case h.p.Variant == Code && ended:
		step = (g.rate+g.steps.before)/2 + h.share(g)/10 - g.rate
	case h.p.Variant == Paper && h.p.FastAfter > 0 && quiet >= time.Duration(h.p.FastAfter):
		step = max(step, float64(h.p.FastIncrease)*g.weight)
	}
	g.rate = min(h.share(g), g.rate+step)
}

// fractions ends an interval of the listings' law: the fraction of marked packets, and the rate that follows.
func (h *Host) fractions(now time.Duration) {
	for _, g := range h.guests {
		if !g.active {
			continue
		}
		s := &g.steps
		f := 0.0
		if now-g.heard <= max(ovsRecent, time.Duration(h.p.Interval)) && s.out > 0 {
			f = min(1, s.marks/float64(s.out)) // GO-6
		}
		s.alpha += (f - s.alpha) / ovsWeight
		s.out, s.marks = 0, 0 // GO-2
		g.rate = max(g.least, h.share(g)*(1-s.alpha))
	}
}
