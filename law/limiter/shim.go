package limiter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// MaxVMs is how many VMs of a host have rates. The uplink is divided among these only.
const MaxVMs = 1 << 12

// leastLease is the shortest lease of a rate. It ends a while after its process does.
const leastLease = time.Second

// Shim is the half of a law at a hypervisor (SPEC 1.6): which VMs are active, their shares of the uplink, the timer, and the grants. A
// Rule decides the rates. Make one with NewShim. Enforcement is the host's: a token bucket whose stamp advances at each refill (GS-1),
// in bytes (GS-2).
type Shim[S any] struct {
	p      Params
	rule   Rule[S]
	timed  bool
	uplink float64 // bit/s; 0: not known, and there are no limits
	lease  time.Duration
	// interval is the time between two messages.
	interval time.Duration
	guests   []*Guest[S] // ascending by number
	byVM     map[law.VM]*Guest[S]
	order    []*Guest[S]   // of divide
	next     time.Duration // the timer's next period
	counts   Counts
}

// Rule decides the rates of VMs. S is what it keeps of each VM.
type Rule[S any] interface {
	// Marked takes a message: marked packets of an active VM. first: it was not congested before. since: the message before.
	Marked(g *Guest[S], marks float64, first bool, since time.Duration)
	// Rise is a period of the timer, for an active VM that is not congested. ended: it was, until this period. quiet: since the last mark.
	Rise(g *Guest[S], ended bool, quiet time.Duration)
	// Seen ends an interval: the guests' Out is what they sent in it.
	Seen(now time.Duration, guests []*Guest[S])
}

// Counts is what a host's half did.
type Counts struct {
	Messages uint64 // with marks
	Unknown  uint64 // messages for VMs that are not here
	Granted  uint64
	TooMany  uint64 // VMs over the limit
}

// Guest is a VM.
type Guest[S any] struct {
	Number law.VM
	Weight float64 // share of the uplink, relative to other active VMs
	Least  float64 // bit/s: the rate does not fall below it
	Active bool
	Share  float64 // Capacity_Share of an active VM, bit/s
	Rate   float64 // R, bit/s
	Out    uint64  // packets that it sent; the rule sets it to 0

	Congested bool
	Heard     time.Duration // congtime: when the last message came
	State     S             // of the rule; its zero value when the VM begins to send

	Granted uint64 // bit/s; 0: no limit

	sent time.Duration // when it was seen to send last
	at   time.Duration // when a rate was granted last
}

// NewShim returns the half at a host. interval is the time between two messages, and timed has Rise called.
func NewShim[S any](p Params, interval law.Duration, timed bool, rule Rule[S]) *Shim[S] {
	return &Shim[S]{
		p: p, rule: rule, timed: timed, lease: max(leastLease, 3*time.Duration(interval)), interval: time.Duration(interval), byVM: map[law.VM]*Guest[S]{}, next: time.Duration(p.Period),
	}
}

// Counts returns what it did so far.
func (h *Shim[S]) Counts() Counts { return h.counts }

// Uplink returns the rate of the uplink, bit/s; 0: not known.
func (h *Shim[S]) Uplink() float64 { return h.uplink }

// Could returns how many full packets the uplink could have sent in an interval.
func (h *Shim[S]) Could() float64 { return h.uplink * h.interval.Seconds() / (8 * law.PacketBytes) }

// Guests returns the VMs, ascending by number. Only a Rule may change them.
func (h *Shim[S]) Guests() []*Guest[S] { return h.guests }

// Of returns a VM; nil: it is not here. Only a Rule may change it.
func (h *Shim[S]) Of(vm law.VM) *Guest[S] { return h.byVM[vm] }

// Rate returns the granted rate of a VM; 0: it has no limit.
func (h *Shim[S]) Rate(vm law.VM) law.Rate {
	if g := h.byVM[vm]; g != nil {
		return law.Rate(g.Granted)
	}
	return 0
}

// Step takes one event.
func (h *Shim[S]) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	h.timer(now)
	switch e := e.(type) {
	case *inventory.Host:
		h.set(e)
	case *telemetry.Sent:
		h.sent(now, e)
	case *telemetry.Marked:
		if g := h.byVM[e.VM]; g == nil {
			h.counts.Unknown++
		} else if e.Marks > 0 && g.Active { // GS-3
			h.counts.Messages++
			first, since := !g.Congested, now-g.Heard
			g.Congested, g.Heard = true, now
			h.rule.Marked(g, float64(e.Marks)/telemetry.OneMark, first, since)
		}
	}
	for _, g := range h.guests {
		out = h.grant(now, g, out)
	}
	return out
}

// Wake returns the time of the next period at which a rate may change, or of the next grant.
func (h *Shim[S]) Wake() time.Duration {
	wake := time.Duration(0)
	at := func(t time.Duration) {
		if wake == 0 || t < wake {
			wake = t
		}
	}
	for _, g := range h.guests {
		if g.Granted > 0 {
			at(g.at + law.Renewal(h.lease))
		}
		if !g.Active {
			continue
		}
		if h.moves(g) {
			at(h.next)
		} else {
			at(h.period(g.sent + time.Duration(h.p.Inactivity)))
		}
	}
	return wake
}

// period returns the first period at or after a time.
func (h *Shim[S]) period(t time.Duration) time.Duration {
	if t <= h.next {
		return h.next
	}
	p := time.Duration(h.p.Period)
	return h.next + (t-h.next+p-1)/p*p
}

