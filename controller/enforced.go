package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"weir/bus/weirv1"
	"weir/law"
	"weir/policy"
	"weir/policy/store"
)

// reporter writes what is enforced to the store, where `weir policy` reads it.
type reporter struct {
	p     *policies
	store *store.Store
	name  string // of the controller on the bus
	last  []byte // the last report without its time
	at    time.Time
	said  bool // that it cannot write
}

// seen has what the laws' goroutine knows.
type seen struct {
	wanted *wanted
	nodes  []policy.Node
	agents map[string]agentSeen // that this controller commands
	plans  map[string]*weirv1.PortPlan
	shares map[string]*weirv1.HostPlan
	grants []grantSeen
	more   int
	owners map[law.Owner]string // of laws; "": the caps
}

type agentSeen struct {
	plan    *weirv1.PlanState // of a switch
	shares  *weirv1.PlanState // of a host
	refused []*weirv1.RefusedGrant
}

type grantSeen struct {
	vm  law.VM
	key law.Key
	policy.LiveGrant
}

// look copies what the laws' goroutine has.
func (p *policies) look() *seen {
	s := &seen{wanted: p.applied, nodes: p.agents.live(), agents: map[string]agentSeen{}, plans: p.plans, shares: p.shares, owners: map[law.Owner]string{}}
	for name, ag := range p.agents.known {
		if _, holds := p.agents.bus.Holds(name); holds {
			s.agents[name] = agentSeen{ag.laws.state, ag.shares.state, ag.refusals}
		}
	}
	now := p.core.now()
	for _, in := range p.running {
		s.owners[in.owner] = in.group.law
		for k, g := range in.live {
			s.add(vmOf(&k.key, in.vmAt), k.key, policy.LiveGrant{Law: in.group.law, Kind: k.kind, Value: g.value, Expiry: g.ends - now})
		}
	}
	if p.caps != nil {
		s.owners[p.core.laws[p.base-1].owner] = ""
		for vm, rate := range p.caps.want {
			s.add(vm, law.Key{}, policy.LiveGrant{Kind: law.RateGrant, Value: uint64(rate), Expiry: p.caps.next - capRenew + capLease - now})
		}
	}
	return s
}

func (s *seen) add(vm law.VM, key law.Key, g policy.LiveGrant) {
	switch {
	case g.Expiry <= 0 || vm == 0:
	case len(s.grants) == policy.MaxGrants:
		s.more++
	default:
		s.grants = append(s.grants, grantSeen{vm, key, g})
	}
}

// run reports until ctx is done.
func (r *reporter) run(ctx context.Context) {
	every := time.NewTicker(reportLeast)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			r.report(ctx)
		}
	}
}

// report writes the report if it is another than before, or if the last one is old.
func (r *reporter) report(ctx context.Context) {
	var s *seen
	if !r.p.core.Do(ctx, func() {
		if r.p.applied != nil {
			s = r.p.look()
		}
	}) || s == nil {
		return
	}
	l := s.live(r.name, r.p.file)
	same := *l
	same.Grants = slices.Clone(l.Grants)
	for i := range same.Grants {
		same.Grants[i].Expiry = 0
	}
	text, err := json.Marshal(&same)
	if err != nil || string(text) == string(r.last) && time.Since(r.at) < reportEvery {
		return
	}
	l.Time = time.Now()
	call, cancel := context.WithTimeout(ctx, storeCall)
	defer cancel()
	if err := r.store.PutLive(call, l); err != nil {
		if !r.said && ctx.Err() == nil {
			r.p.log.Warn("cannot store what is enforced, so weir policy does not show it: trying again", "error", err)
		}
		r.said = true
		return
	}
	r.last, r.at, r.said = text, time.Now(), false
}

// live makes the report.
func (s *seen) live(name string, file []policy.Setting) *policy.Live {
	l := &policy.Live{Controller: name, Change: s.wanted.change, File: file, Nodes: slices.Sorted(maps.Keys(s.agents)), MoreGrants: s.more}
	if l.Nodes == nil {
		l.Nodes = []string{}
	}
	all := slices.Clone(s.wanted.problems)
	vms := map[law.VM]string{}
	for i := range s.nodes {
		n := &s.nodes[i]
		ag, mine := s.agents[n.Name]
		if !mine {
			continue
		}
		if n.Host != nil {
			for _, v := range n.Host.VMs {
				vms[v.ID] = (&policy.Target{Kind: policy.VM, Node: n.Name, Name: v.Name}).String()
			}
			all = append(all, s.refused(ag, vms)...)
			all = append(all, shareProblems(s.shares[n.Name], ag.shares, vms)...)
		}
		if n.Switch != nil {
			all = append(all, planProblems(n, s.plans[n.Name], ag.plan)...)
		}
	}
	for _, g := range s.grants {
		if at, mine := vms[g.vm]; mine {
			g.For = trafficOf(&g.key)
			l.Grants = append(l.Grants, policy.TargetGrant{Target: at, LiveGrant: g.LiveGrant})
		}
	}
	slices.SortFunc(l.Grants, func(a, b policy.TargetGrant) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Law, b.Law), cmp.Compare(a.For, b.For))
	})
	l.MoreProblems = max(0, len(all)-policy.MaxProblems)
	l.Problems = all[:len(all)-l.MoreProblems]
	return l
}

