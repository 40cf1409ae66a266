package gcc

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/telemetry"
)

// hostModel is the half at a host, slow and obvious. For each question it begins anew, and goes through all periods and events from
// the beginning.
type hostModel struct {
	p      Config
	events []hostEvent
}

type hostEvent struct {
	at time.Duration
	e  law.Event
}

type modelVM struct {
	inventory.VM
	active               bool
	sent, heard          time.Duration
	rate, before, alpha  float64
	congested            bool
	out, marks, previous float64
}

// rates are the rates of the active VMs after all events.
func (m *hostModel) rates(until time.Duration) map[law.VM]float64 {
	vms := map[law.VM]*modelVM{}
	uplink := 0.0
	weight := func(v *modelVM) float64 { return float64(max(v.Guarantee.Weight, 1)) }
	least := func(v *modelVM) float64 { return float64(max(v.Guarantee.Rate, m.p.MinRate)) }
	// A level, multiplied by the weight, is the share of each VM that its least rate does not exceed. The shares make up the uplink.
	share := func(v *modelVM) float64 {
		low, high := 0.0, uplink
		for range 100 {
			level, all := (low+high)/2, 0.0
			for _, o := range vms {
				if o.active {
					all += max(least(o), level*weight(o))
				}
			}
			if all > uplink {
				high = level
			} else {
				low = level
			}
		}
		return max(least(v), low*weight(v))
	}
	shrink := func() {
		for _, v := range vms {
			if v.active {
				v.rate = math.Min(v.rate, share(v))
			}
		}
	}
	period := func(at time.Duration) {
		ended := false
		for _, v := range vms {
			if v.active && at-v.sent >= time.Duration(m.p.Inactivity) {
				v.active, ended = false, true
			}
		}
		if ended {
			shrink()
		}
		for _, v := range vms {
			if !v.active || m.p.Variant == OVS {
				continue
			}
			jump := false
			if at-v.heard >= time.Duration(m.p.Timeout) {
				jump = v.congested
				v.congested = false
			}
			if v.congested {
				continue
			}
			switch {
			case jump && m.p.Variant == Code:
				v.rate = v.rate/2 + v.before/2 + share(v)/10
			case m.p.Variant == Paper && at-v.heard >= time.Duration(m.p.FastAfter):
				v.rate += weight(v) * float64(m.p.FastIncrease)
			default:
				v.rate += weight(v) * float64(m.p.Increase)
			}
			v.rate = math.Min(v.rate, share(v))
		}
	}
	next := time.Duration(m.p.Period)
	run := func(to time.Duration) {
		for ; next <= to; next += time.Duration(m.p.Period) {
			period(next)
		}
	}
	for _, he := range m.events {
		run(he.at)
		switch e := he.e.(type) {
		case *inventory.Host:
			uplink = float64(e.Rate)
			old := vms
			vms = map[law.VM]*modelVM{}
			for _, v := range e.VMs {
				vms[v.Number] = &modelVM{}
				if was := old[v.Number]; was != nil {
					vms[v.Number] = was
				}
				vms[v.Number].VM = v
			}
			shrink()
		case *telemetry.Sent:
			began := false
			for _, s := range e.VMs {
				v := vms[s.VM]
				if v == nil || s.Packets == 0 {
					continue
				}
				v.sent = he.at
				v.out += float64(s.Packets)
				if !v.active {
					began = true
					*v = modelVM{VM: v.VM, active: true, sent: he.at, heard: he.at, rate: math.Inf(1), out: float64(s.Packets)}
				}
			}
			if began {
				shrink()
			}
			for _, v := range vms {
				if m.p.Variant != OVS || !v.active {
					continue
				}
				part := 0.0
				if he.at-v.heard <= 5*ms && v.out > 0 {
					part = math.Min(1, v.marks/v.out)
				}
				v.alpha = v.alpha*15/16 + part/16
				v.out, v.marks = 0, 0
				v.rate = math.Max(least(v), share(v)*(1-v.alpha))
			}
		case *telemetry.Marked:
			v := vms[e.VM]
			if v == nil || !v.active || e.Marks == 0 {
				continue
			}
			n := float64(e.Marks) / 256
			gone := he.at - v.heard
			if !v.congested {
				v.before = v.rate
			}
			v.congested, v.heard = true, he.at
			switch m.p.Variant {
			case OVS:
				v.marks += n
			case Code:
				if v.rate/1e6 > n+10 && (n >= v.previous || gone >= 3*ms) {
					v.rate = math.Max(least(v), v.rate-n*5e6)
				}
				v.previous = n
			case Paper:
				line := uplink / 8 / 1500 * 0.005 // packets in 5 ms
				v.rate = math.Max(least(v), v.rate-v.rate*0.8*math.Min(1, n/line))
			}
		}
	}
	run(until)
	out := map[law.VM]float64{}
	for n, v := range vms {
		if v.active {
			out[n] = v.rate
		}
	}
	return out
}

