package hygenicc

import (
	"time"

	"weir/law"
	"weir/law/limiter"
)

// bitPart is the part of Decrease that a mark in a reserved bit takes: 1 of 5 Mbit/s (published code).
const bitPart = 5

// Host is the half at the host that sends: the rate of each VM. Make one with NewHost.
type Host struct {
	*limiter.Shim[limiter.Published]
	p Config
}

type guest = limiter.Guest[limiter.Published]

var _ law.Law = (*Host)(nil)

// NewHost returns the half at a host. The error says which parameter is wrong.
func NewHost(p Config) (*Host, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	h := &Host{p: p}
	h.Shim = limiter.NewShim[limiter.Published](p.Params, p.Interval, true, h)
	return h, nil
}

// Marked takes the marks of a message or of a bit.
func (h *Host) Marked(g *guest, marks float64, first bool, since time.Duration) {
	if h.p.Variant == Proportional {
		g.Rate = h.p.Steps.Fall(g.Rate, g.Least, marks, h.Could())
		return
	}
	step := float64(h.p.Decrease)
	if h.p.Feedback == Bit {
		step /= bitPart
	}
	g.Rate = h.p.Params.Fall(&g.State, g.Rate, g.Least, marks, step, first, since)
}

// Rise is a period of the timer, for a VM that is active and not congested.
func (h *Host) Rise(g *guest, ended bool, quiet time.Duration) {
	if h.p.Variant == Proportional {
		g.Rate = h.p.Steps.Rise(g.Rate, g.Share, g.Weight, float64(h.p.Increase), quiet)
		return
	}
	g.Rate = h.p.Params.Rise(&g.State, g.Rate, g.Share, g.Weight, ended)
}

// Seen does nothing: rates follow from messages and the clock.
func (h *Host) Seen(_ time.Duration, guests []*guest) {}
