package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/law"
)

func number(n int) string { return strconv.Itoa(n) }

// slow is Compile without an index: every policy at every target, from the words of docs/policy.md.
func slow(specs law.Specs, policies []Policy, inventory []Node) *State {
	old := slices.Clone(policies)
	age := func(p Policy) string {
		if p.Since == 0 {
			return "9" + p.Name
		}
		return fmt.Sprintf("1%020d%s", p.Since, p.Name)
	}
	sort.Slice(old, func(i, j int) bool { return age(old[i]) < age(old[j]) })
	out := &State{}
	status := map[string]*Status{}
	for _, p := range old {
		status[p.Name] = &Status{Name: p.Name, Version: p.Version, Reason: p.Broken}
	}
	leave := func(h *Here, l Left) {
		s := status[l.Policy]
		s.Left++
		if s.Reason == "" {
			s.Reason = "at " + h.Target.String() + ": " + l.Reason()
		}
		if len(h.Left) == MaxLeft {
			h.MoreLeft++
			return
		}
		h.Left = append(h.Left, l)
	}
	capacity := map[string]law.Rate{}
	for _, n := range inventory {
		if n.Host == nil {
			continue
		}
		capacity[n.Name] = n.Host.Rate
		sum, known := law.Rate(0), true
		for _, m := range inventory {
			if m.Switch != nil && slices.Contains(n.Host.Switches, m.Name) {
				for _, p := range m.Switch.Ports {
					if p.Peer == n.Name {
						sum += p.Rate
						known = known && p.Rate > 0
					}
				}
			}
		}
		if sum > 0 && known && sum < capacity[n.Name] {
			capacity[n.Name] = sum
		}
	}
	for _, kind := range []Kind{Port, Host, VM} {
		var here []Here
		for _, tg := range targets(inventory) {
			if tg.Kind == kind {
				here = append(here, Here{Target: tg})
			}
		}
		sort.SliceStable(here, func(i, j int) bool {
			a, b := here[i].Target, here[j].Target
			return a.Node < b.Node || a.Node == b.Node && a.Name < b.Name
		})
		out.Targets = append(out.Targets, here...)
	}
	for i := range out.Targets {
		h := &out.Targets[i]
		for _, p := range old {
			if !slowSelects(p, h.Target) {
				continue
			}
			status[p.Name].Targets++
			for _, s := range p.Laws {
				slowLaw(specs, h, p, s, status[p.Name], leave)
			}
			slowGuarantee(h, p, capacity, status[p.Name], leave)
		}
	}
	slowCapacity(out, old, capacity, status, leave)
	slowSharing(specs, out, leave)
	for _, p := range old {
		s := status[p.Name]
		switch {
		case p.Broken != "":
			s.Condition = Off
		case s.Targets == 0:
			s.Condition, s.Reason = Off, "it selects no port, host or VM of the inventory"
		case s.Hold == 0:
			s.Condition = Off
		case s.Left > 0:
			s.Condition = Degraded
		case p.Percent == 0 && len(p.Laws) > 0:
			s.Condition = Observed
		default:
			s.Condition = Enforced
		}
		out.Policies = append(out.Policies, *s)
	}
	sort.Slice(out.Policies, func(i, j int) bool { return out.Policies[i].Name < out.Policies[j].Name })
	return out
}

// slowSharing leaves out the rates and weights for which no law at the VM or its host sends at rates.
func slowSharing(specs law.Specs, s *State, leave func(*Here, Left)) {
	for i := range s.Targets {
		h := &s.Targets[i]
		if h.Guarantee == nil || h.Guarantee.Rate == 0 && h.Guarantee.Weight < 2 {
			continue
		}
		shared := false
		for _, o := range s.Targets {
			if o.Target.Node != h.Target.Node || o.Target.Kind != Host && o.Target.String() != h.Target.String() {
				continue
			}
			for _, a := range o.Laws {
				spec, _ := specs.Named(a.Law)
				shared = shared || slices.Contains(spec.Claims, law.SendRate)
			}
		}
		if shared {
			continue
		}
		for _, name := range h.Guarantee.Policies {
			leave(h, Left{Policy: name, Cause: NoSharing})
		}
	}
}

