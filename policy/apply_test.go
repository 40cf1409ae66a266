package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func vmPolicy(t testing.TB, since uint64, name, selection, keys string) Policy {
	return read(t, since, "name: "+name+"\nselect: {vms: {"+selection+"}}\n"+keys)
}

// Two policies that contradict each other are refused by both names, and with the targets.
func TestPropose_RefusesConflicts(t *testing.T) {
	window, other := "laws: {window: {}}\n", "laws: {window: {share: 1}}\n"
	tenant, web1, gone := "labels: {tenant: a}", "names: [web1]", "names: [web8]"
	for _, row := range []struct{ name, says, old, oldKeys, given, keys string }{
		{"parameters", "policies new and old, law window at vm h1/web1 and 2 more: policy old gives the law window other parameters", tenant, window, tenant, other},
		{"one VM", "policies new and old, law window at vm h1/web1: policy old gives", tenant, window, web1, other},
		{"guarantees", "policies new and old, guarantee at vm h1/web1: policy old gives another guarantee", tenant, "guarantee: {rate: 1Gbit}\n", web1, "guarantee: {rate: 2Gbit}\n"},
		{"a VM that is not there", "policies new and old, law window at vm web8: policy old gives", gone, window, gone, other},
		{"a guarantee of a VM that is not there", "policies new and old, guarantee at vm web8: policy old gives", gone, "guarantee: {rate: 1Gbit}\n", gone, "guarantee: {rate: 2Gbit}\n"},
		{"capacity", "policy new, guarantee at vm h1/web3: h1 has 10Gbit, and 8Gbit of it are guaranteed by old, new: 4Gbit more do not fit; lower a guarantee, or select fewer VMs", web1, "guarantee: {rate: 4Gbit}\n", "names: [web2, web3]", "guarantee: {rate: 4Gbit}\n"},
		{"nothing", "", tenant, window, "labels: {tenant: b}", other},
		{"the same", "", tenant, window, web1, window},
	} {
		old := vmPolicy(t, 1, "old", row.old, row.oldKeys)
		p := Propose(toys(), []Policy{old}, []Policy{vmPolicy(t, 0, "new", row.given, row.keys)}, nil, hosts())
		got := ""
		if len(p.Refused) > 0 {
			got = p.Refused[0].Error()
		}
		if !strings.HasPrefix(got, row.says) || (got == "") != (row.says == "") || len(p.Refused) > 1 {
			t.Errorf("%s: %d refusals, %q; want %q", row.name, len(p.Refused), got, row.says)
		}
	}
}

// An edit keeps a policy's age, and a conflict that exists already does not refuse other edits.
func TestPropose_RefusesOnlyNewConflicts(t *testing.T) {
	old := vmPolicy(t, 1, "old", "names: [web1]", "laws: {window: {}}\n")
	young := vmPolicy(t, 2, "young", "labels: {tenant: a}", "laws: {window: {share: 1}}\n")
	edit := vmPolicy(t, 0, "old", "names: [web1]", "laws: {window: {}, guest: {}}\n")
	p := Propose(toys(), []Policy{old, young}, []Policy{edit}, nil, hosts())
	if len(p.Refused) > 0 {
		t.Fatal(p.Refused[0].Error())
	}
	if got := says(at(t, p.After, "vm h1/web1")); !strings.HasPrefix(got, "law guest (old); law window (old); left out: law window of policy young: ") {
		t.Error(got)
	}
	wider := vmPolicy(t, 0, "old", "names: [web1, web2]", "laws: {window: {}}\n")
	p = Propose(toys(), []Policy{old, young}, []Policy{wider}, nil, hosts())
	if len(p.Refused) != 1 || p.Refused[0].Target != "vm h1/web2" || p.Refused[0].More != 0 {
		t.Errorf("%+v", p.Refused)
	}
	// The younger policy of a full host is not pushed out by an edit of the older one.
	a := vmPolicy(t, 1, "a", "names: [web1]", "guarantee: {rate: 4Gbit}\n")
	b := vmPolicy(t, 2, "b", "names: [web2]", "guarantee: {rate: 6Gbit}\n")
	p = Propose(toys(), []Policy{a, b}, []Policy{vmPolicy(t, 0, "a", "names: [web1]", "guarantee: {rate: 5Gbit}\n")}, nil, hosts())
	if len(p.Refused) != 1 || p.Refused[0].Policy != "b" {
		t.Errorf("%+v", p.Refused)
	}
}

