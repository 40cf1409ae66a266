package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/law"
)

// The titles by which an error knows that a text is a quantity with a unit, or an address.
const (
	rateTitle     = "rate"
	sizeTitle     = "size"
	durationTitle = "duration"
	limitTitle    = "limit"
	prefixTitle   = "prefix"
)

// SchemaOf makes the JSON schema (draft 2020-12) of a Go type; v is a pointer to one.
func SchemaOf(v any) *jsonschema.Schema {
	r := &jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		ExpandedStruct:             true,
		RequiredFromJSONSchemaTags: true,
		Mapper:                     quantitySchema,
	}
	return r.Reflect(v)
}

// quantitySchema gives the schema of the types that are texts of a certain form.
func quantitySchema(t reflect.Type) *jsonschema.Schema {
	number := `^[0-9]+(\.[0-9]+)? ?`
	switch t {
	case reflect.TypeFor[law.Rate]():
		return &jsonschema.Schema{Type: "string", Title: rateTitle, Pattern: number + "(kbit|Mbit|Gbit)$"}
	case reflect.TypeFor[law.Bytes]():
		return &jsonschema.Schema{Type: "string", Title: sizeTitle, Pattern: number + "(B|KB|MB|KiB|MiB)$"}
	case reflect.TypeFor[law.Duration]():
		return &jsonschema.Schema{Type: "string", Title: durationTitle, Pattern: number + "(ns|us|ms|s)$"}
	case reflect.TypeFor[law.Limit]():
		return &jsonschema.Schema{Type: "string", Title: limitTitle, Pattern: number + "(B|KB|MB|KiB|MiB|pkt)$"}
	case reflect.TypeFor[netip.Prefix]():
		return &jsonschema.Schema{Type: "string", Title: prefixTitle}
	}
	return nil
}

// EncodeSchema writes a schema as it is committed.
func EncodeSchema(s *jsonschema.Schema) []byte {
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // the types are ours: cannot happen with any file
		panic(fmt.Sprintf("encode JSON schema: %v", err))
	}
	return append(out, '\n')
}

// Compile makes a validator of a schema that SchemaOf made.
func Compile(schema []byte) *validator.Schema {
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err == nil {
		c := validator.NewCompiler()
		c.DefaultDraft(validator.Draft2020)
		// A relative name would be looked for in the working directory, which may be gone.
		const name = "weir:schema"
		if err = c.AddResource(name, doc); err == nil {
			var s *validator.Schema
			if s, err = c.Compile(name); err == nil {
				return s
			}
		}
	}
	panic(fmt.Sprintf("compile the generated JSON schema: %v", err))
}

// schemaAt gives the schema of the value at path, or nil.
func schemaAt(s *validator.Schema, path []string) *validator.Schema {
	for _, step := range path {
		switch {
		case s == nil:
			return nil
		case s.Properties[step] != nil:
			s = s.Properties[step]
		case s.Items2020 != nil:
			s = s.Items2020
		default:
			s, _ = s.AdditionalProperties.(*validator.Schema)
		}
	}
	return s
}

// SchemaKeys lists the keys of a JSON schema that hold values, in order: "traffic.*.size" is of each item of a list. Tests
// check every key for its effect.
func SchemaKeys(schema []byte) []string {
	var s map[string]any
	if err := json.Unmarshal(schema, &s); err != nil {
		panic(fmt.Sprintf("read the generated JSON schema: %v", err))
	}
	return schemaKeys(s, "")
}

func schemaKeys(s map[string]any, path string) []string {
	below := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	if items, ok := s["items"].(map[string]any); ok && items["properties"] != nil {
		return schemaKeys(items, below("*"))
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return []string{path}
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if property, ok := properties[key].(map[string]any); ok {
			out = append(out, schemaKeys(property, below(key))...)
		}
	}
	return out
}