// set replaces the VMs of this host.
func (h *Shim[S]) set(e *inventory.Host) {
	h.uplink = float64(e.Rate)
	for _, g := range h.guests {
		if !slices.ContainsFunc(e.VMs, func(v inventory.VM) bool { return v.Number == g.Number }) {
			delete(h.byVM, g.Number)
		}
	}
	h.guests = slices.DeleteFunc(h.guests, func(g *Guest[S]) bool { return h.byVM[g.Number] != g })
	for i := range e.VMs {
		v := &e.VMs[i]
		g := h.byVM[v.Number]
		if g == nil {
			if len(h.guests) >= MaxVMs {
				h.counts.TooMany++
				continue
			}
			g = &Guest[S]{Number: v.Number}
			h.byVM[v.Number] = g
			h.guests = append(h.guests, g)
		}
		g.Weight, g.Least = float64(max(v.Guarantee.Weight, 1)), max(float64(v.Guarantee.Rate), float64(h.p.MinRate))
	}
	slices.SortFunc(h.guests, func(a, b *Guest[S]) int { return cmp.Compare(a.Number, b.Number) })
	h.divide()
}

// divide divides the uplink by weight among the VMs that are active (GO-1: a VM that was never seen is not). A VM whose part is less than
// its least rate gets that rate, and the others divide what is left. Rates above the new share fall to it; those below rise later.
func (h *Shim[S]) divide() {
	h.order = h.order[:0]
	left, weight := h.uplink, 0.0
	for _, g := range h.guests {
		if g.Active {
			h.order = append(h.order, g)
			weight += g.Weight
		}
	}
	slices.SortStableFunc(h.order, func(a, b *Guest[S]) int { return cmp.Compare(b.Least/b.Weight, a.Least/a.Weight) })
	for i, g := range h.order {
		if left*g.Weight >= g.Least*weight { // so it is for all behind it
			for _, g := range h.order[i:] {
				g.Share = left * g.Weight / weight
			}
			break
		}
		g.Share = g.Least
		left, weight = left-g.Least, weight-g.Weight
	}
	for _, g := range h.order {
		g.Rate = min(g.Rate, g.Share)
	}
}

// sent notes which VMs sent. A VM that was not active begins with its share.
func (h *Shim[S]) sent(now time.Duration, e *telemetry.Sent) {
	began := false
	for _, v := range e.VMs {
		g := h.byVM[v.VM]
		if g == nil || v.Packets == 0 {
			continue
		}
		g.sent = now
		g.Out += v.Packets
		if !g.Active {
			began = true
			var none S
			g.Active, g.Rate, g.Out, g.State = true, math.Inf(1), v.Packets, none
			g.Congested, g.Heard = false, now
		}
	}
	if began {
		h.divide()
	}
	h.rule.Seen(now, h.guests)
}

// timer runs the periods up to now. A world may call late.
func (h *Shim[S]) timer(now time.Duration) {
	for h.next <= now {
		if !h.runs(now) {
			h.next = h.period(now)
			if h.next == now {
				h.next += time.Duration(h.p.Period)
			}
			return
		}
		at := h.next
		h.next += time.Duration(h.p.Period)
		ended := false
		for _, g := range h.guests {
			if g.Active && at-g.sent >= time.Duration(h.p.Inactivity) {
				g.Active, ended = false, true
			}
		}
		if ended {
			h.divide()
		}
		if !h.timed {
			continue
		}
		for _, g := range h.guests {
			if g.Active {
				h.rise(at, g)
			}
		}
	}
}

// rise is a period for an active VM.
func (h *Shim[S]) rise(at time.Duration, g *Guest[S]) {
	quiet := at - g.Heard
	ended := g.Congested && quiet >= time.Duration(h.p.Timeout)
	if ended {
		g.Congested = false
	}
	if !g.Congested {
		h.rule.Rise(g, ended, quiet)
	}
}

// runs reports whether a period up to now changes anything.
func (h *Shim[S]) runs(now time.Duration) bool {
	return slices.ContainsFunc(h.guests, func(g *Guest[S]) bool {
		return g.Active && (h.moves(g) || now-g.sent >= time.Duration(h.p.Inactivity))
	})
}

// moves reports whether periods change the rate of an active VM.
func (h *Shim[S]) moves(g *Guest[S]) bool {
	return h.timed && (g.Congested || g.Rate < g.Share)
}

// grant sets the limit of a VM, if it differs from the last one, or again. The only active VM of a host has the whole uplink,
// and needs no limit.
func (h *Shim[S]) grant(now time.Duration, g *Guest[S], out []law.Action) []law.Action {
	bps := uint64(0)
	if h.uplink > 0 && g.Active && g.Rate < h.uplink {
		bps = max(uint64(g.Rate), 1)
	}
	key := law.Key{Pair: law.Pair{VM: g.Number}}
	switch {
	case bps == 0 && g.Granted == 0:
		return out
	case bps == 0:
		was := g.Granted
		g.Granted = 0
		return append(out, law.Grant{Kind: law.RateGrant, Key: key, Value: was})
	case !differs(g.Granted, bps) && now-g.at < law.Renewal(h.lease):
		return out
	}
	g.Granted, g.at = bps, now
	h.counts.Granted++
	return append(out, law.Grant{Kind: law.RateGrant, Key: key, Value: bps, Lease: h.lease})
}

// differs reports whether a rate is worth a change of the limiter: by more than 0.5 %.
func differs(is, want uint64) bool { return (max(is, want)-min(is, want))*200 > is }
