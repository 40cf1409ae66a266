package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/law"
)

// LiveGrant is a valid grant of a law, or of the cap of a guarantee.
type LiveGrant struct {
	Law    string        `json:"law"` // "": the cap
	Kind   law.Kind      `json:"kind"`
	For    string        `json:"for,omitempty"` // peer or flow; "": all traffic of the VM
	Value  uint64        `json:"value"`         // in the unit of Kind
	Expiry time.Duration `json:"expiry_ns"`     // what remained of its lease when its controller reported it
	Age    time.Duration `json:"age_ns"`        // of that report
}

// String is the grant for people.
func (g *LiveGrant) String() string {
	out := g.Kind.String()
	switch g.Kind {
	case law.WindowGrant:
		out += " " + law.Bytes(g.Value).String()
	case law.RateGrant:
		out += " " + law.Rate(g.Value).String()
	}
	if g.For != "" {
		out += " for " + g.For
	}
	return out
}

// Explanation is what holds at a target, and why nothing else does.
type Explanation struct {
	Here
	Others []Other     `json:"others"`           // policies that do not select it, sorted by name
	Grants []LiveGrant `json:"grants,omitempty"` // as controllers reported them last
}

// Other is a policy that does not select a target.
type Other struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// View is what is known of the policies of a fabric.
type View struct {
	Specs     law.Specs
	Policies  []Policy
	Inventory []Node
	Lives     []Live // of controllers
	Change    uint64 // the last one
	Now       time.Time
}

// State returns what holds where, as controllers report it.
func (v *View) State() *State {
	s := Compile(v.Specs, append(OfFile(v.Lives), v.Policies...), v.Inventory)
	s.Observe(v.Lives, v.Change, v.Now)
	return s
}

// Explain explains every target of a name: a port, host or VM, alone (web1) or behind its node (h1/web1), and with or without
// its kind (vm h1/web1).
func (v *View) Explain(name string) ([]Explanation, error) {
	state, policies := v.State(), v.Policies
	var out []Explanation
	for i := range state.Targets {
		h := &state.Targets[i]
		if !h.Target.called(name) {
			continue
		}
		out = append(out, Explanation{Here: *h, Others: others(policies, &h.Target), Grants: grantsAt(v.Lives, &h.Target, v.Now)})
	}
	if len(out) == 0 {
		return nil, unknownTarget(state, policies, name)
	}
	return out, nil
}

func (t *Target) called(name string) bool {
	return name == t.Name || name == t.Node+"/"+t.Name && t.Kind != Host || name == t.String()
}

func others(policies []Policy, t *Target) []Other {
	out := []Other{}
	for i := range policies {
		p := &policies[i]
		s := p.Select[t.Kind]
		why := ""
		switch {
		case p.Broken != "":
			why = "it is off: " + p.Broken
		case s == nil:
			why = fmt.Sprintf("it selects no %s", sections[t.Kind])
		default:
			why = s.miss(t.selectName(), t.labels)
		}
		if why != "" {
			out = append(out, Other{p.Name, why})
		}
	}
	slices.SortFunc(out, func(a, b Other) int { return strings.Compare(a.Policy, b.Policy) })
	return out
}

// unknownTarget returns an error that suggests the nearest name, or says which policies select a missing target.
func unknownTarget(s *State, policies []Policy, name string) error {
	var by []string
	for i := range policies {
		for _, sel := range policies[i].Select {
			if slices.Contains(sel.Names, name) && !slices.Contains(by, policies[i].Name) {
				by = append(by, policies[i].Name)
			}
		}
	}
	slices.Sort(by)
	if len(by) > 0 {
		return fmt.Errorf("%s is not in the inventory; policies select it by name: %s", config.Clip(name), strings.Join(by, ", "))
	}
	known := map[string]bool{}
	for i := range s.Targets {
		known[s.Targets[i].Target.selectName()] = true
	}
	if len(known) == 0 {
		return fmt.Errorf("there is no inventory, so nothing is known of %q: start a controller, and the agents", config.Clip(name))
	}
	return fmt.Errorf("no port, host or VM %q; %s", config.Clip(name), config.OneOf(name, slices.Sorted(maps.Keys(known))))
}
