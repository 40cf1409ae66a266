package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/config"
	"weir/law"
)

// Grants reports the grants that are valid at a target now. A controller has them.
type Grants interface {
	Live(ctx context.Context, t *Target) ([]LiveGrant, error)
}

// LiveGrant is a valid grant of a law.
type LiveGrant struct {
	Law    string        `json:"law"`
	Kind   law.Kind      `json:"kind"`
	Value  uint64        `json:"value"` // in the unit of Kind
	Expiry time.Duration `json:"expiry_ns"`
}

// Explanation is what holds at a target, and why nothing else does.
type Explanation struct {
	Here
	Others []Other     `json:"others"`           // policies that do not select it, sorted by name
	Grants []LiveGrant `json:"grants,omitempty"` // valid now; only with a source of them
}

// Other is a policy that does not select a target.
type Other struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Explain explains every target of a name: a port, host or VM, alone (web1) or behind its node (h1/web1), and with or without
// its kind (vm h1/web1). grants may be nil.
func Explain(ctx context.Context, specs law.Specs, policies []Policy, inventory []Node, name string, grants Grants) ([]Explanation, error) {
	state := Compile(specs, policies, inventory)
	var out []Explanation
	for i := range state.Targets {
		h := &state.Targets[i]
		if !h.Target.called(name) {
			continue
		}
		e := Explanation{Here: *h, Others: others(policies, &h.Target)}
		if grants != nil {
			var err error
			if e.Grants, err = grants.Live(ctx, &h.Target); err != nil {
				return nil, fmt.Errorf("grants of %s: %w", h.Target.String(), err)
			}
		}
		out = append(out, e)
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