func slowSelects(p Policy, t Target) bool {
	s := p.Select[t.Kind]
	if s == nil || p.Broken != "" {
		return false
	}
	name := t.Name
	if t.Kind == Port {
		name = t.Node + "/" + t.Name
	}
	named := len(s.Names) == 0
	for _, n := range s.Names {
		if n == name || n[len(n)-1] == '*' && strings.HasPrefix(name, n[:len(n)-1]) {
			named = true
		}
	}
	for key, values := range s.Labels {
		if v, has := t.labels[key]; !has || !slices.Contains([]string(values), v) {
			return false
		}
	}
	return named
}

func slowLaw(specs law.Specs, h *Here, p Policy, s Setting, st *Status, leave func(*Here, Left)) {
	spec, _ := specs.Named(s.Law)
	site := map[Kind]law.Site{Port: law.SwitchPort, Host: law.Uplink, VM: law.VMPort}[h.Target.Kind]
	if !slices.Contains(spec.Sites, site) && !slices.Contains(spec.Sites, law.Controller) {
		return
	}
	if h.Target.laws != nil && !slices.Contains(h.Target.laws, s.Law) {
		leave(h, Left{Policy: p.Name, Law: s.Law, Cause: Unsupported})
		return
	}
	for i, a := range h.Laws {
		if a.Law != s.Law {
			continue
		}
		if a.Percent != p.Percent || !bytes.Equal(a.Params, s.Params) {
			leave(h, Left{Policy: p.Name, Law: s.Law, Cause: SameLaw, With: a.Policies[0]})
			return
		}
		h.Laws[i].Policies = append(h.Laws[i].Policies, p.Name)
		st.Hold++
		return
	}
	for _, a := range h.Laws {
		other, _ := specs.Named(a.Law)
		var conflict *law.ConflictError
		if errors.As(law.Compose(other, spec), &conflict) {
			leave(h, Left{Policy: p.Name, Law: s.Law, Cause: SameResource, With: a.Policies[0], Other: a.Law, Detail: conflict.Resource.String()})
			return
		}
	}
	h.Laws = append(h.Laws, Applied{Law: s.Law, Params: s.Params, Percent: p.Percent, Policies: []string{p.Name}})
	st.Hold++
}

func slowGuarantee(h *Here, p Policy, capacity map[string]law.Rate, st *Status, leave func(*Here, Left)) {
	if h.Target.Kind != VM || p.Guarantee == (Guarantee{}) {
		return
	}
	if capacity[h.Target.Node] == 0 {
		leave(h, Left{Policy: p.Name, Cause: UnknownRate})
		return
	}
	if h.Guarantee == nil {
		h.Guarantee = &Guarantor{Guarantee: p.Guarantee}
	}
	if h.Guarantee.Guarantee != p.Guarantee {
		leave(h, Left{Policy: p.Name, Cause: SameGuarantee, With: h.Guarantee.Policies[0]})
		return
	}
	h.Guarantee.Policies = append(h.Guarantee.Policies, p.Name)
	st.Hold++
}

// slowCapacity admits guarantees one by one, and adds up the admitted ones anew each time.
func slowCapacity(s *State, old []Policy, capacity map[string]law.Rate, status map[string]*Status, leave func(*Here, Left)) {
	admitted := map[*Here]bool{}
	for _, p := range old {
		for i := range s.Targets {
			h := &s.Targets[i]
			g := h.Guarantee
			if g == nil || g.Policies[0] != p.Name {
				continue
			}
			sum, by := law.Rate(0), []string(nil)
			for _, q := range old {
				for k := range s.Targets {
					if o := &s.Targets[k]; admitted[o] && o.Target.Node == h.Target.Node && o.Guarantee.Policies[0] == q.Name && o.Guarantee.Rate > 0 {
						sum += o.Guarantee.Rate
						by = append(by, q.Name)
					}
				}
			}
			if sum+g.Rate <= capacity[h.Target.Node] {
				admitted[h] = true
				continue
			}
			h.Guarantee = nil
			for _, name := range g.Policies {
				status[name].Hold--
				leave(h, Left{Policy: name, Cause: Capacity, Detail: full(h.Target.Node, capacity[h.Target.Node], sum, g.Rate, slices.Compact(by))})
			}
		}
	}
}

