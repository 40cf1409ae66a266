package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/law"
)

// ParamsSchema returns the schema of parameters for [Checker.ParamsBy]. It takes milliseconds to make.
func ParamsSchema(params any) *validator.Schema { return Compile(EncodeSchema(SchemaOf(params))) }

// Params reads the mapping at path into params: a pointer to a struct that has the defaults, such as a law's parameters. A
// field with the tag above:"0" cannot be 0. If params has a method Check() error, it is called for what a schema cannot
// express. If the file has nothing at path, the defaults are checked.
func (c *Checker) Params(params any, path ...string) {
	c.ParamsBy(ParamsSchema(params), params, path...)
}

// ParamsBy is Params with a schema that was made before, for programs that read many files.
func (c *Checker) ParamsBy(schema *validator.Schema, params any, path ...string) {
	given := &Tree{Form: Mapping}
	if c.Root != nil {
		if t := c.Root.Find(path...); t != nil {
			given = t
		}
	}
	before := len(c.Errs)
	c.Validate(schema, given, path...)
	if len(c.Errs) > before {
		return
	}
	text, err := json.Marshal(given.Plain())
	if err == nil {
		err = DecodeParams(text, params)
	}
	if err != nil {
		c.Fail(path, OneLine(err.Error()), "")
		return
	}
	for _, key := range Zeros(params) {
		if at := slices.Concat(path, []string{key}); !c.Meant(at) {
			c.Fail(at, "0 is not allowed", "above 0")
		}
	}
	if p, is := params.(interface{ Check() error }); is && len(c.Errs) == before {
		if err := p.Check(); err != nil {
			c.Fail(path, OneLine(err.Error()), "")
		}
	}
}

// DecodeParams reads JSON into parameters that have their defaults. An unknown key is an error.
func DecodeParams(text []byte, params any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(params)
}

// Zeros lists the fields of parameters, a pointer to a struct, that are 0 although they have the tag above:"0".
func Zeros(params any) []string {
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

// isNothing reports whether a quantity is 0; so is a limit of 0 packets.
func isNothing(v reflect.Value) bool {
	if l, ok := v.Interface().(law.Limit); ok {
		return l.N == 0
	}
	return v.IsZero()
}
