package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bus/weirv1"
	"weir/datapath/testnet"
	"weir/law"
	"weir/policy"
)

const gold = "name: gold\nselect: {vms: {labels: {tenant: a}}}\nlaws: {window: {window: 3KB, stray: 5}}\nguarantee: {cap: 2Gbit}\n"

// A policy is enforced for the VMs that it selects, and for no others, and what it grants is shown. An edit changes it, and its end
// releases it.
func TestPolicies_FromStoreToGrants(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h2, _ := k.actor("h2", 8)
	h1.has("1 web1 a 10.0.0.1", "5 db b 10.0.0.5")
	h2.has("2 web2 a 10.0.0.2")
	k.apply(gold)
	h1.until("1:3000/2Gbit")
	h2.until("2:3000/2Gbit")
	k.shows("gold", policy.Enforced, "")
	var e []policy.Explanation
	testnet.Until(t, "both grants are live", func() (both bool) { // a late machine renews them late
		var err error
		if e, err = k.view().Explain("web1"); err != nil || len(e) != 1 || len(e[0].Left) != 0 {
			t.Fatalf("%v, %+v", err, e)
		}
		return len(e[0].Grants) == 2
	})
	if law, rate := e[0].Grants[1], e[0].Grants[0]; law.Law != "window" || law.Value != 3000 || rate.Value != 2e9 || law.Expiry <= 0 || law.Expiry > time.Second || rate.Expiry <= 0 {
		t.Errorf("%+v", e[0].Grants)
	}
	s := k.status().Policies
	if len(s.Laws) != 1 || s.Laws[0].Other == 0 || s.Laws[0].VMs != 2 || s.Laws[0].Ports != -1 || s.Caps != 2 {
		t.Errorf("%+v", s)
	}
	k.apply(strings.ReplaceAll(gold, "3KB", "4KB"))
	h1.until("1:4000/2Gbit")
	k.apply(strings.ReplaceAll(strings.ReplaceAll(gold, "3KB", "4KB"), "cap: 2Gbit", "cap: 1Gbit"))
	h1.until("1:4000/1Gbit")
	k.remove("gold")
	h1.until("")
	h2.until("")
	h1.mu.Lock()
	if n := h1.released[1]; n != 3 { // the window of the edit, the last window, and the cap
		t.Errorf("%d grants were released, want 3", n)
	}
	h1.mu.Unlock()
	s = k.status().Policies
	if len(s.Laws) != 0 || s.Caps != 0 {
		t.Errorf("%+v", s)
	}
}

// An edit of the selection releases the VMs that are no longer selected, and the law continues for the others.
func TestPolicies_SelectionChanges(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1", "2 web2 a 10.0.0.2", "3 web3 b 10.0.0.3")
	some := func(names string) string {
		return "name: some\nselect: {vms: {names: [" + names + "]}}\nlaws: {window: {}}\n"
	}
	k.apply(some("web1, web2"))
	h1.until("1:3000 2:3000")
	passed := k.status().Policies.Laws[0].Passed
	k.apply(some("web2, web3"))
	h1.until("2:3000 3:3000")
	if s := k.status().Policies.Laws; len(s) != 1 || s[0].Passed < passed {
		t.Errorf("the law began anew: %+v", s)
	}
	h1.mu.Lock()
	defer h1.mu.Unlock()
	if n := h1.released[1]; n != 1 {
		t.Errorf("%d grants of web1 were released, want 1", n)
	}
}

// Two policies with other parameters of the same law are two laws. Each has an owner of its own if they can meet at a VM.
func TestPolicies_OwnersOfLawsThatMeet(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1", "2 web2 a 10.0.0.2")
	h1.hasPorts("swp1", "swp2")
	k.apply("name: ports\nselect: {ports: {names: [h1/swp1]}}\nlaws: {window: {window: 9KB}}\n",
		"name: one\nselect: {vms: {names: [web1]}}\nlaws: {window: {window: 1KB}}\n",
		"name: two\nselect: {vms: {names: [web2]}}\nlaws: {window: {window: 2KB}}\n")
	k.until("grants of three laws", func() bool {
		h1.mu.Lock()
		defer h1.mu.Unlock()
		return len(h1.owners[1]) == 2 && len(h1.owners[2]) == 2
	})
	owners := map[uint8]int{}
	for _, l := range k.status().Policies.Laws {
		owners[l.Owner]++
	}
	if len(owners) != 2 { // those for one VM each share one
		t.Errorf("%v", owners)
	}
}

