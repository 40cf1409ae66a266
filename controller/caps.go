package controller

import (
	"maps"
	"slices"
	"time"

	"weir/law"
)

const (
	capLease = law.LeaseMost
	capRenew = 250 * time.Millisecond
)

// caps is a law that grants VMs the caps of their guarantees, and renews them. It runs in the core as other laws do.
type caps struct {
	want map[law.VM]law.Rate
	done []law.Grant // caps that ended: to be released
	next time.Duration
}

func newCaps() *caps { return &caps{want: map[law.VM]law.Rate{}} }

// set replaces the caps. The change is granted in the next step.
func (c *caps) set(want map[law.VM]law.Rate) {
	for _, vm := range slices.Sorted(maps.Keys(c.want)) {
		if _, still := want[vm]; !still {
			c.done = append(c.done, capOf(vm, c.want[vm], 0))
		}
	}
	if !maps.Equal(c.want, want) {
		c.want, c.next = want, 1
	}
}

func capOf(vm law.VM, rate law.Rate, lease time.Duration) law.Grant {
	return law.Grant{Kind: law.RateGrant, Key: law.Key{Pair: law.Pair{VM: vm}}, Value: uint64(rate), Lease: lease}
}

// Wake implements law.Law.
func (c *caps) Wake() time.Duration {
	if len(c.want)+len(c.done) == 0 {
		return 0
	}
	return max(c.next, 1)
}

// Step implements law.Law.
func (c *caps) Step(now time.Duration, _ law.Event, out []law.Action) []law.Action {
	for _, g := range c.done {
		out = append(out, g)
	}
	c.done = c.done[:0]
	if now < c.next || len(c.want) == 0 {
		return out
	}
	c.next = now + capRenew
	for _, vm := range slices.Sorted(maps.Keys(c.want)) {
		out = append(out, capOf(vm, c.want[vm], capLease))
	}
	return out
}
