package policy

import (
	"maps"
	"slices"
	"strings"
)

// index finds the policies that may select a target. Each policy is listed under one of its conditions: its names, else the
// values of one label. The others are candidates for all targets.
type index struct {
	names  map[string][]int
	labels map[[2]string][]int // key and value
	all    []int
}

func newIndex() *index {
	return &index{names: map[string][]int{}, labels: map[[2]string][]int{}}
}

// add lists policy i. Policies are added in rising order.
func (x *index) add(i int, s *Selector) {
	prefix := slices.ContainsFunc(s.Names, func(n string) bool { return strings.HasSuffix(n, "*") })
	switch {
	case len(s.Names) > 0 && !prefix:
		for _, n := range s.Names {
			x.names[n] = append(x.names[n], i)
		}
	case len(s.Labels) > 0:
		key := slices.Min(slices.Collect(maps.Keys(s.Labels)))
		for _, v := range s.Labels[key] {
			x.labels[[2]string{key, v}] = append(x.labels[[2]string{key, v}], i)
		}
	default:
		x.all = append(x.all, i)
	}
}

// find appends the candidates for a target to out, in rising order, each once.
func (x *index) find(out []int, name string, labels map[string]string) []int {
	out = append(out, x.names[name]...)
	for key, value := range labels {
		out = append(out, x.labels[[2]string{key, value}]...)
	}
	out = append(out, x.all...)
	slices.Sort(out)
	return slices.Compact(out)
}
