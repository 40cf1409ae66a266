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

// Law is one entry of the registry: a control law that a scheme may name.
type Law struct {
	Name string
	// Params gives a pointer to the law's configuration with its defaults.
	Params func() any
	// Worlds are those the law is meant for; a scheme that names it is skipped in others.
	Worlds []string
	// Built are the worlds that have it in this build.
	Built []string
}

// The worlds an experiment may run in.
const (
	WorldLab = "lab"
	WorldSim = "sim"
)

// BuiltWorlds are the worlds that this build has.
func BuiltWorlds() []string { return []string{WorldLab, WorldSim} }

// Laws lists every law in the order of the documentation.
func Laws() []Law {
	both, sim := []string{WorldLab, WorldSim}, []string{WorldSim}
	return []Law{
		{"droptail", func() any { return &DropTailParams{} }, both, both},
		{"red", func() any { return &MarkParams{NotECT: "drop"} }, both, both},
		{"ecn", func() any { return &MarkParams{NotECT: "pass"} }, both, both},
		{"static", func() any { return &StaticParams{Depth: law.Duration(25e6)} }, sim, sim},
		{"acdc", func() any { return &ACDCParams{Gain: 1.0 / 16, Timeout: law.Duration(200e6)} }, sim, sim},
		{"fairq", func() any { return newFairQ() }, both, both},
		{"sicc", func() any { return newSICC() }, both, nil},
		{"gcc", func() any { return newGCC() }, both, nil},
		{"hygenicc", func() any { return newHyGenICC() }, both, nil},
		{"sed", func() any { return newSED() }, both, nil},
		{"rsed", func() any { return &RSEDParams{SEDParams: *newSED(), Repair: "dupacks"} }, both, nil},
	}
}

// lawNamed gives the law called name.
func lawNamed(name string) (Law, bool) {
	for _, l := range Laws() {
		if l.Name == name {
			return l, true
		}
	}
	return Law{}, false
}

func lawNames() []string {
	var names []string
	for _, l := range Laws() {
		names = append(names, l.Name)
	}
	return names
}

// fields gives the names of the law's configuration fields.
func (l Law) fields() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(l.Params()).Elem()) {
		if !f.Anonymous {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// lawSchemas are the JSON schemas of the laws' configurations by name, compiled once.
var lawSchemas = sync.OnceValue(func() map[string]*validator.Schema {
	out := map[string]*validator.Schema{}
	for _, l := range Laws() {
		out[l.Name] = config.Compile(config.EncodeSchema(config.SchemaOf(l.Params())))
	}
	return out
})

// schema is the JSON schema of the law's configuration.
func (l Law) schema() *validator.Schema { return lawSchemas()[l.Name] }

// zeroFields names the fields of a law's configuration that are 0 and must not be.
func zeroFields(params any) []string {
	var out []string
	v := reflect.ValueOf(params).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Tag.Get("above") == "0" && isNothing(v.FieldByIndex(f.Index)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			out = append(out, name)
		}
	}
	return out
}

// isNothing tells whether a quantity is 0; 0 packets are nothing too.
func isNothing(v reflect.Value) bool {
	if l, ok := v.Interface().(law.Limit); ok {
		return l.N == 0
	}
	return v.IsZero()
}

// decode gives the law's typed configuration: its defaults, then what params says of its fields.
func (l Law) decode(params map[string]any) (any, error) {
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
