package experiment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"weir/config"
	"weir/law"
)

// Load reads and checks an experiment file. Errors in the file are returned as Errors.
func (ls *Laws) Load(path string) (*File, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ls.Parse(path, data)
}

// ReadFile reads the text of an experiment file. If there is no file at path, the error is fs.ErrNotExist and
// suggests the file that may be meant.
func ReadFile(path string) ([]byte, error) {
	data, err := config.ReadFile(path, config.DefaultLimits)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &missingError{path}
	case errors.Is(err, unix.EISDIR):
		return nil, fmt.Errorf("%s is a directory: name a file in it%s", path, example(path))
	case err != nil:
		return nil, fmt.Errorf("read experiment: %w", err)
	}
	return data, nil
}

// Parse checks an experiment file in memory; errors use name as the name of the file.
func (ls *Laws) Parse(name string, data []byte) (*File, error) {
	t, errs := config.ParseTree(name, data, "one experiment", config.DefaultLimits)
	if len(errs) > 0 {
		return nil, errs.OrNil()
	}
	if other := config.OtherKind(name, t, config.Experiment); other != nil {
		return nil, Errors{other}
	}
	f, errs := ls.check(name, t)
	if len(errs) > 0 {
		return nil, errs.OrNil()
	}
	return f, nil
}

// Error is one error in a file.
type Error = config.Error

// Errors lists all errors in a file.
type Errors = config.Errors

// checker collects the errors of one file.
type checker struct {
	config.Checker
	laws *Laws
}

func (ls *Laws) newChecker(name string, t *config.Tree) *checker {
	return &checker{config.Checker{File: name, Root: t, Whole: "the keys of an experiment: id, topology, traffic ..."}, ls}
}

// check validates a tree: first its form, then its meaning, also with every value of every axis.
func (ls *Laws) check(name string, t *config.Tree) (*File, Errors) {
	f, errs := ls.checkBase(name, t)
	if len(errs) > 0 {
		return nil, errs
	}
	c := ls.newChecker(name, t)
	axes := c.axes(f)
	if len(c.Errs) == 0 {
		for _, a := range axes {
			for i := range a.values {
				_, wrong := ls.checkBase(name, a.apply(t, i))
				c.Errs = append(c.Errs, wrong...)
			}
		}
	}
	if len(c.Errs) == 0 && c.claimsAreOfThisFile() {
		c.claims(f, axes)
	}
	return f, c.Errs
}

// claimsAreOfThisFile is false when an option changed what the file runs. Its claims may then name axes that no
// longer exist; that leaves them undecided and is not an error.
func (c *checker) claimsAreOfThisFile() bool {
	for _, fd := range c.Root.Fields {
		if fd.Key == "vary" && fd.Value.Changed() {
			return false
		}
	}
	return true
}

// checkBase checks everything but axes and claims.
func (ls *Laws) checkBase(name string, t *config.Tree) (*File, Errors) {
	c := ls.newChecker(name, t)
	c.Validate(fileSchema(), t)
	if len(c.Errs) > 0 {
		return nil, c.Errs
	}
	f := c.decode(t)
	if f != nil {
		c.meaning(f)
	}
	return f, c.Errs
}

// decode returns the File of a tree that the schema accepts, with defaults.
func (c *checker) decode(t *config.Tree) *File {
	text, err := json.Marshal(t.Plain())
	f := &File{name: c.File, tree: t, laws: c.laws}
	f.Topology.Hypervisors = true
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	if err != nil { // the schema accepted it, so the user cannot fix it; an error, not a panic
		c.Fail(nil, config.OneLine(err.Error()), "")
		return nil
	}
	if vary := t.Get("vary"); vary != nil {
		for i := range f.Vary {
			if cases := vary.Items[i].Get("cases"); cases != nil {
				for _, fd := range cases.Fields {
					f.Vary[i].order = append(f.Vary[i].order, fd.Key)
				}
			}
		}
	}
	f.defaults()
	return f
}

