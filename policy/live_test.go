package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/law"
)

// The state shows what controllers report: problems, agents that nobody commands, old reports, changes that are not applied.
func TestView_ShowsWhatHolds(t *testing.T) {
	policies := []Policy{
		read(t, 1, "name: vms\nselect: {vms: {names: [web1, db1]}}\nlaws: {remote: {}}\nguarantee: {cap: 1Gbit}\n"),
		read(t, 2, "name: ports\nselect: {ports: {names: [tor1/swp1, tor1/swp2]}}\nlaws: {marker: {}}\n"),
	}
	now := time.Now()
	live := func(change func(l *Live)) []Live {
		l := Live{Controller: "c1", Time: now.Add(-time.Second), Change: 2, Nodes: []string{"h1", "h2", "tor1"}}
		change(&l)
		return []Live{l}
	}
	problem := func(target, law string, off bool) func(*Live) {
		return func(l *Live) { l.Problems = append(l.Problems, Problem{target, law, off, "it is broken"}) }
	}
	type row struct {
		vms, ports Condition
		reason     string // of either
	}
	for name, r := range map[string]struct {
		lives []Live
		want  row
	}{
		"all":                   {live(func(*Live) {}), row{Enforced, Enforced, ""}},
		"no controller":         {nil, row{Off, Off, "at port tor1/swp1: no controller enforces policies"}},
		"an agent is missing":   {live(func(l *Live) { l.Nodes = l.Nodes[:1] }), row{Degraded, Off, "at vm h2/db1: no controller reaches the agent h2"}},
		"an old report":         {live(func(l *Live) { l.Time = now.Add(-time.Minute) }), row{Off, Off, "controller c1 reported last 1m0s ago"}},
		"not applied yet":       {live(func(l *Live) { l.Change = 1 }), row{Off, Off, "controller c1 has not applied change 2 yet"}},
		"a port":                {live(problem("port tor1/swp2", "marker", true)), row{Enforced, Degraded, "at port tor1/swp2: it is broken"}},
		"a port, partly":        {live(problem("port tor1/swp2", "marker", false)), row{Enforced, Degraded, "at port tor1/swp2: it is broken"}},
		"another law":           {live(problem("port tor1/swp2", "window", true)), row{Enforced, Enforced, ""}},
		"a guarantee":           {live(problem("vm h1/web1", "", true)), row{Degraded, Enforced, "at vm h1/web1: it is broken"}},
		"of another controller": {append(live(problem("vm h1/web1", "", true)), live(func(l *Live) { l.Controller, l.Time = "c2", now })...), row{Enforced, Enforced, ""}},
	} {
		s := (&View{toys(), policies, hosts(), r.lives, 2, now}).State()
		a, b := status(t, s, "vms"), status(t, s, "ports")
		if a.Condition != r.want.vms || b.Condition != r.want.ports || !strings.Contains(a.Reason+" "+b.Reason, r.want.reason) || r.want.reason == "" && a.Reason+b.Reason != "" {
			t.Errorf("%s: %+v, %+v, want %+v", name, a, b, r.want)
		}
	}
	off := (&View{toys(), policies, hosts(), live(problem("vm h1/web1", "", true)), 2, now}).State()
	if h := at(t, off, "vm h1/web1"); h.Guarantee != nil || len(h.Laws) != 1 || len(h.Left) != 1 || h.Left[0].Reason() != "it is broken" {
		t.Errorf("%+v", h)
	}
}

// The laws of a controller's file are older than all policies: another one that contradicts them is refused by both names.
func TestFilePolicy(t *testing.T) {
	given := read(t, 0, "name: mine\nselect: {vms: {names: [web1]}}\nlaws: {remote: {share: 1}}\n")
	same := read(t, 1, "name: same\nselect: {vms: {names: [web1]}}\nlaws: {remote: {}}\n")
	lives := []Live{{Controller: "c1", Time: time.Now(), Nodes: []string{"h1"}, File: same.Laws}}
	if r := Propose(toys(), OfFile(lives), []Policy{given}, nil, hosts()).Refused; len(r) != 1 || r[0].With != "(the file of controller c1)" || r[0].Policy != "mine" {
		t.Errorf("%+v", r)
	}
	v := View{toys(), []Policy{same}, hosts(), lives, 0, time.Now()}
	if s := v.State(); len(s.Policies) != 1 || status(t, s, "same").Condition != Enforced {
		t.Errorf("%+v", s.Policies)
	}
	given.Since = 1
	v.Policies = []Policy{given}
	if got := status(t, v.State(), "mine"); got.Condition != Off || got.Reason != "at vm h1/web1: policy (the file of controller c1) gives the law remote other parameters, or another percentage" {
		t.Errorf("%+v", got)
	}
}

func TestLive_Check(t *testing.T) {
	const unprintable = "\x1b[2J"
	sound := func() *Live {
		return &Live{Controller: "c1", Nodes: []string{"a", "b"}, Problems: []Problem{{Target: "vm a/x"}}, Grants: []TargetGrant{{Target: "vm a/x"}}}
	}
	if err := sound().Check(); err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct {
		says   string
		change func(*Live)
	}{
		{`controller "C1"`, func(l *Live) { l.Controller = "C1" }},
		{"4097 nodes", func(l *Live) { l.Nodes = make([]string, MaxNodes+1) }},
		{"4097 problems", func(l *Live) { l.Problems = make([]Problem, MaxProblems+1) }},
		{fmt.Sprint(MaxGrants+1, " grants"), func(l *Live) { l.Grants = make([]TargetGrant, MaxGrants+1) }},
		{`controller "c1"`, func(l *Live) { l.File = make([]Setting, MaxLaws+1) }},
		{"are not sorted", func(l *Live) { l.Nodes = []string{"b", "a"} }},
		{"a problem at", func(l *Live) { l.Problems[0].Target = unprintable }},
		{`a problem at "xxx`, func(l *Live) { l.Problems[0].Target = strings.Repeat("x", 513) }},
		{"a problem at", func(l *Live) { l.Problems[0].Reason = unprintable }},
		{"a problem at", func(l *Live) { l.Problems[0].Law = unprintable }},
		{"a grant at", func(l *Live) { l.Grants[0].Target = unprintable }},
		{"a grant at", func(l *Live) { l.Grants[0].Law = unprintable }},
		{"a grant at", func(l *Live) { l.Grants[0].For = unprintable }},
		{"a grant at", func(l *Live) { l.Grants[0].Kind = law.PauseGrant + 1 }},
	} {
		l := sound()
		row.change(l)
		if err := l.Check(); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("row %d: %v, want %s", i, err, row.says)
		}
	}
}
