package experiment

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/config"
)

// Options selects what of a file is run, and changes it.
type Options struct {
	Worlds    []string // of lab, sim; none: the file's worlds that this build has
	Schemes   []string // labels; none: all
	Seeds     []int64  // instead of the file's
	SeedCount int      // seeds 1..N, instead of the file's; 0: not set
	Set       []string // "guests.cc=reno"
	Sweep     []string // "schemes.ecn.params.threshold=10KB,20KB"
	// Available skips the schemes whose laws this build lacks; otherwise they are an error.
	Available bool
	// AssumeAll plans as if this build had every world and law, to check files.
	AssumeAll bool
}

// Plan is the list of runs.
type Plan struct {
	File    *File // with Set and Sweep applied
	Set     []string
	Runs    []*Run
	Skipped []Skip

	links int // of the networks of all Runs
}

// Skip is a scheme that a world cannot run, because of the law's or the file's worlds.
type Skip struct{ Scheme, World, Reason string }

// UnavailableError reports that this build does not have what was asked for.
type UnavailableError struct {
	What  string   // "world" or "law"
	Names []string // worlds, or laws
	By    []string // the schemes that use each of the laws
	World string   // where the laws are missing
	Can   []string // what can be asked for instead: worlds, or schemes
	Hint  string   // what to do, in full
}

func (e *UnavailableError) Error() string {
	var names []string
	for i, n := range e.Names {
		if i < len(e.By) {
			n += fmt.Sprintf(" (of scheme %s)", e.By[i])
		}
		names = append(names, n)
	}
	text := e.What + " " + strings.Join(names, ", ") + " is not in this build"
	if len(names) > 1 {
		text = e.What + "s " + strings.Join(names, ", ") + " are not in this build"
	}
	if e.World != "" {
		text += " for world " + e.World
	}
	return text + "; " + e.Hint
}

// maxRuns and maxLinks limit a plan: the number of its runs, and the links of all their networks (72 B each).
const (
	maxRuns  = 20_000
	maxLinks = 20_000_000
)

