package experiment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grid is the file at every point of its axes. Each point is checked once; all schemes share it.
type grid struct {
	file  *File
	axes  []axis
	files []*File  // by point
	nets  []*Graph // by point
}

func (f *File) grid() (*grid, error) {
	c := f.laws.newChecker(f.name, f.tree)
	g := &grid{file: f, axes: c.axes(f)}
	nets := networks{}
	total := 1
	for _, a := range g.axes {
		total *= len(a.values)
	}
	for n := range total {
		file, at := f, coordinates(g.axes, n)
		if len(g.axes) > 0 {
			t := f.tree
			for k, a := range g.axes {
				t = a.apply(t, at[k])
			}
			var errs Errors
			if file, errs = f.laws.checkBase(f.name, t); len(errs) > 0 {
				return nil, errs.OrNil()
			}
		}
		net, err := nets.of(file)
		if err != nil {
			return nil, fmt.Errorf("topology of %s: %w", f.ID, err)
		}
		g.files, g.nets = append(g.files, file), append(g.nets, net)
	}
	return g, nil
}

// networks stores each network once, however many points have it: the points only read it.
type networks map[string]*Graph

func (n networks) of(f *File) (*Graph, error) {
	text, err := json.Marshal([]any{f.Topology, f.Network})
	if err != nil {
		return nil, err
	}
	key := string(text)
	if n[key] == nil {
		n[key], err = BuildGraph(f.Topology, f.Network)
	}
	return n[key], err
}

// points resolves one scheme at every point of the axes. An axis that makes no difference to the scheme at any
// point is left out.
func (g *grid) points(label string) ([]*point, error) {
	all := make([]*point, len(g.files))
	for n := range all {
		p, err := g.files[n].resolve(label, g.nets[n])
		if err != nil {
			return nil, err
		}
		all[n] = p
	}
	used := g.used(all)
	var out []*point
	for n, p := range all {
		at := coordinates(g.axes, n)
		keep := true
		for k, a := range g.axes {
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

// used reports for each axis whether any of its values makes a difference anywhere.
func (g *grid) used(all []*point) []bool {
	used := make([]bool, len(g.axes))
	for k := range g.axes {
		for n := range all {
			at := coordinates(g.axes, n)
			at[k] = 0
			if all[n].print != all[ordinal(g.axes, at)].print {
				used[k] = true
				break
			}
		}
	}
	return used
}

// coordinates returns the index on each axis of point n; the last axis varies fastest.
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

// resolve returns the point of a scheme for the file at that point. vary is already applied to the file's tree, so
// its precedence is that of the key it sets: traffic item, scheme, guests.
func (f *File) resolve(label string, g *Graph) (*point, error) {
	s := f.scheme(label)
	p := &point{at: map[string]string{}, laws: s.Laws, params: map[string]any{}}
	var err error
	if p.where, err = f.switches(s, g); err != nil {
		return nil, err
	}
	for _, name := range s.Laws {
		l, _ := f.laws.named(name)
		if p.params[name], err = l.decode(s.Params); err != nil {
			return nil, err
		}
	}
	p.config = Config{
		Graph: g, Switch: f.Topology.Switch, Duration: f.Duration, RTT: f.Network.RTT,
		Series: f.Measure.Series, Windows: maps.Clone(f.Measure.Windows),
	}
	if p.config.Ports, err = f.ports(g); err != nil {
		return nil, err
	}
	if p.config.RTT == 0 {
		p.config.RTT = g.rtt()
	}
	if f.laws.controls(s.Laws) {
		p.config.Control = f.Network.control(p.config.RTT)
	}
	if f.laws.sharesUplinks(s.Laws) {
		if p.config.Guarantees, err = f.guaranteed(g); err != nil {
			return nil, err
		}
	}
	if err := f.items(&p.config, s); err != nil {
		return nil, err
	}
	p.print, err = p.fingerprint()
	return p, err
}

// switches returns the names of the switches that run a scheme's laws.
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

// ports returns the ports to be measured by the names of PortName: worlds and results know them by no other spelling.
func (f *File) ports(g *Graph) (map[string]string, error) {
	ports := maps.Clone(f.Measure.Ports)
	for label, name := range ports {
		node, peer, err := g.Port(name)
		if err != nil {
			return nil, fmt.Errorf("measure.ports.%s: %w", label, err)
		}
		ports[label] = PortName(node, peer)
	}
	return ports, nil
}

// items resolves the traffic: endpoints to pairs, TCP settings to profiles. Equal settings share a profile.
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
		profile := slices.IndexFunc(c.Profiles, t.equal)
		if profile < 0 {
			profile = len(c.Profiles)
			c.Profiles = append(c.Profiles, t.Guests)
		}
		c.Items = append(c.Items, Item{Traffic: t, Profile: profile, Pairs: pairs(from, to, t.Pair)})
	}
	return nil
}

// equal compares two settings in which every field is set.
func (g Guests) equal(h Guests) bool {
	return g.Stack == h.Stack && cmp.Or(g.ToStack, g.Stack) == cmp.Or(h.ToStack, h.Stack) && g.CC == h.CC && *g.ECN == *h.ECN && *g.InitialWindow == *h.InitialWindow &&
		*g.RTOMin == *h.RTOMin && *g.InitialRTO == *h.InitialRTO && *g.DelayedACK == *h.DelayedACK && *g.SACK == *h.SACK
}
