package controller

import (
	"fmt"
	"testing"

	"weir/bus/weirv1"
	"weir/law"
	"weir/law/telemetry"
)

// A law that begins learns which VMs there are, also if another one must end at the same time because no owner is left for it.
func TestApply_InformsLawsThatBegin(t *testing.T) {
	core := newCore(newFence(nil, 1, silent), silent)
	a, bus := newAgents(core, silent), &kept{}
	core.agents, a.bus, a.link = a, bus, &busLink{nodes: newNodes(nil, 1, silent)}
	a.policies = newPolicies(core, &Config{Specs: policySpecs()}, silent)
	a.events(0, "h7", &weirv1.Events{
		Origin: &weirv1.Origin{Incarnation: 1, Sequence: 1, StampNs: 1}, Host: 7,
		Inventory: &weirv1.Inventory{Serial: 1, Parts: 1, Guests: []*weirv1.Guest{{Vm: 1}, {Vm: 2}, {Vm: 3}}},
	})
	of := func(window int, vms ...law.VM) *group {
		g := &group{law: "window", params: fmt.Sprintf(`{"window": "%dB"}`, window), percent: 100, targets: []string{"some"}, vms: map[law.VM]bool{}}
		for _, vm := range vms {
			g.vms[vm] = true
		}
		return g
	}
	var groups []*group
	for range a.policies.owners { // one for each owner
		groups = append(groups, of(1000+len(groups), 1))
	}
	a.policies.apply(&wanted{groups: append(groups, of(2000, 2))})
	w := &wanted{groups: append(groups, of(2000, 1, 2), of(3000, 3))} // the law of window 2000 meets all others now
	a.policies.apply(w)
	if len(w.problems) != 1 || w.problems[0].Reason != noOwner || len(a.policies.running) != len(groups)+1 {
		t.Fatalf("%d laws run, problems: %+v", len(a.policies.running), w.problems)
	}
	bus.grants = nil
	core.step(&telemetry.Telemetry{At: 1, T: 1})
	for _, g := range bus.grants {
		if g.Key.VM == 3 && g.Value == 3000 {
			return
		}
	}
	t.Errorf("the law that began grants nothing: %+v", bus.grants)
}