// Plan resolves the file into runs: worlds x schemes x points on the axes x seeds, in that order. Errors that Set
// and Sweep cause in the file are Errors. A world or law that this build lacks is an UnavailableError.
func (f *File) Plan(o Options) (*Plan, error) {
	file, err := f.override(o.Set, o.Sweep)
	if err != nil {
		return nil, err
	}
	worlds, err := file.worldsAsked(o)
	if err != nil {
		return nil, err
	}
	schemes, err := file.schemesAsked(o)
	if err != nil {
		return nil, err
	}
	p := &Plan{File: file, Set: o.Set}
	runnable, err := p.split(worlds, schemes, o)
	if err != nil {
		return nil, err
	}
	grid, err := file.grid()
	if err != nil {
		return nil, err
	}
	points := map[string][]*point{}
	for _, w := range worlds {
		for _, s := range runnable[w] {
			if points[s] == nil {
				if points[s], err = grid.points(s); err != nil {
					return nil, err
				}
			}
			if err := p.add(w, s, points[s], worlds, o); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

func (f *File) worldsAsked(o Options) ([]string, error) {
	built := BuiltWorlds()
	if o.AssumeAll {
		built = []string{WorldLab, WorldSim}
	}
	if len(o.Worlds) == 0 {
		var out []string
		for _, w := range f.Worlds {
			if slices.Contains(built, w) {
				out = append(out, w)
			}
		}
		if len(out) == 0 {
			return nil, &UnavailableError{What: "world", Names: f.Worlds,
				Hint: fmt.Sprintf("this experiment runs in %s only, this build has %s", strings.Join(f.Worlds, ", "), strings.Join(built, ", "))}
		}
		return out, nil
	}
	for _, w := range o.Worlds {
		switch {
		case w != WorldLab && w != WorldSim:
			return nil, fmt.Errorf("there is no world %q; --world takes lab, sim or both", config.Clip(w))
		case !slices.Contains(built, w):
			return nil, &UnavailableError{What: "world", Names: []string{w}, Can: built, Hint: "ask for --world " + strings.Join(built, ",")}
		case !slices.Contains(f.Worlds, w):
			return nil, fmt.Errorf("experiment %s does not run in world %s; its file allows %s", f.ID, w, strings.Join(f.Worlds, ", "))
		}
	}
	return unique(o.Worlds), nil
}

func (f *File) schemesAsked(o Options) ([]string, error) {
	var all []string
	for _, s := range f.Schemes {
		all = append(all, s.Name)
	}
	if len(o.Schemes) == 0 {
		return all, nil
	}
	for _, s := range o.Schemes {
		if !slices.Contains(all, s) {
			return nil, fmt.Errorf("experiment %s has no scheme %q; %s", f.ID, config.Clip(s), config.OneOf(s, all))
		}
	}
	// The file's order, independent of the order of the options: results compare column by column.
	return slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(o.Schemes, s) }), nil
}

func unique(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// scheme returns the scheme with this label.
func (f *File) scheme(label string) *Scheme {
	for i := range f.Schemes {
		if f.Schemes[i].Name == label {
			return &f.Schemes[i]
		}
	}
	return nil
}

// split returns for each world the schemes that run; it notes in p those that are skipped. Laws that this build
// lacks are an error.
func (p *Plan) split(worlds, schemes []string, o Options) (map[string][]string, error) {
	runnable := map[string][]string{}
	can := map[string]bool{}
	for _, w := range worlds {
		missing := &UnavailableError{What: "law", World: w}
		for _, label := range schemes {
			s := p.File.scheme(label)
			if reason := p.File.skipReason(s, w); reason != "" {
				p.Skipped = append(p.Skipped, Skip{label, w, reason})
				continue
			}
			if l := p.File.unbuilt(s, w); l != "" && !o.AssumeAll {
				// Users who did not choose a world get all schemes that each world can run.
				if o.Available || len(o.Worlds) == 0 && slices.ContainsFunc(worlds, func(w string) bool { return p.File.runsIn(s, w) }) {
					p.Skipped = append(p.Skipped, Skip{label, w, "law " + l + " is not in this build"})
					continue
				}
				missing.Names, missing.By = append(missing.Names, l), append(missing.By, label)
				continue
			}
			runnable[w], can[label] = append(runnable[w], label), true
		}
		if len(missing.Names) > 0 {
			p.instead(missing, worlds, schemes)
			return nil, missing
		}
	}
	if len(can) == 0 {
		var reasons []string
		for _, s := range p.Skipped {
			reasons = append(reasons, fmt.Sprintf("%s: %s", s.Scheme, s.Reason))
		}
		return nil, fmt.Errorf("nothing of experiment %s can run here (%s); choose other schemes or another world", p.File.ID, strings.Join(reasons, "; "))
	}
	return runnable, nil
}

// instead notes in missing what the user can ask for: the schemes that every world asked for either has or skips,
// and that at least one has.
func (p *Plan) instead(missing *UnavailableError, worlds, schemes []string) {
	for i := range p.File.Schemes {
		s := &p.File.Schemes[i]
		runs := 0
		for _, w := range worlds {
			switch {
			case p.File.skipReason(s, w) != "":
			case p.File.unbuilt(s, w) != "":
				runs = -len(worlds)
			default:
				runs++
			}
		}
		if runs > 0 {
			missing.Can = append(missing.Can, s.Name)
		}
	}
	asked := slices.DeleteFunc(slices.Clone(missing.Can), func(s string) bool { return !slices.Contains(schemes, s) })
	if len(asked) > 0 {
		missing.Can = asked
	}
	missing.Hint = "this build can run no scheme of this file; the changelog lists the laws of each version"
	if len(missing.Can) > 0 {
		missing.Hint = "ask for --scheme " + strings.Join(missing.Can, ",")
	}
}

// skipReason returns why a scheme never runs in a world, or "".
func (f *File) skipReason(s *Scheme, world string) string {
	if !slices.Contains(s.Worlds, world) {
		return "the file runs it in " + strings.Join(s.Worlds, ", ") + " only"
	}
	for _, name := range s.Laws {
		if l, _ := f.laws.named(name); !slices.Contains(l.Worlds, world) {
			return fmt.Sprintf("law %s exists in %s only", name, strings.Join(l.Worlds, ", "))
		}
	}
	return ""
}

// runsIn reports whether this build can run the scheme in a world.
func (f *File) runsIn(s *Scheme, world string) bool {
	return f.skipReason(s, world) == "" && f.unbuilt(s, world) == ""
}

// unbuilt returns a law of the scheme that this build does not have in a world, or "".
func (f *File) unbuilt(s *Scheme, world string) string {
	for _, name := range s.Laws {
		if l, _ := f.laws.named(name); !slices.Contains(l.Built, world) {
			return name
		}
	}
	return ""
}

// add appends the runs of one scheme in one world.
func (p *Plan) add(world, scheme string, points []*point, worlds []string, o Options) error {
	scale := 1.0
	seeds := p.File.Seeds
	if slices.Contains(worlds, WorldLab) { // with --world lab,sim both run at the lab's scale
		scale, seeds = p.File.Lab.TimeScale, p.File.Lab.Seeds
	}
	switch {
	case len(o.Seeds) > 0:
		seeds = o.Seeds
	case o.SeedCount > maxRuns: // checked before they are listed
		return fmt.Errorf("%d seeds make more than %d runs, the limit of an experiment; use fewer seeds", o.SeedCount, maxRuns)
	case o.SeedCount > 0:
		seeds = nil
		for n := range o.SeedCount {
			seeds = append(seeds, int64(n+1))
		}
	}
	if len(p.Runs)+len(points)*len(seeds) > maxRuns {
		return fmt.Errorf("experiment %s has more than %d runs: scheme %s alone has %d points x %d seeds; use fewer seeds or axis values",
			p.File.ID, maxRuns, scheme, len(points), len(seeds))
	}
	for _, pt := range points {
		if p.links += len(pt.config.Graph.Links) * len(seeds); p.links > maxLinks {
			return fmt.Errorf("the networks of experiment %s have more than %d links in all its runs; use fewer seeds, axis values or servers", p.File.ID, maxLinks)
		}
	}
	for _, pt := range points {
		if world == WorldLab {
			if err := fitsLab(&pt.config); err != nil {
				return fmt.Errorf("experiment %s, scheme %s%s: %w", p.File.ID, scheme, pt, err)
			}
		}
		for _, seed := range seeds {
			r := pt.run(scale)
			r.Experiment, r.World, r.Seed, r.Scheme = p.File.ID, world, seed, scheme
			r.LabRTT = world == WorldSim && slices.Contains(worlds, WorldLab)
			p.Runs = append(p.Runs, r)
		}
	}
	return nil
}

// Limits of the lab, which plans addresses for its nodes and runs all of them on one machine.
const (
	maxNodesInLab    = 1024
	maxSwitchesInLab = 250
	maxGuestsInLab   = 250 // a switch
	maxPairsInLab    = 250_000
)

// simOnlyCC are the congestion controls that no kernel has.
var simOnlyCC = []string{"newreno", "sack"}

// fitsLab checks the limits of the lab, and that a kernel has the guests' congestion controls.
func fitsLab(c *Config) error {
	if nodes, switches := len(c.Graph.Nodes), len(c.Graph.nodes(Switch)); nodes > maxNodesInLab || switches > maxSwitchesInLab {
		return fmt.Errorf("%d nodes, %d of them switches; the lab's limits are %d and %d: use world sim, or fewer nodes", nodes, switches, maxNodesInLab, maxSwitchesInLab)
	}
	for i := range c.Items {
		t := &c.Items[i]
		if len(t.Pairs) > maxPairsInLab {
			return fmt.Errorf("traffic %s: %d pairs; the lab's limit is %d: use world sim, or fewer pairs", t.Name, len(t.Pairs), maxPairsInLab)
		}
		if cc := c.Profiles[t.Profile].CC; t.Proto != "udp" && slices.Contains(simOnlyCC, cc) {
			return fmt.Errorf("traffic %s: guests.cc %s exists in sim only: use --world sim, or another cc", t.Name, cc)
		}
	}
	for sw, n := range c.Graph.perSwitch() {
		if n > maxGuestsInLab {
			return fmt.Errorf("%d guests on %s; the lab has addresses for %d a switch: use world sim, or fewer guests", n, sw, maxGuestsInLab)
		}
	}
	return nil
}

// point is one scheme at one point of the axes that it uses, before time_scale is applied.
type point struct {
	at     map[string]string
	order  []string // names of the axes in at
	config Config
	laws   []string
	where  []string
	params map[string]any // pointers
	print  string         // equal for points that run the same
}

func (p *point) String() string {
	var parts []string
	for _, name := range p.order {
		parts = append(parts, name+"="+p.at[name])
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// run returns a run of the point at a time scale, without world, seed and label.
func (p *point) run(scale float64) *Run {
	r := &Run{Scale: scale, Laws: p.laws, At: p.where, Params: map[string]any{}, Point: maps.Clone(p.at)}
	for name, params := range p.params {
		r.Params[name] = scaleParams(params, scale)
	}
	r.Config = scaleConfig(p.config, scale)
	return r
}

// fingerprint is equal for two points that run the same in every world.
func (p *point) fingerprint() (string, error) {
	compared := p.config
	compared.Items = slices.Clone(compared.Items)
	for i := range compared.Items {
		compared.Items[i].Pairs = nil // they follow from the graph and the item
	}
	b, err := json.Marshal([]any{compared, p.laws, p.where, p.params})
	if err != nil {
		return "", fmt.Errorf("compare points of a scheme: %w", err)
	}
	sum := sha256.Sum256(b)
	return string(sum[:]), nil
}
