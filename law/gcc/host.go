package gcc

import (
	"cmp"
	"math"
	"slices"
	"time"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// maxVMs is how many VMs of a host have rates. The uplink is divided among these only.
const maxVMs = 1 << 12

// renewEvery is the time between two grants of a rate that stays. They end a while after their process does.
const (
	renewEvery = 300 * time.Millisecond
	leastLease = time.Second
)

// Host is the shim of Algorithm 1 at a hypervisor: the rate of each VM. Make one with NewHost. Enforcement is the host's: a
// token bucket whose stamp advances at each refill (GS-1), in bytes (GS-2).
type Host struct {
	p      Config
	uplink float64 // bit/s; 0: not known, and there are no limits
	lease  time.Duration
	guests []*guest // ascending by number
	byVM   map[law.VM]*guest
	weight float64       // of the active VMs
	next   time.Duration // the timer's next period
	counts HostCounts
}

// HostCounts is what a host's half did.
type HostCounts struct {
	Messages uint64 // with marks
	Unknown  uint64 // messages for VMs that are not here
	Granted  uint64
	TooMany  uint64 // VMs over the limit
}

// guest is a VM.
type guest struct {
	number law.VM
	weight float64 // share of the uplink, relative to other active VMs
	least  float64 // bit/s: the rate does not fall below it

	active bool
	sent   time.Duration // when it was seen to send last
	rate   float64       // R, bit/s

	congested bool
	heard     time.Duration // congtime: when the last message came
	steps     stepState

	granted uint64 // bit/s; 0: no limit
	at      time.Duration
}

// NewHost returns the half at a host. The error says which parameter is wrong.
func NewHost(p Config) (*Host, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	lease := max(leastLease, 3*time.Duration(p.Interval))
	return &Host{p: p, lease: lease, byVM: map[law.VM]*guest{}, next: time.Duration(p.Period)}, nil
}

// Counts returns what it did so far.
func (h *Host) Counts() HostCounts { return h.counts }

// Rate returns the rate of a VM; 0: it has no limit.
func (h *Host) Rate(vm law.VM) law.Rate {
	if g := h.byVM[vm]; g != nil {
		return law.Rate(g.granted)
	}
	return 0
}

// Step takes one event.
func (h *Host) Step(now time.Duration, e law.Event, out []law.Action) []law.Action {
	h.timer(now)
	switch e := e.(type) {
	case *inventory.Host:
		h.set(e)
	case *telemetry.Sent:
		h.sent(now, e)
	case *telemetry.Marked:
		if g := h.byVM[e.VM]; g == nil {
			h.counts.Unknown++
		} else if e.Marks > 0 && g.active { // GS-3
			h.counts.Messages++
			h.marked(now, g, float64(e.Marks)/telemetry.OneMark)
		}
	}
	for _, g := range h.guests {
		out = h.grant(now, g, out)
	}
	return out
}

// Wake returns the time of the next period at which a rate may change, or of the next grant.
func (h *Host) Wake() time.Duration {
	wake := time.Duration(0)
	at := func(t time.Duration) {
		if wake == 0 || t < wake {
			wake = t
		}
	}
	for _, g := range h.guests {
		if g.granted > 0 {
			at(g.at + renewEvery)
		}
		if !g.active {
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
func (h *Host) period(t time.Duration) time.Duration {
	if t <= h.next {
		return h.next
	}
	p := time.Duration(h.p.Period)
	return h.next + (t-h.next+p-1)/p*p
}

// set replaces the VMs of this host.
func (h *Host) set(e *inventory.Host) {
	h.uplink = float64(e.Rate)
	for _, g := range h.guests {
		if !slices.ContainsFunc(e.VMs, func(v inventory.VM) bool { return v.Number == g.number }) {
			delete(h.byVM, g.number)
		}
	}
	h.guests = slices.DeleteFunc(h.guests, func(g *guest) bool { return h.byVM[g.number] != g })
	for i := range e.VMs {
		v := &e.VMs[i]
		g := h.byVM[v.Number]
		if g == nil {
			if len(h.guests) >= maxVMs {
				h.counts.TooMany++
				continue
			}
			g = &guest{number: v.Number}
			h.byVM[v.Number] = g
			h.guests = append(h.guests, g)
		}
		g.weight, g.least = float64(max(v.Guarantee.Weight, 1)), max(float64(v.Guarantee.Rate), float64(h.p.MinRate))
	}
	slices.SortFunc(h.guests, func(a, b *guest) int { return cmp.Compare(a.number, b.number) })
	h.divide()
}

// divide divides the uplink among the VMs that are active (GO-1: a VM that was never seen is not). Rates above the new share
// fall to it; those below rise later.
func (h *Host) divide() {
	h.weight = 0
	for _, g := range h.guests {
		if g.active {
			h.weight += g.weight
		}
	}
	for _, g := range h.guests {
		if g.active {
			g.rate = min(g.rate, h.share(g))
		}
	}
}

// share is Capacity_Share of an active VM, in bit/s.
func (h *Host) share(g *guest) float64 { return max(h.uplink*g.weight/h.weight, g.least) }

// sent notes which VMs sent. A VM that was not active begins with its share.
func (h *Host) sent(now time.Duration, e *telemetry.Sent) {
	began := false
	for _, v := range e.VMs {
		g := h.byVM[v.VM]
		if g == nil || v.Packets == 0 {
			continue
		}
		g.sent = now
		g.steps.out += v.Packets
		if !g.active {
			g.active, began = true, true
			g.rate = math.Inf(1)
			g.congested, g.heard = false, now
			g.steps = stepState{out: v.Packets}
		}
	}
	if began {
		h.divide()
	}
	if h.p.Variant == OVS {
		h.fractions(now)
	}
}

// timer runs the periods up to now. A world may call late.
func (h *Host) timer(now time.Duration) {
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
			if g.active && at-g.sent >= time.Duration(h.p.Inactivity) {
				g.active, ended = false, true
			}
		}
		if ended {
			h.divide()
		}
		for _, g := range h.guests {
			if g.active {
				h.rise(at, g)
			}
		}
	}
}

// runs reports whether a period up to now changes anything.
func (h *Host) runs(now time.Duration) bool {
	return slices.ContainsFunc(h.guests, func(g *guest) bool {
		return g.active && (h.moves(g) || now-g.sent >= time.Duration(h.p.Inactivity))
	})
}

// moves reports whether periods change the rate of an active VM.
func (h *Host) moves(g *guest) bool {
	return h.p.Variant != OVS && (g.congested || g.rate < h.share(g))
}

// grant sets the limit of a VM, if it differs from the last one, or again. The only active VM of a host has the whole uplink,
// and needs no limit.
func (h *Host) grant(now time.Duration, g *guest, out []law.Action) []law.Action {
	bps := uint64(0)
	if h.uplink > 0 && g.active && g.rate < h.uplink {
		bps = max(uint64(g.rate), 1)
	}
	key := law.Key{Pair: law.Pair{VM: g.number}}
	switch {
	case bps == 0 && g.granted == 0:
		return out
	case bps == 0:
		was := g.granted
		g.granted = 0
		return append(out, law.Grant{Kind: law.RateGrant, Key: key, Value: was})
	case !differs(g.granted, bps) && now-g.at < renewEvery:
		return out
	}
	g.granted, g.at = bps, now
	h.counts.Granted++
	return append(out, law.Grant{Kind: law.RateGrant, Key: key, Value: bps, Lease: h.lease})
}

// differs reports whether a rate is worth a change of the limiter: by more than 0.5 %.
func differs(is, want uint64) bool { return (max(is, want)-min(is, want))*200 > is }
