package policy

import (
	"maps"
	"slices"
	"strings"
)

// index finds the policies that may select a target of one kind. Each policy is listed under one of its conditions: its names,
// or the values of that label which the fewest policies ask for. The others are candidates for all targets.
type index struct {
	names  map[string][]int
	labels map[[2]string][]int // key and value
	all    []int
}

// newIndex makes the index of policies.
func newIndex(policies []Policy, k Kind) *index {
	asked := map[[2]string]int{}
	for i := range policies {
		if s := policies[i].Select[k]; s != nil {
			for key, values := range s.Labels {
				for _, v := range values {
					asked[[2]string{key, v}]++
				}
			}
		}
	}
	x := &index{names: map[string][]int{}, labels: map[[2]string][]int{}}
	for i := range policies {
		if s := policies[i].Select[k]; s != nil && policies[i].Broken == "" {
			x.add(i, s, asked)
		}
	}
	return x
}

func (x *index) add(i int, s *Selector, asked map[[2]string]int) {
	prefix := slices.ContainsFunc(s.Names, func(n string) bool { return strings.HasSuffix(n, "*") })
	switch {
	case len(s.Names) > 0 && !prefix:
		for _, n := range s.Names {
			x.names[n] = append(x.names[n], i)
		}
	case len(s.Labels) > 0:
		best, fewest := "", 0
		for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
			n := 0
			for _, v := range s.Labels[key] {
				n += asked[[2]string{key, v}]
			}
			if best == "" || n < fewest {
				best, fewest = key, n
			}
		}
		for _, v := range s.Labels[best] {
			x.labels[[2]string{best, v}] = append(x.labels[[2]string{best, v}], i)
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
	if len(out) > len(x.all) { // else they are in order
		slices.Sort(out)
	}
	return slices.Compact(out)
}
