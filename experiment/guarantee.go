package experiment

import (
	"fmt"
	"slices"
	"strconv"

	"weir/law"
)

// VMGuarantee is what one VM gets of its host's uplink.
type VMGuarantee struct {
	VM     string   // its name in the Graph
	Rate   law.Rate // least rate; 0: none
	Weight uint32   // relative to other VMs; 0: 1
}

// sharesUplinks reports whether one of the laws divides hosts' uplinks among VMs.
func (ls *Laws) sharesUplinks(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		l, _ := ls.named(name)
		return slices.Contains(l.Sites, law.Uplink)
	})
}

// guarantees checks what VMs are promised.
func (c *checker) guarantees(f *File, g *Graph) {
	if len(f.Guarantees) == 0 {
		return
	}
	at := []string{"guarantees"}
	switch {
	case !f.Topology.Hypervisors:
		c.Fail(at, "guarantees are the hypervisors', and there are none", "topology.hypervisors: true")
		return
	case !slices.ContainsFunc(f.Schemes, func(s Scheme) bool { return c.laws.sharesUplinks(s.Laws) }):
		c.Fail(at, "no scheme has a law that shares uplinks", "name such a law in a scheme, or remove the key")
		return
	}
	seen := map[string]bool{}
	for i, one := range f.Guarantees {
		in := []string{"guarantees", strconv.Itoa(i)}
		names, err := g.Select(one.VMs, Guest)
		if err != nil {
			c.Fail(append(in, "vms"), err.Error(), "the guests are "+g.families(Guest))
		}
		for _, name := range names {
			if seen[name] {
				c.Fail(append(in, "vms"), fmt.Sprintf("%s has a guarantee already", name), "one guarantee for each VM")
			}
			seen[name] = true
		}
		if one.Rate == 0 && one.Weight == 0 {
			c.Fail(in, "it guarantees nothing", "rate, weight or both")
		}
	}
}

// guaranteed resolves what VMs are promised.
func (f *File) guaranteed(g *Graph) (out []VMGuarantee, err error) {
	for _, one := range f.Guarantees {
		names, err := g.Select(one.VMs, Guest)
		if err != nil {
			return nil, fmt.Errorf("guarantees of %s: %w", one.VMs, err)
		}
		for _, name := range names {
			out = append(out, VMGuarantee{name, one.Rate, one.Weight})
		}
	}
	return out, nil
}
