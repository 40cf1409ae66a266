package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/law"
)

// Kind is what a policy can select.
type Kind string

// The kinds.
const (
	Port Kind = "port" // of a switch
	Host Kind = "host" // at its uplink
	VM   Kind = "vm"
)

// kinds are all, in the order of outputs.
var kinds = []Kind{Port, Host, VM}

// site returns where a law runs at a target of this kind.
func (k Kind) site() law.Site {
	switch k {
	case Port:
		return law.SwitchPort
	case Host:
		return law.Uplink
	}
	return law.VMPort
}

// takes reports whether a law can run at a target of this kind: there, or in a controller for it.
func (k Kind) takes(s *law.Spec) bool {
	return slices.Contains(s.Sites, k.site()) || slices.Contains(s.Sites, law.Controller)
}

// Selector selects by name and by label. With both, both must match.
type Selector struct {
	Names  []string          `json:"names,omitempty" jsonschema:"maxItems=1000" jsonschema_description:"names; a * at the end stands for any letters. A port is SWITCH/PORT"`
	Labels map[string]Values `json:"labels,omitempty" jsonschema_description:"labels: a value, or a list of values of which one must match; all labels must match"`
}

// Matches reports whether a target of this name and these labels is selected.
func (s *Selector) Matches(name string, labels map[string]string) bool {
	for key, values := range s.Labels {
		if value, has := labels[key]; !has || !slices.Contains(values, value) {
			return false
		}
	}
	return len(s.Names) == 0 || slices.ContainsFunc(s.Names, func(n string) bool { return nameMatches(n, name) })
}

// miss returns why the target is not selected; "": it is.
func (s *Selector) miss(name string, labels map[string]string) string {
	if len(s.Names) > 0 && !slices.ContainsFunc(s.Names, func(n string) bool { return nameMatches(n, name) }) {
		return "its name is not selected"
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		value, has := labels[key]
		switch {
		case !has:
			return fmt.Sprintf("it has no label %s", key)
		case !slices.Contains(s.Labels[key], value):
			return fmt.Sprintf("its label %s is %q, not %s", key, value, strings.Join(s.Labels[key], " or "))
		}
	}
	return ""
}

func nameMatches(pattern, name string) bool {
	if prefix, is := strings.CutSuffix(pattern, "*"); is {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