// A law that only observes, or limits a part, grants nothing, or only some.
func TestPolicies_PartOfTheFlows(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1", "2 web2 b 10.0.0.2")
	k.apply("name: look\nselect: {vms: {labels: {tenant: a}}}\nlaws: {window: {}}\nenforce: {percent: 0}\n", "name: all\nselect: {vms: {labels: {tenant: b}}}\nlaws: {window: {}}\n")
	k.shows("look", policy.Observed, "")
	h1.until("2:3000")
	k.until("it is observed", func() bool {
		s := k.status().Policies.Laws
		i := slices.IndexFunc(s, func(l PolicyLaw) bool { return l.Percent == 0 })
		return i >= 0 && s[i].Observed > 10 && s[i].Passed == 0
	})
	if got := h1.holds(); got != "2:3000" {
		t.Errorf("%q", got)
	}
	limited := 0
	for i := range 10_000 {
		if bucket(&law.Key{Pair: law.Pair{VM: law.VM(i)}}) < 10*shareOf/100 {
			limited++
		}
	}
	if limited < 850 || limited > 1150 { // 5 standard deviations of 30
		t.Errorf("%d of 10000 VMs are limited at 10 %%", limited)
	}
}

// VMs that start, stop, move and reuse addresses keep the right policy.
func TestPolicies_VMsMove(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h2, stop := k.actor("h2", 8)
	h2.has("1 web1 a 10.0.0.1", "2 web2 a 10.0.0.2")
	k.apply(gold)
	h2.until("1:3000/2Gbit 2:3000/2Gbit")
	h1.has("1 web1 a 10.0.0.1") // it is at both hosts for a while
	h2.has("2 web2 a 10.0.0.2")
	h1.until("1:3000/2Gbit")
	h2.has("9 other b 10.0.0.1", "2 web2 a 10.0.0.2") // with the address of the one that moved
	h1.has()                                          // it stops
	h1.has("3 web3 a 10.0.0.1")                       // and another has the address next
	h1.until("3:3000/2Gbit")
	if got := h2.holds(); strings.Contains(got, "9:") {
		t.Errorf("VM 9 of another tenant has %q", got)
	}
	stop() // the agent is silent: its VM is free, and begins elsewhere
	h1.has("3 web3 a 10.0.0.1", "2 web2 a 10.0.0.2")
	h1.until("2:3000/2Gbit 3:3000/2Gbit")
	k.shows("gold", policy.Degraded, "no controller reaches the agent h2") // the store still has its VMs
}

// A label that changes makes two policies meet: the older one stays, and the other is degraded.
func TestPolicies_ConflictAfterALabelChange(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1", "2 web2 b 10.0.0.2")
	k.apply("name: old\nselect: {vms: {labels: {tenant: b}}}\nlaws: {window: {window: 7KB}}\n")
	k.apply("name: young\nselect: {vms: {names: ['web*']}, ports: {names: [x/y]}}\nlaws: {window: {window: 3KB}}\n")
	k.shows("young", policy.Degraded, "at vm h1/web2: policy old gives the law window other parameters")
	h1.has("1 web1 b 10.0.0.1", "2 web2 b 10.0.0.2")
	h1.until("1:7000 2:7000")
	k.shows("old", policy.Enforced, "")
	k.shows("young", policy.Off, "at vm h1/web1: policy old gives")
	h1.has("1 web1 c 10.0.0.1", "2 web2 b 10.0.0.2")
	k.shows("young", policy.Degraded, "at vm h1/web2")
}

// The laws of a switch's ports go to its agent, again until it reports them, and what it reports is shown.
func TestPolicies_LawsOfPorts(t *testing.T) {
	k := newPolicyKit(t)
	sw, _ := k.actor("sw", 3)
	sw.hasPorts("swp1", "swp2", "swp3")
	k.apply("name: slow\nselect: {ports: {names: [sw/swp1]}}\nlaws: {queue: {window: 1KB}}\nenforce: {percent: 10}\n", "name: rest\nselect: {ports: {names: [sw/swp2]}}\nlaws: {queue: {}}\n")
	k.shows("rest", policy.Off, "at port sw/swp2: the switch's agent has not applied it yet")
	plan := sw.planned("a plan of two ports", func(p *weirv1.PortPlan) bool { return len(p.GetPorts()) == 2 })
	if a, b, c := lawsAt(plan, 1), lawsAt(plan, 2), lawsAt(plan, 3); !slices.Equal(a, []string{`queue {"window":"1KB"} 10`}) || !slices.Equal(b, []string{`queue {"window":"5B"} 100`}) || c != nil {
		t.Errorf("%q, %q, %q", a, b, c)
	}
	sw.says(&weirv1.PlanState{Serial: plan.GetSerial(), Ports: []*weirv1.PortState{{Port: 2, Law: "queue", Off: true, Reason: "no queue at its root"}}})
	k.shows("slow", policy.Enforced, "")
	k.shows("rest", policy.Off, "at port sw/swp2: no queue at its root")
	sw.says(&weirv1.PlanState{Serial: plan.GetSerial(), Problem: "the disk is full"})
	k.shows("slow", policy.Off, "the disk is full")
	sw.says(&weirv1.PlanState{}) // it restarted, and has nothing
	sw.mu.Lock()
	sw.got = nil
	sw.mu.Unlock()
	again := sw.planned("the plan again", func(*weirv1.PortPlan) bool { return true })
	if again.GetSerial() != plan.GetSerial() {
		t.Error("another plan")
	}
	sw.says(&weirv1.PlanState{Serial: plan.GetSerial()})
	k.remove("slow", "rest")
	sw.planned("a plan without ports", func(p *weirv1.PortPlan) bool { return len(p.GetPorts()) == 0 })
}

