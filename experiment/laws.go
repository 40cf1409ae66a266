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

// BuiltWorlds returns the worlds that this build has.
func BuiltWorlds() []string { return law.BothWorlds() }

// Law is a control law that a scheme may name.
type Law struct {
	law.Spec
	// Built lists the worlds that have this law in this build.
	Built []string

	schema func() *validator.Schema // of its configuration
}

// Laws are the laws of a build. They determine the names and parameters that an experiment file may use.
type Laws struct{ list []Law }

// NewLaws returns the laws in the order given, which is that of the documentation.
func NewLaws(list ...Law) *Laws {
	for i := range list {
		l := &list[i]
		l.schema = sync.OnceValue(func() *validator.Schema { return config.Compile(config.EncodeSchema(config.SchemaOf(l.Params()))) })
	}
	return &Laws{list}
}

// Specs returns the specifications of all laws.
func (ls *Laws) Specs() law.Specs {
	out := make(law.Specs, len(ls.list))
	for i := range ls.list {
		out[i] = ls.list[i].Spec
	}
	return out
}

// named returns the law called name.
func (ls *Laws) named(name string) (Law, bool) {
	for _, l := range ls.list {
		if l.Name == name {
			return l, true
		}
	}
	return Law{}, false
}

// fields returns the names of the law's configuration fields.
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

// decode returns the law's typed configuration: its defaults, overridden by the fields that params sets for all laws, and by those
// under the law's name.
func (l *Law) decode(params map[string]any) (any, error) {
	own := maps.Clone(params)
	known := l.fields()
	maps.DeleteFunc(own, func(key string, _ any) bool { return !slices.Contains(known, key) })
	for key, value := range block(params, l.Name) {
		if own == nil {
			own = map[string]any{}
		}
		own[key] = value
	}
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

// Network returns what laws may know about the network of a run.
func (c *Config) Network() *law.Topology {
	t := &law.Topology{RTT: c.RTT}
	if c.Graph != nil {
		for _, l := range c.Graph.Links {
			t.Links = append(t.Links, law.Link{A: l.A, B: l.B, Rate: l.Rate, Buffer: l.Buffer})
		}
	}
	return t
}

// block returns the params under a law's name, which only this law takes: params: {LAW: {KEY: VALUE}}.
func block(params map[string]any, name string) map[string]any {
	own, _ := params[name].(map[string]any)
	return own
}
