package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bus"
	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/policy"
)

// planAgain is the time after which a plan is sent again that an agent does not report to have.
const planAgain = time.Second

// instancesMost limits the laws that run at once: each costs time with every report.
const instancesMost = 64

// apply starts, changes and stops laws, so that they are those that the policies want. It runs between two steps of the laws.
func (p *policies) apply(w *wanted) {
	now := p.core.now()
	var kept []*instance
	var fresh []*group
	stopped := slices.Clone(p.running)
	for _, g := range w.groups {
		i := slices.IndexFunc(stopped, func(in *instance) bool { return in.group.same(g) })
		if i < 0 {
			fresh = append(fresh, g)
			continue
		}
		in := stopped[i]
		stopped = slices.Delete(stopped, i, i+1)
		p.reselect(now, in, g)
		kept = append(kept, in)
	}
	for _, in := range stopped {
		p.releaseAll(now, in)
		p.log.Info("a law of policies ends: its grants are released", "law", in.group.law, "percent", in.group.percent)
	}
	p.running = p.running[:0]
	for _, in := range kept {
		p.place(now, in, w)
	}
	before, old := p.applied, len(p.running)
	for _, g := range fresh {
		p.start(g, w)
	}
	p.core.laws = p.core.laws[:p.base:p.base]
	for _, in := range p.running {
		p.core.laws = append(p.core.laws, namedLaw{in.group.law, in.owner, in})
	}
	for _, in := range p.running[old:] {
		p.inform(in)
	}
	if p.caps != nil {
		p.caps.set(w.caps)
	} else {
		for vm := range w.caps {
			w.problems = append(w.problems, policy.Problem{Target: w.targets[vm], Off: true, Reason: noOwner})
		}
	}
	p.plans, p.shares, p.applied = w.plans, w.shares, w
	p.promise(before)
	for _, ag := range p.agents.known {
		p.offer(ag)
	}
	p.core.step(law.Tick{})
}

// promise passes to all laws the guarantees that have changed.
func (p *policies) promise(before *wanted) {
	if before == nil {
		before = &wanted{}
	}
	for _, name := range sortedKeys(p.agents.known) {
		ag := p.agents.known[name]
		if ag.host == 0 || p.agents.hosts.of(ag.host) != ag {
			continue
		}
		for vm := range ag.has {
			if before.given[vm] != p.applied.given[vm] {
				p.core.step(p.agents.hostOf(ag))
				break
			}
		}
	}
}

// reselect changes the selection of a running law. Grants for VMs that are no longer selected are released, and the law learns again
// what it selects.
func (p *policies) reselect(now time.Duration, in *instance, g *group) {
	same := maps.Equal(in.group.ports, g.ports) && maps.Equal(in.group.vms, g.vms)
	in.become(g)
	if same {
		return
	}
	if g.vms != nil {
		p.carry(in, in.release(now, func(vm law.VM) bool { return !g.vms[vm] }))
	}
	p.inform(in)
}

func (p *policies) releaseAll(now time.Duration, in *instance) {
	p.carry(in, in.release(now, func(law.VM) bool { return true }))
}

// carry carries out actions of a law outside of a step.
func (p *policies) carry(in *instance, actions []law.Action) {
	for _, a := range actions {
		p.core.carry(&namedLaw{in.group.law, in.owner, in}, a)
	}
	p.agents.send()
}

// noOwner is why a law or cap cannot run.
var noOwner = fmt.Sprintf("hosts tell %d laws apart, and others run already: remove one from the controller's file, or use fewer different parameters", ownersMax)

// place gives a law an owner for its grants: its own one, unless another law with the same VMs has it.
func (p *policies) place(now time.Duration, in *instance, w *wanted) bool {
	if p.ownerIsFree(in.owner, in.group) {
		p.running = append(p.running, in)
		return true
	}
	p.releaseAll(now, in)
	owner, ok := p.owner(in.group)
	if !ok {
		p.refuse(in.group, w, noOwner)
		return false
	}
	in.owner = owner
	p.running = append(p.running, in)
	return true
}