// A controller that restarts withdraws nothing before it has read the policies.
func TestPolicies_ControllerRestarts(t *testing.T) {
	k := newPolicyKit(t)
	sw, _ := k.actor("sw", 3)
	sw.hasPorts("swp1")
	k.apply("name: q\nselect: {ports: {names: [sw/swp1]}}\nlaws: {queue: {}}\n")
	plan := sw.planned("a plan", func(p *weirv1.PortPlan) bool { return len(p.GetPorts()) == 1 })
	sw.says(&weirv1.PlanState{})
	head := k.spoil(nil) // the next controller cannot read the policies at first
	k.stop()
	sw.mu.Lock()
	sw.got = nil
	sw.mu.Unlock()
	k.run()
	k.until("the controller commands the agent", func() bool {
		s := k.status().Bus.Agents
		return len(s) == 1 && s[0].Commands && s[0].Ports == 1
	})
	sw.mu.Lock()
	from := sw.reports
	sw.mu.Unlock()
	k.until("it has reported its plan many times", func() bool { sw.mu.Lock(); defer sw.mu.Unlock(); return sw.reports > from+10 })
	sw.mu.Lock()
	if sw.got != nil {
		t.Errorf("before the policies were read, a plan of %d ports came", len(sw.got.GetPorts()))
	}
	sw.mu.Unlock()
	k.spoil(head)
	if next := sw.planned("a plan of the next controller", func(*weirv1.PortPlan) bool { return true }); next.GetSerial() != plan.GetSerial() {
		t.Errorf("the first plan has %d ports", len(next.GetPorts()))
	}
}

// A host that refuses the grant of a cap shows that the guarantee does not hold.
func TestPolicies_RefusedGrants(t *testing.T) {
	k := newPolicyKit(t)
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1")
	k.apply(gold)
	h1.until("1:3000/2Gbit")
	h1.mu.Lock()
	h1.refuse = []*weirv1.RefusedGrant{{Vm: 1, Owner: ownersMax - 1, Reason: "no_rate"}}
	h1.mu.Unlock()
	k.shows("gold", policy.Degraded, "at vm h1/web1: its host refuses the grant: no_rate")
	h1.mu.Lock()
	h1.refuse = nil
	h1.mu.Unlock()
	k.shows("gold", policy.Enforced, "")
}

// A law of the controller's file runs everywhere. A policy that contradicts it is degraded, and one that agrees is enforced by it.
func TestPolicies_BesideTheFile(t *testing.T) {
	k := newPolicyKit(t)
	k.stop()
	file := &windowLaw{windowParams{Window: 6000}, map[law.Host][]law.VM{}}
	k.cfg.Laws = []Law{{Name: "window", New: func() (law.Law, error) { return file, nil }, Params: []byte(`{"window":"6KB"}`)}}
	k.run()
	h1, _ := k.actor("h1", 7)
	h1.has("1 web1 a 10.0.0.1", "2 web2 b 10.0.0.2")
	k.apply("name: other\nselect: {vms: {names: [web1]}}\nlaws: {window: {window: 2KB}}\n", "name: same\nselect: {vms: {names: [web2]}}\nlaws: {window: {window: 6KB}}\n")
	k.shows("same", policy.Enforced, "")
	k.shows("other", policy.Off, "at vm h1/web1: policy (the file of controller c1) gives the law window other parameters")
	h1.until("1:6000 2:6000")
	if s := k.status().Policies; len(s.Laws) != 0 {
		t.Errorf("%+v", s)
	}
}

// Laws learn the guarantees of VMs and the rates of uplinks, also when policies change them.
func TestPolicies_GuaranteesReachLaws(t *testing.T) {
	k := newPolicyKit(t)
	k.stop()
	k.cfg.Laws = []Law{{Name: "answering", New: func() (law.Law, error) { return k.law, nil }}}
	k.run()
	h1, _ := k.actor("h1", 7)
	h1.hasPorts("swp1")
	h1.has("1 web1 a 10.0.0.1")
	k.apply("name: g\nselect: {vms: {names: [web1]}}\nguarantee: {rate: 1Gbit, weight: 3}\n")
	k.until("the guarantee", func() bool { return k.law.has("VM 1 of 10Gbit: rate 1Gbit, weight 3, cap 0kbit") })
	k.shows("g", policy.Degraded, "no law that shares the uplink")
	k.apply("name: g\nselect: {vms: {names: [web1]}}\nguarantee: {rate: 1Gbit, cap: 2Gbit}\n")
	k.until("another guarantee", func() bool { return k.law.has("VM 1 of 10Gbit: rate 1Gbit, weight 1, cap 2Gbit") })
}
