// Package policy decides which law, parameters and guarantees hold at which port, host and VM. It has no I/O and no clock.
//
//	file.go      kind: Policy, and policies
//	check.go     what a schema cannot express
//	selector.go  selection by name and label
//	inventory.go what agents report: hosts, VMs, switches, ports
//	index.go     finds the policies that may select a target
//	compile.go   policies and inventory to a State
//	state.go     what holds where, and what does not, with the reason
//	apply.go     what a change would do, and whether it is refused
//	explain.go   why, for people
//
// Next to it, store keeps the policies in the store of the bus.
package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/law"
)

// Compile decides what holds at each target of the inventory. Names of policies and of nodes must be unique. The result
// does not depend on the order of either.
//
// Of two policies that contradict each other at a target, the older holds there, and the other one's setting is left out.
func Compile(specs law.Specs, policies []Policy, inventory []Node) *State {
	return newCompiler(specs, policies, inventory).run()
}

// compiler holds the parts of one compilation.
type compiler struct {
	specs    map[string]*law.Spec
	policies []Policy // the oldest first
	state    *State
	status   []Status // by index in policies
	capacity map[string]law.Rate
	index    map[Kind]*index
	// report, unless nil, gets every setting that is left out. here is valid during the call.
	report func(here *Here, l Left)
}

func newCompiler(specs law.Specs, policies []Policy, inventory []Node) *compiler {
	c := &compiler{specs: map[string]*law.Spec{}, policies: slices.Clone(policies), state: &State{}, capacity: capacities(inventory), index: map[Kind]*index{}}
	for i := range specs {
		c.specs[specs[i].Name] = &specs[i]
	}
	slices.SortFunc(c.policies, byAge)
	for i := range c.policies {
		p := &c.policies[i]
		c.status = append(c.status, Status{Name: p.Name, Version: p.Version, Reason: p.Broken})
	}
	for _, k := range kinds {
		c.index[k] = newIndex(c.policies, k)
	}
	for _, t := range targets(inventory) {
		c.state.Targets = append(c.state.Targets, Here{Target: t})
	}
	return c
}

// byAge orders policies from the oldest to the youngest. Those that were not applied yet are the youngest.
func byAge(a, b Policy) int {
	return cmp.Or(cmp.Compare(a.Since-1, b.Since-1), strings.Compare(a.Name, b.Name)) // 0 - 1 is the largest
}

func (c *compiler) run() *State {
	var demands []demand
	var found []int
	for i := range c.state.Targets {
		h := &c.state.Targets[i]
		name := h.Target.selectName()
		found = c.index[h.Target.Kind].find(found[:0], name, h.Target.labels)
		for _, p := range found {
			if !c.policies[p].Select[h.Target.Kind].Matches(name, h.Target.labels) {
				continue
			}
			c.status[p].Targets++
			c.laws(h, p)
			if h.Target.Kind == VM && c.guarantee(h, p) {
				demands = append(demands, demand{p, i})
			}
		}
	}
	c.admit(demands)
	c.share()
	c.finish()
	return c.state
}

// laws puts the laws of policy p at a target, as far as those of older policies allow.
func (c *compiler) laws(h *Here, p int) {
	policy := &c.policies[p]
	for i := range policy.Laws {
		s := &policy.Laws[i]
		spec := c.specs[s.Law]
		if spec == nil || !h.Target.Kind.takes(spec) {
			continue
		}
		if h.Target.laws != nil && !slices.Contains(h.Target.laws, s.Law) {
			c.leave(h, p, Left{Law: s.Law, Cause: Unsupported})
			continue
		}
		same, conflict := h.meets(s, spec, policy.Percent)
		switch {
		case conflict.Cause != "":
			c.leave(h, p, conflict)
			continue
		case same != nil:
			same.Policies = append(same.Policies, policy.Name)
		default:
			h.Laws = append(h.Laws, Applied{Law: s.Law, Params: s.Params, Percent: policy.Percent, Policies: []string{policy.Name}, given: s.Given, spec: spec})
		}
		c.status[p].Hold++
	}
}

// meets compares a setting with those that hold. It returns the one that is the same, or the conflict with another.
func (h *Here) meets(s *Setting, spec *law.Spec, percent int) (same *Applied, conflict Left) {
	for i := range h.Laws {
		a := &h.Laws[i]
		if a.Law == s.Law {
			if a.Percent == percent && bytes.Equal(a.Params, s.Params) {
				return a, Left{}
			}
			return nil, Left{Law: s.Law, Cause: SameLaw, With: a.Policies[0]}
		}
	}
	for i := range h.Laws {
		a := &h.Laws[i]
		if r, both := bothOwn(a.spec, spec); both {
			return nil, Left{Law: s.Law, Cause: SameResource, With: a.Policies[0], Other: a.Law, Detail: r.String()}
		}
	}
	return nil, Left{}
}

// bothOwn returns a resource that two laws own alone, as law.Compose finds it.
func bothOwn(a, b *law.Spec) (law.Resource, bool) {
	for _, r := range b.Claims {
		if r.Exclusive() && slices.Contains(a.Claims, r) {
			return r, true
		}
	}
	return 0, false
}