var drawnPolicy = rapid.Custom(func(t *rapid.T) Policy {
	p := Policy{
		Since: uint64(rapid.IntRange(0, 4).Draw(t, "since")), Version: 1, Select: map[Kind]*Selector{},
		Percent: rapid.SampledFrom([]int{0, 10, 100}).Draw(t, "percent"),
	}
	for _, k := range kinds {
		if !rapid.Bool().Draw(t, "select "+string(k)) {
			continue
		}
		s := &Selector{Labels: map[string]Values{}}
		names := map[Kind][]string{Port: {"n0/a", "n1/b", "n0/*", "*"}, Host: {"n1", "n2", "n*"}, VM: {"a", "b", "c", "*"}}[k]
		s.Names = rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(t, "names")
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y"}), 0, 2, rapid.ID).Draw(t, "keys") {
			s.Labels[key] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "2", "3"}), 1, 2, rapid.ID).Draw(t, "values")
		}
		if len(s.Names)+len(s.Labels) > 0 {
			p.Select[k] = s
		}
	}
	for _, l := range rapid.SliceOfNDistinct(rapid.SampledFrom(toys().Names()), 0, 3, rapid.ID).Draw(t, "laws") {
		params := rapid.SampledFrom([]string{`{"every":"1ms"}`, `{"every":"2ms"}`}).Draw(t, "params")
		p.Laws = append(p.Laws, Setting{Law: l, Params: json.RawMessage(params)})
	}
	slices.SortFunc(p.Laws, func(a, b Setting) int { return strings.Compare(a.Law, b.Law) })
	if rapid.Bool().Draw(t, "guarantees") {
		p.Guarantee = Guarantee{Rate: law.Rate(rapid.IntRange(0, 5).Draw(t, "rate")) * 1e9, Weight: rapid.IntRange(1, 2).Draw(t, "weight")}
	}
	if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
		p.Broken = "it cannot be read"
	}
	return p
})

var drawnLabels = rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), rapid.SampledFrom([]string{"1", "2"}), 0, 2)

func drawNode(t *rapid.T, i int) Node {
	n := Node{Name: "n" + number(i), Labels: drawnLabels.Draw(t, "labels")}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID)
	if rapid.Bool().Draw(t, "host") {
		n.Host = &NodeHost{ID: law.Host(i), Rate: law.Rate(rapid.SampledFrom([]int{0, 3, 6}).Draw(t, "uplink")) * 1e9}
		n.Host.Switches = rapid.SliceOfN(rapid.SampledFrom([]string{"n0", "n1", "n2", "n3"}), 0, 4).Draw(t, "switches")
		for k, name := range names.Draw(t, "vms") {
			n.Host.VMs = append(n.Host.VMs, NodeVM{ID: law.VM(10*i + k + 1), Name: name, Labels: drawnLabels.Draw(t, "labels")})
		}
	}
	if rapid.Bool().Draw(t, "switch") {
		n.Switch = &NodeSwitch{ID: law.Switch(i)}
		for k, name := range names.Draw(t, "ports") {
			n.Switch.Ports = append(n.Switch.Ports, NodePort{
				N: uint32(k), Name: name, Labels: drawnLabels.Draw(t, "labels"),
				Rate: law.Rate(rapid.SampledFrom([]int{0, 3, 5}).Draw(t, "rate")) * 1e9, Peer: rapid.SampledFrom([]string{"", "n0", "n1"}).Draw(t, "peer"),
			})
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "knows its laws") == 0 {
		n.Laws = []string{"window", "marker"}
	}
	return n
}

// TestCompile_IsTheSlowVersion compares Compile with the slow version.
func TestCompile_IsTheSlowVersion(t *testing.T) {
	causes := map[Cause]int{}
	check := func(t *rapid.T) {
		policies := rapid.SliceOfN(drawnPolicy, 0, 8).Draw(t, "policies")
		for i := range policies {
			policies[i].Name = "p" + number(i)
		}
		var inventory []Node
		for i := range rapid.IntRange(0, 3).Draw(t, "nodes") {
			inventory = append(inventory, drawNode(t, i))
		}
		got, want := Compile(toys(), policies, inventory), slow(toys(), policies, inventory)
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("got  %s\nwant %s", got.Bytes(), want.Bytes())
		}
		for _, h := range got.Targets {
			for _, l := range h.Left {
				causes[l.Cause]++
			}
		}
	}
	missing := func() []Cause {
		return slices.DeleteFunc([]Cause{SameLaw, SameResource, SameGuarantee, Capacity, UnknownRate, Unsupported}, func(c Cause) bool { return causes[c] > 0 })
	}
	// A hundred cases each, with -short twenty. A rare cause may need more.
	for n := 0; n < 20 || len(missing()) > 0 && n < 500; n++ {
		rapid.Check(t, check)
	}
	for _, c := range missing() {
		t.Errorf("no case had the cause %q", c)
	}
}