func TestPropose_ListsChanges(t *testing.T) {
	old := vmPolicy(t, 1, "old", "names: [web1]", "laws: {window: {}}\n")
	young := vmPolicy(t, 2, "young", "names: ['web*']", "laws: {window: {share: 1}}\nenforce: {percent: 5}\n")
	p := Propose(toys(), []Policy{old, young}, nil, []string{"old"}, hosts())
	const reason = "left out: law window of policy young: policy old gives the law window other parameters, or another percentage"
	want := []string{"- law window (old)", "- " + reason, "+ law window share=1, limits 5 % of the flows (young)"}
	if len(p.Targets) != 1 || p.Targets[0].Target != "vm h1/web1" || !slices.Equal(p.Targets[0].Lines, want) {
		t.Errorf("%+v", p.Targets)
	}
	if p = Propose(toys(), []Policy{old}, []Policy{young}, nil, nil); len(p.Refused) != 1 { // they meet as soon as web1 is there
		t.Errorf("%+v", p)
	}
	p = Propose(toys(), []Policy{old}, []Policy{vmPolicy(t, 0, "x", "labels: {tenant: a}", "laws: {window: {share: 1}}\n")}, nil, nil)
	if len(p.Refused) > 0 || len(p.Warnings) != 1 || !strings.HasPrefix(p.Warnings[0], "there is no inventory") {
		t.Errorf("%+v", p)
	}
	p = Propose(toys(), nil, []Policy{vmPolicy(t, 0, "x", "labels: {tenant: z}", "laws: {window: {}}\n")}, nil, hosts())
	if len(p.Warnings) != 1 || p.Warnings[0] != "policy x is off: it selects no port, host or VM of the inventory" {
		t.Errorf("%q", p.Warnings)
	}
}

func TestExplain(t *testing.T) {
	policies := []Policy{
		vmPolicy(t, 1, "a", "labels: {tier: front}", "laws: {window: {}}\n"),
		vmPolicy(t, 2, "b", "labels: {tenant: b}", "laws: {guest: {}}\n"),
		vmPolicy(t, 3, "c", "names: [web8]", "laws: {guest: {}}\n"),
		vmPolicy(t, 4, "d", "names: ['*']", "laws: {window: {share: 1}}\n"),
		vmPolicy(t, 5, "e", "labels: {zone: x}", "laws: {guest: {}}\n"),
		read(t, 6, "name: f\nselect: {ports: {names: ['*']}}\nlaws: {marker: {}}\n"),
	}
	now := time.Now()
	explain := func(name string, grants ...TargetGrant) ([]Explanation, error) {
		live := Live{Controller: "c1", Time: now, Change: 6, Nodes: []string{"h1", "tor1"}, Grants: grants}
		return (&View{toys(), policies, hosts(), []Live{live}, 6, now.Add(time.Second)}).Explain(name)
	}
	for _, name := range []string{"web2", "h1/web2", "vm h1/web2"} {
		e, err := explain(name)
		if err != nil || len(e) != 1 || e[0].Grants != nil {
			t.Fatalf("%s: %v, %+v", name, err, e)
		}
		want := []Other{{"b", `its label tenant is "a", not b`}, {"c", "its name is not selected"}, {"e", "it has no label zone"}, {"f", "it selects no vms"}}
		if !slices.Equal(e[0].Others, want) || len(e[0].Left) != 1 || e[0].Left[0].Policy != "d" || e[0].Laws[0].Law != "window" {
			t.Errorf("%+v", e[0])
		}
	}
	grant := func(at string, value uint64) TargetGrant {
		return TargetGrant{at, LiveGrant{Law: "window", Value: value, Expiry: time.Second}}
	}
	e, err := explain("web2", grant("vm h1/web1", 1), grant("vm h1/web2", 2))
	if err != nil || len(e[0].Grants) != 1 || e[0].Grants[0].Value != 2 || e[0].Grants[0].Age != time.Second {
		t.Errorf("%v, %+v", err, e)
	}
	for name, want := range map[string]string{
		"web8": "web8 is not in the inventory; policies select it by name: c",
		"web7": `no port, host or VM "web7"; did you mean web1?`,
	} {
		if _, err := explain(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&View{Specs: toys(), Policies: policies}).Explain("web1"); err == nil || !strings.Contains(err.Error(), "there is no inventory") {
		t.Error(err)
	}
}
