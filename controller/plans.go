package controller

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/policy"
)

// planning collects the laws of switches' ports.
type planning struct {
	specs    law.Specs
	policies map[string]*policy.Policy
	ports    map[string]*plannedPorts // by agent
}

type plannedPorts struct {
	settings []plannedSetting
	at       map[uint32][]int // by port number: settings
	target   map[uint32]string
}

type plannedSetting struct {
	since   uint64
	law     string
	params  []byte
	percent int
}

func (p *planning) add(h *policy.Here, a *policy.Applied) {
	of := p.ports[h.Target.Node]
	if of == nil {
		of = &plannedPorts{at: map[uint32][]int{}, target: map[uint32]string{}}
		p.ports[h.Target.Node] = of
	}
	of.target[h.Target.Port] = h.Target.String()
	i := slices.IndexFunc(of.settings, func(s plannedSetting) bool {
		return s.law == a.Law && s.percent == a.Percent && bytes.Equal(s.params, a.Params)
	})
	since := p.policies[a.Policies[0]].Since
	if i < 0 {
		i = len(of.settings)
		of.settings = append(of.settings, plannedSetting{since, a.Law, a.Params, a.Percent})
	}
	of.settings[i].since = min(of.settings[i].since, since)
	of.at[h.Target.Port] = append(of.at[h.Target.Port], i)
}

// make makes the plan of each agent that runs laws by policy. Older policies' laws come first.
func (p *planning) make(inventory []policy.Node, w *wanted) {
	for i := range inventory {
		n := &inventory[i]
		if n.Switch == nil || !slices.ContainsFunc(n.Laws, func(l string) bool { return !controllerRuns(p.specs, l) }) {
			continue
		}
		plan := &weirv1.PortPlan{}
		if of := p.ports[n.Name]; of != nil {
			of.fill(plan, w)
		}
		if err := plan.Number(); err != nil {
			continue // the types are ours: cannot happen
		}
		w.plans[n.Name] = plan
	}
}

func (of *plannedPorts) fill(plan *weirv1.PortPlan, w *wanted) {
	order := make([]int, len(of.settings))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &of.settings[a], &of.settings[b]
		return cmp.Or(cmp.Compare(x.since-1, y.since-1), cmp.Compare(x.law, y.law), bytes.Compare(x.params, y.params), cmp.Compare(x.percent, y.percent))
	})
	place := map[int]uint32{}
	bytes := 0
	for _, i := range order[:min(len(order), weirv1.MaxSettings)] {
		s := &of.settings[i]
		if bytes += len(s.params); bytes > planBytes || len(s.params) > weirv1.MaxParams {
			break // younger policies are left out
		}
		place[i] = uint32(len(plan.Settings))
		plan.Settings = append(plan.Settings, &weirv1.LawSetting{Law: s.law, Params: s.params, Percent: uint32(s.percent)})
	}
	for _, n := range slices.Sorted(maps.Keys(of.at)) {
		port := &weirv1.PlannedPort{Port: n}
		for _, i := range of.at[n] {
			at, has := place[i]
			if !has {
				w.problems = append(w.problems, policy.Problem{Target: of.target[n], Law: of.settings[i].law, Off: true,
					Reason: fmt.Sprintf("its switch has more than %d different settings of laws, or they are too long", weirv1.MaxSettings)})
				continue
			}
			port.Settings = append(port.Settings, at)
		}
		slices.Sort(port.Settings)
		plan.Ports = append(plan.Ports, port)
	}
}

// sharesOf makes the plan of each host: the least rates, weights and excess of its VMs.
func sharesOf(nodes []policy.Node, given map[law.VM]inventory.Guarantee) map[string]*weirv1.HostPlan {
	out := map[string]*weirv1.HostPlan{}
	for i := range nodes {
		n := &nodes[i]
		if n.Host == nil {
			continue
		}
		plan := &weirv1.HostPlan{}
		for _, v := range n.Host.VMs {
			if g := given[v.ID]; g.Rate > 0 || g.Weight > 1 || g.Excess != "" {
				plan.Guests = append(plan.Guests, &weirv1.GuestShare{Vm: uint32(v.ID), Rate: uint64(g.Rate), Weight: g.Weight, Excess: weirv1.NewExcess(g.Excess)})
			}
		}
		slices.SortFunc(plan.Guests, func(a, b *weirv1.GuestShare) int { return cmp.Compare(a.GetVm(), b.GetVm()) })
		if err := plan.Number(); err != nil {
			continue // the types are ours: cannot happen
		}
		out[n.Name] = plan
	}
	return out
}
