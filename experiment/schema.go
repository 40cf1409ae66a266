package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/law"
)

// The titles by which an error knows that a text is a quantity with a unit.
const (
	rateTitle     = "rate"
	sizeTitle     = "size"
	durationTitle = "duration"
	limitTitle    = "limit"
	fileTitle     = "Weir experiment"
)

// Schema gives the JSON schema (draft 2020-12) of the experiment file, made from the Go types.
func Schema() []byte {
	r := reflector()
	s := r.Reflect(&File{})
	s.Title = fileTitle
	s.ID = ""
	// Laws are checked by name after the schema; editors get the names all the same.
	if schemes, ok := s.Properties.Get("schemes"); ok {
		if laws, ok := schemes.Items.Properties.Get("laws"); ok {
			for _, l := range Laws() {
				laws.Items.Examples = append(laws.Items.Examples, l.Name)
			}
		}
	}
	return encodeSchema(s)
}

func reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		ExpandedStruct:             true,
		RequiredFromJSONSchemaTags: true,
		Mapper:                     quantitySchema,
	}
}

// quantitySchema gives the schema of the types that are texts with a unit.
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
	}
	return nil
}

func encodeSchema(s *jsonschema.Schema) []byte {
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // the types are ours: cannot happen with any file
		panic(fmt.Sprintf("encode JSON schema: %v", err))
	}
	return append(out, '\n')
}

// fileSchema is the schema of the whole file, compiled once.
var fileSchema = sync.OnceValue(func() *validator.Schema { return compile(Schema()) })

// compile makes a validator of a schema that this package generated.
func compile(schema []byte) *validator.Schema {
	doc, err := validator.UnmarshalJSON(bytes.NewReader(schema))
	if err == nil {
		c := validator.NewCompiler()
		c.DefaultDraft(validator.Draft2020)
		if err = c.AddResource("schema.json", doc); err == nil {
			var s *validator.Schema
			if s, err = c.Compile("schema.json"); err == nil {
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
