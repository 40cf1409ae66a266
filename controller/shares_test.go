package controller

import (
	"strings"
	"testing"

	"weir/bus/weirv1"
	"weir/law"
	"weir/law/inventory"
	"weir/policy"
)

// A host's plan has the VMs with a guarantee. They are reported as long as the host's agent has not applied it, or cannot.
func TestShares(t *testing.T) {
	nodes := []policy.Node{{Name: "s1"}, {Name: "h1", Host: &policy.NodeHost{ID: 1, VMs: []policy.NodeVM{{ID: 4, Name: "b"}, {ID: 3, Name: "a"}, {ID: 5, Name: "c"}, {ID: 6, Name: "d"}}}}}
	given := map[law.VM]inventory.Guarantee{3: {Rate: 1e6, Weight: 1}, 4: {Weight: 3}, 5: {Weight: 1, Cap: 1e6}, 6: {Weight: 1, Excess: law.ExcessDrop}, 9: {Rate: 1}}
	plans := sharesOf(nodes, given)
	plan := plans["h1"]
	if len(plans) != 1 || len(plan.GetGuests()) != 3 || plan.GetGuests()[2].GetExcess() != weirv1.Excess_EXCESS_DROP || plan.GetGuests()[0].GetExcess() != 0 || plan.GetGuests()[0].GetVm() != 3 || plan.GetGuests()[0].GetRate() != 1e6 || plan.GetGuests()[1].GetWeight() != 3 {
		t.Fatalf("%v", plans)
	}
	if again := sharesOf(nodes, given)["h1"]; again.GetSerial() != plan.GetSerial() {
		t.Error("equal plans have different numbers")
	}
	vms := map[law.VM]string{3: "vm h1/a", 4: "vm h1/b", 6: "vm h1/d"}
	for want, is := range map[string]*weirv1.PlanState{
		"takes no guarantees":     nil,
		"has not applied it yet":  {Serial: plan.GetSerial() + 1},
		"there is no device eth0": {Serial: plan.GetSerial(), Problem: "there is no device eth0"},
		"":                        {Serial: plan.GetSerial()},
	} {
		got := shareProblems(plan, is, vms)
		if want == "" && len(got) == 0 {
			continue
		}
		if len(got) != 3 || got[0].Target != "vm h1/a" || got[0].Law != "" || got[0].Off || want == "" || !strings.Contains(got[0].Reason, want) {
			t.Errorf("want %q: %+v", want, got)
		}
	}
}