// guarantee gives a VM the guarantee of policy p, unless an older policy gives another one. It reports whether p is the first.
func (c *compiler) guarantee(h *Here, p int) (first bool) {
	policy := &c.policies[p]
	switch {
	case policy.Guarantee == (Guarantee{}):
		return false
	case c.capacity[h.Target.Node] == 0:
		c.leave(h, p, Left{Cause: UnknownRate})
		return false
	case h.Guarantee == nil:
		h.Guarantee = &Guarantor{policy.Guarantee, []string{policy.Name}}
		first = true
	case h.Guarantee.Guarantee != policy.Guarantee:
		c.leave(h, p, Left{Cause: SameGuarantee, With: h.Guarantee.Policies[0]})
		return false
	default:
		h.Guarantee.Policies = append(h.Guarantee.Policies, policy.Name)
	}
	c.status[p].Hold++
	return first
}

// demand is the guarantee of a VM before the capacity is checked.
type demand struct{ policy, target int }

// admit leaves out the guarantees that do not fit into the capacity of their host. Older policies come first, and within one
// policy VMs in the order of the state.
func (c *compiler) admit(demands []demand) {
	slices.SortFunc(demands, func(a, b demand) int { return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.target, b.target)) })
	number := make(map[string]int, len(c.policies))
	for i := range c.policies {
		number[c.policies[i].Name] = i
	}
	given, givers := map[string]law.Rate{}, map[string][]string{}
	for _, d := range demands {
		h := &c.state.Targets[d.target]
		node, g := h.Target.Node, h.Guarantee
		if given[node]+g.Rate <= c.capacity[node] {
			given[node] += g.Rate
			if by := givers[node]; g.Rate > 0 && !slices.Contains(by, g.Policies[0]) {
				givers[node] = append(by, g.Policies[0])
			}
			continue
		}
		h.Guarantee = nil
		for _, name := range g.Policies {
			p := number[name]
			c.status[p].Hold--
			c.leave(h, p, Left{Cause: Capacity, Detail: full(node, c.capacity[node], given[node], g.Rate, givers[node])})
		}
	}
}

// share finds the guarantees of a rate or weight that no law enforces: one must share the uplink, at the VM or at its host.
func (c *compiler) share() {
	shared := map[string]bool{} // hosts
	number := map[string]int{}
	for i := range c.policies {
		number[c.policies[i].Name] = i
	}
	for i := range c.state.Targets { // hosts come before VMs
		h := &c.state.Targets[i]
		shares := slices.ContainsFunc(h.Laws, func(a Applied) bool { return slices.Contains(a.spec.Claims, law.SendRate) })
		switch {
		case h.Target.Kind == Host && shares:
			shared[h.Target.Node] = true
		case h.Target.Kind != VM || h.Guarantee == nil || h.Guarantee.Rate == 0 && h.Guarantee.Weight <= 1:
		case !shares && !shared[h.Target.Node]:
			for _, name := range h.Guarantee.Policies {
				c.leave(h, number[name], Left{Cause: NoSharing})
			}
		}
	}
}

// full describes a host whose capacity is guaranteed already.
func full(node string, capacity, given, more law.Rate, givers []string) string {
	if given == 0 {
		return fmt.Sprintf("%s has %s: a guarantee of %s does not fit", node, capacity, more)
	}
	const most = 5
	by := strings.Join(givers[:min(len(givers), most)], ", ")
	if len(givers) > most {
		by += ", ..."
	}
	return fmt.Sprintf("%s has %s, and %s of it are guaranteed by %s: %s more do not fit", node, capacity, given, by, more)
}

// leave records that a setting of policy p does not hold at a target.
func (c *compiler) leave(h *Here, p int, l Left) {
	l.Policy = c.policies[p].Name
	s := &c.status[p]
	s.Left++
	if s.Reason == "" {
		s.Reason = fmt.Sprintf("at %s: %s", h.Target.String(), l.Reason())
	}
	if len(h.Left) < MaxLeft {
		h.Left = append(h.Left, l)
	} else {
		h.MoreLeft++
	}
	if c.report != nil {
		c.report(h, l)
	}
}

// finish decides the condition of each policy.
func (c *compiler) finish() {
	for i := range c.status {
		s := &c.status[i]
		switch {
		case c.policies[i].Broken != "":
			s.Condition = Off
		case s.Targets == 0:
			s.Condition, s.Reason = Off, "it selects no port, host or VM of the inventory"
		case c.policies[i].Percent == 0 && len(c.policies[i].Laws) > 0:
			s.Condition = Observed
		default:
			s.Condition = Enforced
		}
		s.weaken()
	}
	c.state.Policies = c.status
	slices.SortFunc(c.state.Policies, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
}

// weaken makes the condition of a policy that of its settings that do not hold.
func (s *Status) weaken() {
	switch {
	case s.Condition == Off:
	case s.Hold == 0:
		s.Condition = Off
	case s.Left > 0:
		s.Condition = Degraded
	}
}
