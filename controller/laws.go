package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"weir/config"
	"weir/law"
)

// Law is a law that a controller runs in addition to forwarding and polling. New makes it for each term.
type Law struct {
	Name string // in logs and status
	New  func() (law.Law, error)
	// Params are all of its parameters, as policies write them; nil: it is not a law of a file.
	Params json.RawMessage
}

// forController returns the laws of a build that run at a controller.
func forController(specs law.Specs) law.Specs {
	return slices.DeleteFunc(slices.Clone(specs), func(l law.Spec) bool {
		return l.New == nil || !slices.Contains(l.Sites, law.Controller)
	})
}

// checkLaws checks the laws of a file: their names, their parameters, and that they can run together.
func checkLaws(c *config.Checker, f *File, specs law.Specs) {
	var together []*law.Spec
	specs = forController(specs)
	for _, name := range slices.Sorted(maps.Keys(f.Laws)) {
		l, ok := specs.Named(name)
		if !ok {
			allowed := "this build has none"
			if len(specs) > 0 {
				allowed = config.OneOf(name, specs.Names())
			}
			c.Fail([]string{"laws", name}, fmt.Sprintf("%q is not a law of a controller", config.Clip(name)), allowed)
			continue
		}
		params, before := l.Params(), len(c.Errs)
		c.Params(params, "laws", name)
		if len(c.Errs) == before {
			if _, err := l.New(law.Controller, params, &law.Topology{}); err != nil {
				c.Fail([]string{"laws", name}, config.OneLine(err.Error()), "")
			}
		}
		together = append(together, l)
	}
	if err := law.Compose(together...); err != nil {
		c.Fail([]string{"laws"}, err.Error(), "")
	}
}

// laws returns the laws of a checked file, sorted by name.
func (f *File) laws(specs law.Specs) ([]Law, error) {
	var out []Law
	for _, name := range slices.Sorted(maps.Keys(f.Laws)) {
		text, err := json.Marshal(f.Laws[name])
		if err != nil {
			return nil, fmt.Errorf("law %s: %w", name, err)
		}
		l, ok := forController(specs).Named(name)
		if !ok {
			return nil, fmt.Errorf("law %s: this build has no such law of a controller", name)
		}
		params := l.Params()
		if err := config.DecodeParams(text, params); err != nil {
			return nil, fmt.Errorf("law %s: %w", name, err)
		}
		all, err := json.Marshal(params)
		if err != nil {
			return nil, fmt.Errorf("law %s: %w", name, err)
		}
		out = append(out, Law{Name: name, Params: all, New: func() (law.Law, error) {
			params := l.Params()
			if err := config.DecodeParams(text, params); err != nil {
				return nil, err
			}
			return l.New(law.Controller, params, &law.Topology{})
		}})
	}
	return out, nil
}