func (p *policies) ownerIsFree(o law.Owner, g *group) bool {
	return !slices.ContainsFunc(p.running, func(in *instance) bool { return in.owner == o && in.group.meets(g) })
}

// owner returns the first owner that no other law with the same VMs has.
func (p *policies) owner(g *group) (law.Owner, bool) {
	for _, o := range p.owners {
		if p.ownerIsFree(o, g) {
			return o, true
		}
	}
	return 0, false
}

// meets reports whether two groups have a VM in common. A VM's grants of both then need different owners.
func (g *group) meets(h *group) bool {
	if g.vms == nil || h.vms == nil {
		return true
	}
	a, b := g.vms, h.vms
	if len(a) > len(b) {
		a, b = b, a
	}
	for vm := range a {
		if b[vm] {
			return true
		}
	}
	return false
}

// start starts a law. It gets its first events after all others are in place.
func (p *policies) start(g *group, w *wanted) {
	owner, ok := p.owner(g)
	switch {
	case !ok:
		p.refuse(g, w, noOwner)
		return
	case len(p.running) >= instancesMost:
		p.refuse(g, w, fmt.Sprintf("a controller runs at most %d laws: use fewer different parameters", instancesMost))
		return
	}
	in, err := newInstance(p.specs, g, owner, p.core.record, p.agents.vmAt)
	if err != nil {
		p.refuse(g, w, err.Error())
		return
	}
	p.running = append(p.running, in)
	p.log.Info("a law of policies begins", "law", g.law, "percent", g.percent, "ports", len(g.ports), "vms", len(g.vms), "owner", owner)
}

func (p *policies) refuse(g *group, w *wanted, why string) {
	p.log.Warn("a law of policies cannot run", "law", g.law, "reason", why)
	for _, t := range g.targets {
		w.problems = append(w.problems, policy.Problem{Target: t, Law: g.law, Off: true, Reason: why})
	}
}

// inform passes the ports and VMs that there are to a law.
func (p *policies) inform(in *instance) {
	l := &namedLaw{in.group.law, in.owner, in}
	for _, name := range sortedKeys(p.agents.known) {
		ag := p.agents.known[name]
		if ag.sw != 0 && p.agents.switches.of(ag.sw) == ag {
			p.core.stepLaw(l, &inventory.Switch{At: ag.sw, Ports: ag.ports})
		}
		if ag.host != 0 && p.agents.hosts.of(ag.host) == ag {
			p.core.stepLaw(l, p.agents.hostOf(ag))
		}
	}
	p.agents.send()
}

// taken is a plan at its agent.
type taken struct {
	state *weirv1.PlanState // as the agent reported last; nil: it takes no such plan
	sent  uint64            // serial number of the plan that was sent last
	at    time.Duration
}

// wants reports whether a plan must be sent; serial 0: there is none.
func (t *taken) wants(serial uint64, now time.Duration) bool {
	return serial != 0 && t.state != nil && t.state.GetSerial() != serial && (t.sent != serial || now-t.at >= planAgain)
}

// offer sends an agent the laws of its ports and the guarantees of its VMs, unless it reports that it has them. nil: there are no
// policies.
func (p *policies) offer(ag *agent) {
	if p == nil {
		return
	}
	ports, host, now := p.plans[ag.name], p.shares[ag.name], p.core.now()
	if !ag.laws.wants(ports.GetSerial(), now) {
		ports = nil
	}
	if !ag.shares.wants(host.GetSerial(), now) {
		host = nil
	}
	if ports == nil && host == nil {
		return
	}
	err := p.agents.bus.Plan(ag.name, ag.origin, ports, host)
	if errors.Is(err, bus.ErrNotHeld) {
		return
	}
	if err != nil {
		p.log.Warn("a plan of policies cannot be sent", "agent", ag.name, "error", err)
	}
	if ports != nil {
		ag.laws.sent, ag.laws.at = ports.GetSerial(), now
	}
	if host != nil {
		ag.shares.sent, ag.shares.at = host.GetSerial(), now
	}
}
