package controller

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"weir/bus"
	"weir/bus/weirv1"
	"weir/law"
)

// ownersMax is how many laws can grant: hosts have one owner more (datapath/host), for the law at the host itself.
const ownersMax = 7

// Results of a grant.
const (
	grantSent    = "sent"
	grantNowhere = "nowhere"  // no agent has the VM
	grantOther   = "not_held" // another controller commands the agent
	grantFailed  = "failed"   // it could not be sent: there is no connection, or the bus does not take it
)

// vmOf returns whose traffic a grant is for: a grant for a flow without a VM is for the VM at the flow's source address.
func vmOf(k *law.Key, at func(netip.Addr) law.VM) law.VM {
	if k.VM == 0 && k.Flow.Src.IsValid() {
		return at(k.Flow.Src.Addr())
	}
	return k.VM
}

// vmAt returns the VM with an address; 0: none is known.
func (a *agents) vmAt(ip netip.Addr) law.VM {
	if ag := a.addresses.of(ip); ag != nil {
		return ag.at[ip]
	}
	return 0
}

// grant queues a grant for the agent that has its VM.
func (a *agents) grant(owner law.Owner, g law.Grant) {
	g.Key.VM = vmOf(&g.Key, a.vmAt)
	to := a.vms.of(g.Key.VM)
	if to == nil {
		a.results[grantNowhere]++
		return
	}
	if g.Owner = owner; g.Cause == 0 {
		g.Cause = a.core.serial
	}
	a.orders[to] = append(a.orders[to], g)
	a.core.tracer.grant(&g)
}

// send sends the grants of a step, one command or a few for each agent. A command answers the agent's last message, so the
// agent refuses it if it is late.
func (a *agents) send() {
	if len(a.orders) == 0 {
		return
	}
	for to, all := range a.orders {
		for part := range slices.Chunk(all, weirv1.MaxGrants) {
			err := a.bus.Command(to.name, to.origin, part)
			result := grantSent
			if errors.Is(err, bus.ErrNotHeld) {
				result = grantOther
			} else if err != nil {
				result = grantFailed
				if n := a.results[grantFailed] + 1; n&(n-1) == 0 {
					a.log.Warn("grants cannot be sent", "agent", to.name, "error", err, "times", n)
				}
			}
			a.results[result] += uint64(len(part))
			a.sent(to, len(part), result)
		}
	}
	clear(a.orders)
}

// sent notes a command for the trace.
func (a *agents) sent(to *agent, grants int, result string) {
	now := a.core.now()
	term, _ := a.bus.Holds(to.name)
	a.core.tracer.command(sentCommand{agent: to.name, term: term, grants: grants, at: now, held: now - to.heard, result: result})
}

// inOrder returns agents sorted by name, so that the same events have the same order in each run.
func (a *agents) inOrder(set map[*agent]bool) []*agent {
	return slices.SortedFunc(maps.Keys(set), func(x, y *agent) int { return cmp.Compare(x.name, y.name) })
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
