package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// points resolves one scheme at every point of the axes. An axis that makes no difference to the
// scheme, anywhere, is left out of its points.
func (f *File) points(label string) ([]*point, error) {
	c := &checker{name: f.name, root: f.tree}
	axes := c.axes(f)
	total := 1
	for _, a := range axes {
		total *= len(a.values)
	}
	all := make([]*point, total)
	for n := range all {
		at := coordinates(axes, n)
		p, err := f.resolve(label, axes, at)
		if err != nil {
			return nil, err
		}
		all[n] = p
	}
	used := make([]bool, len(axes))
	for k := range axes {
		for n := range all {
			at := coordinates(axes, n)
			at[k] = 0
			if all[n].print != all[ordinal(axes, at)].print {
				used[k] = true
				break
			}
		}
	}
	var out []*point
	for n, p := range all {
		at := coordinates(axes, n)
		keep := true
		for k, a := range axes {
			if used[k] {
				p.at[a.name] = a.values[at[k]].name
				p.order = append(p.order, a.name)
			} else if at[k] != 0 {
				keep = false
			}
		}
		if keep {
			out = append(out, p)
		}
	}
	return out, nil
}

// coordinates gives the index on each axis of point n; the last axis runs fastest.
func coordinates(axes []axis, n int) []int {
	at := make([]int, len(axes))
	for k := len(axes) - 1; k >= 0; k-- {
		at[k] = n % len(axes[k].values)
		n /= len(axes[k].values)
	}
	return at
}

func ordinal(axes []axis, at []int) int {
	n := 0
	for k, a := range axes {
		n = n*len(a.values) + at[k]
	}
	return n
}

// resolve makes the point of a scheme: vary is set in the file's tree, so that its precedence is
// that of the key it sets; then traffic item over scheme over guests.
func (f *File) resolve(label string, axes []axis, at []int) (*point, error) {
	file := f
	if len(axes) > 0 {
		t := f.tree
		for k, a := range axes {
			t = a.apply(t, at[k])
		}
		var errs Errors
		if file, errs = checkBase(f.name, t); len(errs) > 0 {
			return nil, errs.orNil()
		}
	}
	s := file.scheme(label)
	p := &point{at: map[string]string{}, laws: s.Laws, params: map[string]any{}}
	g, err := BuildGraph(file.Topology, file.Network)
	if err != nil {
		return nil, fmt.Errorf("topology of %s: %w", f.ID, err)
	}
	if p.where, err = file.switches(s, g); err != nil {
		return nil, err
	}
	for _, name := range s.Laws {
		l, _ := lawNamed(name)
		if p.params[name], err = l.decode(s.Params); err != nil {
			return nil, err
		}
	}
	p.config = Config{
		Graph: g, Switch: file.Topology.Switch, Duration: file.Duration, RTT: file.Network.RTT,
		Series: file.Measure.Series, Ports: maps.Clone(file.Measure.Ports), Windows: maps.Clone(file.Measure.Windows),
	}
	if p.config.RTT == 0 {
		p.config.RTT = g.rtt()
	}
	if err := file.items(&p.config, s); err != nil {
		return nil, err
	}
	p.print, err = p.fingerprint()
	return p, err
}

// switches gives the names of the switches that run a scheme's laws.
func (f *File) switches(s *Scheme, g *Graph) ([]string, error) {
	if len(s.At) == 0 {
		return g.nodes(Switch), nil
	}
	names, err := g.Select(strings.Join(s.At, ","), Switch)
	if err != nil {
		return nil, fmt.Errorf("scheme %s, at: %w", s.Name, err)
	}
	return names, nil
}

// items resolves the traffic: endpoints to pairs, TCP settings to profiles, each profile once.
func (f *File) items(c *Config, s *Scheme) error {
	for _, t := range f.Traffic {
		from, err := c.Graph.Select(t.From, Guest)
		if err != nil {
			return fmt.Errorf("traffic %s, from: %w", t.Name, err)
		}
		to, err := c.Graph.Select(t.To, Guest)
		if err != nil {
			return fmt.Errorf("traffic %s, to: %w", t.Name, err)
		}
		t.Guests = t.Guests.over(s.Guests.over(f.Guests)).impliedECN()
		profile := slices.IndexFunc(c.Profiles, t.Guests.equal)
		if profile < 0 {
			profile = len(c.Profiles)
			c.Profiles = append(c.Profiles, t.Guests)
		}
		c.Items = append(c.Items, Item{Traffic: t, Profile: profile, Pairs: pairs(from, to, t.Pair)})
	}
	return nil
}

// equal compares two settings of which every field is said.
func (g Guests) equal(h Guests) bool {
	return g.Stack == h.Stack && g.CC == h.CC && *g.ECN == *h.ECN && *g.InitialWindow == *h.InitialWindow &&
		*g.RTOMin == *h.RTOMin && *g.InitialRTO == *h.InitialRTO && *g.DelayedACK == *h.DelayedACK && *g.SACK == *h.SACK
}