// defaults fills in the keys that the file does not set. No other place knows the defaults.
func (f *File) defaults() {
	if f.ID == "" {
		f.ID = strings.Join(f.IDs, "-")
	}
	if f.Worlds == nil {
		f.Worlds = []string{WorldLab, WorldSim}
	}
	if f.Seeds == nil {
		f.Seeds = []int64{1}
	}
	f.Topology.Switch = cmp.Or(f.Topology.Switch, "bridge")
	if len(kindKeys[f.Topology.Kind].may) > 0 {
		f.Topology.Routing = cmp.Or(f.Topology.Routing, "ecmp")
	}
	f.Guests = f.Guests.over(defaultGuests())
	for i := range f.Traffic {
		t := &f.Traffic[i]
		t.Group = cmp.Or(t.Group, t.Name)
		t.Proto = cmp.Or(t.Proto, "tcp")
		t.Pair = cmp.Or(t.Pair, "all")
		t.Data = cmp.Or(t.Data, "push")
		t.Connection = cmp.Or(t.Connection, "new")
		t.Count = cmp.Or(t.Count, 1)
		t.Concurrency = cmp.Or(t.Concurrency, 1)
		if t.Every == 0 && t.Epochs == 0 {
			t.Epochs = 1 // with every but without epochs: as many as fit
		}
	}
	for i := range f.Schemes {
		s := &f.Schemes[i]
		if s.Laws == nil {
			s.Laws = []string{s.Name}
		}
		if s.Worlds == nil {
			s.Worlds = f.Worlds
		}
	}
	for i := range f.Vary {
		a := &f.Vary[i]
		a.As = cmp.Or(a.As, a.Key[strings.LastIndexByte(a.Key, '.')+1:])
	}
	f.Lab.TimeScale = cmp.Or(f.Lab.TimeScale, 1)
	if f.Lab.Seeds == nil {
		f.Lab.Seeds = f.Seeds
	}
	f.Measure.Series = cmp.Or(f.Measure.Series, law.Duration(10e6))
}

// defaultGuests is a guest's TCP without any setting: Linux's defaults, without ECN.
func defaultGuests() Guests {
	no, yes, window := false, true, 10
	rtoMin, initialRTO := law.Duration(200e6), law.Duration(1e9)
	return Guests{
		Stack: "linux", CC: "cubic", ECN: &no, InitialWindow: &window,
		RTOMin: &rtoMin, InitialRTO: &initialRTO, DelayedACK: &yes, SACK: &yes,
	}
}

// over returns the fields of g that are set, and those of base for the others.
func (g Guests) over(base Guests) Guests {
	return Guests{
		Stack: cmp.Or(g.Stack, base.Stack), ToStack: cmp.Or(g.ToStack, base.ToStack), CC: cmp.Or(g.CC, base.CC),
		ECN: cmp.Or(g.ECN, base.ECN), InitialWindow: cmp.Or(g.InitialWindow, base.InitialWindow),
		RTOMin: cmp.Or(g.RTOMin, base.RTOMin), InitialRTO: cmp.Or(g.InitialRTO, base.InitialRTO),
		DelayedACK: cmp.Or(g.DelayedACK, base.DelayedACK), SACK: cmp.Or(g.SACK, base.SACK),
	}
}

// impliedECN turns ECN on for the congestion controls that need it.
func (g Guests) impliedECN() Guests {
	if g.CC == "dctcp" || g.CC == "d2tcp" {
		yes := true
		g.ECN = &yes
	}
	return g
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func toSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// Plannable loads a file and plans the runs that o asks for, in each of o's worlds (none: all worlds of the file).
// It assumes that this build has every world and law: this is what --check does. each, if not nil, is called for
// every run.
func (ls *Laws) Plannable(path string, o Options, each func(*Run) error) error {
	f, err := ls.Load(path)
	if err != nil {
		return err
	}
	worlds := o.Worlds
	if len(worlds) == 0 {
		worlds = f.Worlds
	}
	o.AssumeAll = true
	for _, w := range worlds {
		o.Worlds = []string{w}
		p, err := f.Plan(o)
		if err != nil {
			return fmt.Errorf("%s: plan for world %s: %w", path, w, err)
		}
		for _, r := range p.Runs {
			if each == nil {
				break
			}
			if err := each(r); err != nil {
				return fmt.Errorf("%s: %s, scheme %s: %w", path, w, r.Scheme, err)
			}
		}
	}
	return nil
}
