package experiment

import (
	"sync"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/config"
)

// Schema returns the JSON schema (draft 2020-12) of the experiment file, made from the Go types.
func (ls *Laws) Schema() []byte {
	s := config.SchemaOf(&File{})
	s.Title = "Weir experiment"
	s.ID = ""
	// Laws are checked by name after the schema; the schema has their names for editors.
	if schemes, ok := s.Properties.Get("schemes"); ok {
		if laws, ok := schemes.Items.Properties.Get("laws"); ok {
			for _, l := range ls.list {
				laws.Items.Examples = append(laws.Items.Examples, l.Name)
			}
		}
	}
	return config.EncodeSchema(s)
}

// fileSchema is the schema of the whole file, compiled once.
var fileSchema = sync.OnceValue(func() *validator.Schema { return config.Compile(new(Laws).Schema()) })