// trafficOf describes for which part of a VM's traffic a grant is; "": all.
func trafficOf(k *law.Key) string {
	switch {
	case k.Flow != (law.Flow{}):
		return k.Flow.Src.String() + " > " + k.Flow.Dst.String()
	case k.Peer.IsValid():
		return k.Peer.String()
	}
	return ""
}

// refused lists the grants that a host's agent refuses.
func (s *seen) refused(ag agentSeen, vms map[law.VM]string) (out []policy.Problem) {
	for _, r := range ag.refused {
		at, known := vms[law.VM(r.GetVm())]
		name, ours := s.owners[law.Owner(r.GetOwner())]
		if known && ours {
			out = append(out, policy.Problem{Target: at, Law: name, Off: name == "", Reason: "its host refuses the grant: " + r.GetReason()})
		}
	}
	return out
}

// shareProblems lists the VMs of a host whose guarantees do not hold completely.
func shareProblems(plan *weirv1.HostPlan, is *weirv1.PlanState, vms map[law.VM]string) (out []policy.Problem) {
	why := is.GetProblem()
	switch {
	case is == nil:
		why = "the host's agent is of a version that takes no guarantees: of the guarantee only the cap is enforced"
	case is.GetSerial() != plan.GetSerial():
		why = "the host's agent has not applied it yet"
	}
	if why == "" {
		return nil
	}
	for _, g := range plan.GetGuests() {
		if at, known := vms[law.VM(g.GetVm())]; known {
			out = append(out, policy.Problem{Target: at, Reason: why})
		}
	}
	return out
}

// planProblems lists the laws of a switch's ports that do not hold completely.
func planProblems(n *policy.Node, plan *weirv1.PortPlan, is *weirv1.PlanState) (out []policy.Problem) {
	names := map[uint32]string{}
	for _, p := range n.Switch.Ports {
		names[p.N] = (&policy.Target{Kind: policy.Port, Node: n.Name, Name: p.Name}).String()
	}
	why := ""
	switch {
	case is.GetSerial() != plan.GetSerial():
		why = "the switch's agent has not applied it yet"
	case is.GetProblem() != "":
		why = is.GetProblem()
	}
	if why != "" {
		for _, p := range plan.GetPorts() {
			for _, i := range p.GetSettings() {
				out = append(out, policy.Problem{Target: names[p.GetPort()], Law: plan.GetSettings()[i].GetLaw(), Off: true, Reason: why})
			}
		}
		return out
	}
	for _, p := range is.GetPorts() {
		if at, known := names[p.GetPort()]; known {
			out = append(out, policy.Problem{Target: at, Law: p.GetLaw(), Off: p.GetOff(), Reason: p.GetReason()})
		}
	}
	return out
}

// PoliciesStatus is the state of the policies in a controller.
type PoliciesStatus struct {
	Change uint64         `json:"change"` // the last that is enforced; 0: none
	Laws   []PolicyLaw    `json:"laws"`   // that run in the controller
	Caps   int            `json:"caps"`   // VMs with a cap
	Plans  map[string]int `json:"plans"`  // ports with laws, by agent
}

// PolicyLaw is a law of policies that runs in a controller.
type PolicyLaw struct {
	Law     string `json:"law"`
	Percent int    `json:"percent"`
	Owner   uint8  `json:"owner"`
	Ports   int    `json:"ports"` // -1: all
	VMs     int    `json:"vms"`   // -1: all
	Live    int    `json:"grants_live"`
	InstanceCounts
}

func (p *policies) status() *PoliciesStatus {
	if p == nil {
		return nil
	}
	s := &PoliciesStatus{Laws: []PolicyLaw{}, Plans: map[string]int{}}
	if p.applied != nil {
		s.Change = p.applied.change
	}
	now := p.core.now()
	for _, in := range p.running {
		in.sweep(now)
		l := PolicyLaw{
			Law: in.group.law, Percent: in.group.percent, Owner: uint8(in.owner), Ports: len(in.group.ports), VMs: len(in.group.vms), Live: len(in.live), InstanceCounts: in.counts,
		}
		if in.group.ports == nil {
			l.Ports = -1
		}
		if in.group.vms == nil {
			l.VMs = -1
		}
		s.Laws = append(s.Laws, l)
	}
	if p.caps != nil {
		s.Caps = len(p.caps.want)
	}
	for name, plan := range p.plans {
		s.Plans[name] = len(plan.GetPorts())
	}
	return s
}
