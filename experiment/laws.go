package experiment

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/config"
	"weir/law"
)

// The worlds an experiment may run in.
const (
	WorldLab = law.WorldLab
	WorldSim = law.WorldSim
)

// BuiltWorlds are the worlds that this build has.
func BuiltWorlds() []string { return law.BothWorlds() }

// Law is a control law that a scheme may name.
type Law struct {
	law.Spec
	// Built are the worlds that have it in this build.
	Built []string

	schema func() *validator.Schema // of its configuration
}

// Laws are the laws of a build. Experiment files are read with them, for they say which names and parameters there are.
type Laws struct{ list []Law }

// NewLaws makes them, in the order of the documentation.
func NewLaws(list ...Law) *Laws {
	for i := range list {
		l := &list[i]
		l.schema = sync.OnceValue(func() *validator.Schema { return config.Compile(config.EncodeSchema(config.SchemaOf(l.Params()))) })
	}
	return &Laws{list}
}

// Specs are those of all laws.
func (ls *Laws) Specs() law.Specs {
	out := make(law.Specs, len(ls.list))
	for i := range ls.list {
		out[i] = ls.list[i].Spec
	}
	return out
}

// named gives the law called name.
func (ls *Laws) named(name string) (Law, bool) {
	for _, l := range ls.list {
		if l.Name == name {
			return l, true
		}
	}
	return Law{}, false
}

// fields gives the names of the law's configuration fields.
func (l *Law) fields() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(l.Params()).Elem()) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// decode gives the law's typed configuration: its defaults, then what params says of its fields.
func (l *Law) decode(params map[string]any) (any, error) {
	own := maps.Clone(params)
	known := l.fields()
	maps.DeleteFunc(own, func(key string, _ any) bool { return !slices.Contains(known, key) })
	text, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("params of %s: %w", l.Name, err)
	}
	p := l.Params()
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("params of %s: %w", l.Name, err)
	}
	return p, nil
}

// Network is what laws may know of the network of a run.
func (c *Config) Network() *law.Topology {
	t := &law.Topology{RTT: c.RTT}
	if c.Graph != nil {
		for _, l := range c.Graph.Links {
			t.Links = append(t.Links, law.Link{A: l.A, B: l.B, Rate: l.Rate, Buffer: l.Buffer})
		}
	}
	return t
}
