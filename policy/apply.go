package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"weir/law"
)

// Limits of what a Proposal lists.
const (
	maxRefusals = 100
	maxBefore   = 1 << 20 // settings that do not hold already
)

// Proposal is what a change of the policies would do.
type Proposal struct {
	Before  *State         `json:"-"`
	After   *State         `json:"-"`
	Refused []Refusal      `json:"refused,omitempty"` // not empty: do not make the change
	Targets []TargetChange `json:"targets,omitempty"` // those at which something changes
	// Warnings are sentences about what was not checked, and about changed policies that do not hold completely.
	Warnings []string `json:"warnings,omitempty"`
}

// Refusal is a conflict that the change would make.
type Refusal struct {
	Policy  string `json:"policy"`
	With    string `json:"with,omitempty"`
	Item    string `json:"item"`
	Target  string `json:"target"` // the first
	More    int    `json:"more,omitempty"`
	Problem string `json:"problem"`
}

func (r *Refusal) Error() string {
	at := r.Target
	if r.More > 0 {
		at += fmt.Sprintf(" and %d more", r.More)
	}
	if r.With == "" {
		return fmt.Sprintf("policy %s, %s at %s: %s; lower a guarantee, or select fewer VMs", r.Policy, r.Item, at, r.Problem)
	}
	return fmt.Sprintf("policies %s and %s, %s at %s: %s; change one of them, or select other targets", r.Policy, r.With, r.Item, at, r.Problem)
}

// TargetChange is what changes at a target: lines that begin with "- " or "+ ".
type TargetChange struct {
	Target string   `json:"target"`
	Lines  []string `json:"lines"`
}

// Propose returns what it would do to replace or add the given policies, and to remove those named. A conflict or a guarantee
// beyond a capacity is refused if it is new. Conflicts that exist already refuse nothing, so that they can be resolved one by one.
func Propose(specs law.Specs, current, given []Policy, remove []string, inventory []Node) *Proposal {
	changed := map[string]bool{}
	for i := range given {
		changed[given[i].Name] = true
	}
	var next []Policy
	for i := range current {
		p := &current[i]
		if changed[p.Name] || slices.Contains(remove, p.Name) {
			continue
		}
		next = append(next, *p)
	}
	for _, p := range given {
		if i := slices.IndexFunc(current, func(o Policy) bool { return o.Name == p.Name }); i >= 0 {
			p.Since = current[i].Since
		}
		next = append(next, p)
	}
	p := &Proposal{Before: Compile(specs, current, inventory), After: Compile(specs, next, inventory)}
	if len(given) > 0 {
		p.Refused = refusals(specs, current, next, changed, inventory)
	}
	p.Targets = changes(p.Before, p.After)
	p.warn(changed, len(inventory) == 0)
	return p
}

// place is a setting that does not hold at a target.
type place struct{ target, policy, item, with string }

// refusals lists the conflicts that the policies of next have, and those of current have not.
func refusals(specs law.Specs, current, next []Policy, changed map[string]bool, inventory []Node) []Refusal {
	missing := missingTargets(slices.Concat(current, next), inventory)
	each := func(policies []Policy, f func(place, *Here, Left)) {
		c := newCompiler(specs, policies, inventory)
		for _, t := range missing {
			c.state.Targets = append(c.state.Targets, Here{Target: t})
		}
		c.capacity[""] = unlimited // of VMs whose host is not known
		c.report = func(h *Here, l Left) {
			if l.Cause.conflict() && (changed[l.Policy] || changed[l.With] || l.Cause == Capacity) {
				f(place{h.Target.String(), l.Policy, l.Item(), l.With}, h, l)
			}
		}
		c.run()
	}
	before := map[place]bool{}
	each(current, func(at place, _ *Here, _ Left) {
		if len(before) < maxBefore {
			before[at] = true
		}
	})
	var out []Refusal
	found := map[place]int{}
	each(next, func(at place, _ *Here, l Left) {
		if before[at] {
			return
		}
		kind := place{"", at.policy, at.item, at.with}
		if i, again := found[kind]; again {
			out[i].More++
		} else if len(out) < maxRefusals {
			found[kind] = len(out)
			out = append(out, Refusal{Policy: l.Policy, With: l.With, Item: at.item, Target: at.target, Problem: l.Reason()})
		}
	})
	return out
}

// unlimited is a capacity above the sum of any guarantees that are compared.
const unlimited = law.Rate(math.MaxInt64 / 2)

// missingTargets returns a target for each name that a policy selects and the inventory does not have. Policies that select the
// same such name meet as soon as it appears.
func missingTargets(policies []Policy, inventory []Node) []Target {
	known := map[[2]string]bool{}
	for _, t := range targets(inventory) {
		known[[2]string{string(t.Kind), t.selectName()}] = true
	}
	var out []Target
	for _, k := range kinds {
		for i := range policies {
			s := policies[i].Select[k]
			if s == nil {
				continue
			}
			for _, name := range s.Names {
				if at := [2]string{string(k), name}; !known[at] && !strings.HasSuffix(name, "*") {
					known[at] = true
					out = append(out, missingTarget(k, name))
				}
			}
		}
	}
	return out
}

func missingTarget(k Kind, name string) Target {
	t := Target{Kind: k, Name: name}
	switch k {
	case Port:
		t.Node, t.Name, _ = strings.Cut(name, "/")
	case Host:
		t.Node = name
	}
	return t
}

func (p *Proposal) warn(changed map[string]bool, empty bool) {
	if empty {
		p.Warnings = append(p.Warnings, "there is no inventory: conflicts are checked at the names that policies list only, and capacities are not checked")
		return
	}
	for _, s := range p.After.Policies {
		if changed[s.Name] && (s.Condition == Degraded || s.Condition == Off) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("policy %s is %s: %s", s.Name, s.Condition, s.Reason))
		}
	}
}

// changes compares two states of the same inventory.
func changes(before, after *State) []TargetChange {
	var out []TargetChange
	for i := range after.Targets {
		old, now := before.Targets[i].lines(), after.Targets[i].lines()
		var lines []string
		for _, l := range old {
			if !slices.Contains(now, l) {
				lines = append(lines, "- "+l)
			}
		}
		for _, l := range now {
			if !slices.Contains(old, l) {
				lines = append(lines, "+ "+l)
			}
		}
		if len(lines) > 0 {
			out = append(out, TargetChange{after.Targets[i].Target.String(), lines})
		}
	}
	return out
}

// lines describes what holds at a target, and what does not: a line each.
func (h *Here) lines() []string {
	var out []string
	for i := range h.Laws {
		a := &h.Laws[i]
		out = append(out, fmt.Sprintf("%s (%s)", a.String(), strings.Join(a.Policies, ", ")))
	}
	if g := h.Guarantee; g != nil {
		out = append(out, fmt.Sprintf("guarantee: %s (%s)", g.String(), strings.Join(g.Policies, ", ")))
	}
	for i := range h.Left {
		l := &h.Left[i]
		out = append(out, fmt.Sprintf("left out: %s of policy %s: %s", l.Item(), l.Policy, l.Reason()))
	}
	return out
}

// String is the law with the parameters that differ from the defaults, and how much it enforces.
func (a *Applied) String() string {
	out := "law " + a.Law
	if a.given != "" {
		out += " " + a.given
	}
	switch a.Percent {
	case 100:
	case 0:
		out += ", observes only"
	default:
		out += fmt.Sprintf(", limits %d %% of the flows", a.Percent)
	}
	return out
}
