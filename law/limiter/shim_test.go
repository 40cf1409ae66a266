package limiter_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/law"
	"weir/law/inventory"
	"weir/law/lawtest"
	"weir/law/limiter"
	"weir/law/telemetry"
)

const ms = time.Millisecond

// halve is a rule that halves a rate at each message, and doubles it at each period.
type halve struct{}

func (halve) Marked(g *limiter.Guest[int], _ float64, _ bool, _ time.Duration) {
	g.Rate = max(g.Least, g.Rate/2)
	g.State++
}
func (halve) Rise(g *limiter.Guest[int], _ bool, _ time.Duration) { g.Rate = min(g.Share, g.Rate*2) }
func (halve) Seen(time.Duration, []*limiter.Guest[int])           {}

func newShim() *limiter.Shim[int] {
	p := limiter.Params{MinRate: 10e6, Period: law.Duration(ms), Timeout: law.Duration(5 * ms), Inactivity: law.Duration(50 * ms)}
	return limiter.NewShim(p, law.Duration(ms), true, halve{})
}

// The shares of the VMs that send make up the uplink. None is below its least rate, and those above theirs are as their weights.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newShim()
		has := &inventory.Host{At: 1, Rate: 1e9}
		sent := &telemetry.Sent{T: ms}
		sum := 0.0
		for n := range rapid.IntRange(1, 8).Draw(t, "VMs") {
			v := inventory.VM{Number: law.VM(n + 1), Guarantee: inventory.Guarantee{Weight: rapid.Uint32Range(0, 5).Draw(t, "weight"), Rate: law.Rate(rapid.Int64Range(0, 3e8).Draw(t, "least"))}}
			has.VMs = append(has.VMs, v)
			if rapid.IntRange(0, 3).Draw(t, "sends") > 0 {
				sent.VMs = append(sent.VMs, telemetry.VMSent{VM: v.Number, Packets: 1})
				sum += max(float64(v.Guarantee.Rate), 10e6)
			}
		}
		h.Step(0, has, nil)
		h.Step(0, sent, nil)
		all, level := 0.0, 0.0
		for _, g := range h.Guests() {
			if !g.Active {
				continue
			}
			all += g.Share
			if g.Share > g.Least {
				level = max(level, g.Share/g.Weight)
			}
		}
		if len(sent.VMs) > 0 && math.Abs(all-max(1e9, sum)) > 1 {
			t.Fatalf("the shares make up %v, want %v", all, max(1e9, sum))
		}
		for _, g := range h.Guests() {
			if want := max(g.Least, level*g.Weight); g.Active && math.Abs(g.Share-want) > 1 {
				t.Fatalf("VM %d with weight %v and least %v has a share of %v, want %v", g.Number, g.Weight, g.Least, g.Share, want)
			}
		}
	})
}

// A guarantee is the VM's while it sends, and the others' when it is silent.
func TestShares_WorkConserving(t *testing.T) {
	h := newShim()
	has := &inventory.Host{At: 1, Rate: 1e9, VMs: []inventory.VM{{Number: 1, Guarantee: inventory.Guarantee{Rate: 400e6}}, {Number: 2}, {Number: 3}, {Number: 4}}}
	h.Step(0, has, nil)
	now := time.Duration(0)
	sends := func(until time.Duration, vms ...law.VM) {
		for ; now < until; now += ms {
			e := &telemetry.Sent{T: ms}
			for _, vm := range vms {
				e.VMs = append(e.VMs, telemetry.VMSent{VM: vm, Packets: 1})
			}
			h.Step(now, e, nil)
		}
	}
	sends(10*ms, 1, 2, 3, 4)
	if a, b := h.Rate(1), h.Rate(2); a != 400e6 || b != 200e6 {
		t.Errorf("all send: %v and %v", a, b)
	}
	sends(100*ms, 2, 3, 4)
	if a, b := h.Rate(1), h.Rate(2); a != 0 || b != 333333333 {
		t.Errorf("VM 1 is silent: %v and %v", a, b)
	}
	sends(200*ms, 1, 2, 3, 4)
	if a, b := h.Rate(1), h.Rate(2); a != 400e6 || b != 200e6 {
		t.Errorf("it sends again: %v and %v", a, b)
	}
}

func TestShim_KeepsNothingBorrowed(t *testing.T) {
	lawtest.Keeps(t, func() law.Law { return newShim() }, func(t *rapid.T) law.Event {
		return &inventory.Host{At: 1, Rate: 1e9, VMs: []inventory.VM{{Number: law.VM(rapid.IntRange(1, 3).Draw(t, "vm"))}}}
	}, func(t *rapid.T) law.Event {
		return &telemetry.Sent{T: ms, VMs: []telemetry.VMSent{{VM: law.VM(rapid.IntRange(1, 3).Draw(t, "vm")), Packets: 3}}}
	}, func(t *rapid.T) law.Event {
		return &telemetry.Marked{VM: law.VM(rapid.IntRange(1, 3).Draw(t, "vm")), Marks: rapid.Uint64Range(0, 5000).Draw(t, "marks")}
	})
}