// In each variant the rates equal the model's, however late the ticks are. Grants follow the rates.
func TestHost_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Default()
		p.Variant = rapid.SampledFrom([]string{Paper, OVS, Code}).Draw(t, "variant")
		p.Inactivity = law.Duration(rapid.IntRange(20, 200).Draw(t, "inactivity")) * law.Duration(ms)
		p.FastAfter = law.Duration(rapid.IntRange(15, 100).Draw(t, "fast after")) * law.Duration(ms)
		h, err := NewHost(*p)
		if err != nil {
			t.Fatal(err)
		}
		m := &hostModel{p: *p}
		granted := map[law.VM]uint64{}
		now, uplink := time.Duration(0), 0.0
		step := func(e law.Event) {
			for _, a := range h.Step(now, e, nil) {
				g := a.(law.Grant)
				if granted[g.Key.VM] = g.Value; g.Lease == 0 {
					delete(granted, g.Key.VM)
				}
			}
		}
		kinds := []func(*rapid.T) law.Event{drawnHost, drawnSent, drawnSent, drawnMarked, drawnMarked, drawnMarked}
		for i := range rapid.IntRange(2, 30).Draw(t, "events") {
			at := now + time.Duration(rapid.IntRange(0, 30_000).Draw(t, "us"))*time.Microsecond
			if rapid.Bool().Draw(t, "ticks in time") {
				for w := h.Wake(); w != 0 && w <= at; w = h.Wake() {
					now = w
					step(law.Tick{})
				}
			}
			now = at
			e := kinds[0](t)
			if i > 0 {
				e = rapid.SampledFrom(kinds).Draw(t, "kind")(t)
			}
			if has, is := e.(*inventory.Host); is {
				uplink = float64(has.Rate)
				for vm := range granted { // a host removes the grants of a VM that leaves
					if !slices.ContainsFunc(has.VMs, func(v inventory.VM) bool { return v.Number == vm }) {
						delete(granted, vm)
					}
				}
			}
			m.events = append(m.events, hostEvent{now, e})
			step(e)
			want := m.rates(now)
			for _, g := range h.Guests() {
				r, active := want[g.Number]
				if g.Active != active {
					t.Fatalf("at %v VM %d is active: %v, want %v", now, g.Number, g.Active, active)
				}
				if active && math.Abs(g.Rate-r) > 1e-6*r+1e-3 {
					t.Fatalf("at %v VM %d has %v, want %v", now, g.Number, g.Rate, r)
				}
				limited := active && uplink > 0 && g.Rate < uplink
				is := float64(granted[g.Number])
				if limited != (is > 0) || limited && math.Abs(is-g.Rate) > g.Rate/190+1 {
					t.Fatalf("at %v VM %d has %v of %v and is granted %v", now, g.Number, g.Rate, uplink, is)
				}
			}
		}
	})
}
