package docs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/tables anew, to be reviewed as a diff")

// key is a property of a JSON schema, in the order of the file.
type key struct {
	name  string
	inner []key
	Type  any `json:"type"`
	Title string
	Enum  []any
	Desc  string `json:"description"`
}

// keysOf reads the properties of a schema in their order.
func keysOf(t *testing.T, schema []byte) []key {
	t.Helper()
	var top struct {
		Properties json.RawMessage
		Items      json.RawMessage
	}
	if err := json.Unmarshal(schema, &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Properties) == 0 {
		if len(top.Items) == 0 {
			return nil
		}
		return keysOf(t, top.Items)
	}
	dec := json.NewDecoder(bytes.NewReader(top.Properties))
	var out []key
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		k := key{name: name.(string)}
		if err := json.Unmarshal(raw, &k); err != nil {
			t.Fatal(err)
		}
		k.inner = keysOf(t, raw)
		out = append(out, k)
	}
	return out
}

// rows writes a line for each key, and for the keys in it.
func rows(b *strings.Builder, prefix string, keys []key) {
	for _, k := range keys {
		kind := k.Title
		if kind == "" {
			kind, _ = k.Type.(string)
		}
		if _, several := k.Type.([]any); several {
			kind = "string or list"
		}
		if len(k.Enum) > 0 {
			var words []string
			for _, e := range k.Enum {
				words = append(words, fmt.Sprint(e))
			}
			kind = strings.Join(words, ", ")
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, k.name, kind, k.Desc)
		inner := prefix + k.name + "."
		if k.Type == "array" {
			inner = prefix + k.name + "[]."
		}
		rows(b, inner, k.inner)
	}
}

// TestDocTables_Keys compares the tables of keys with the JSON schemas of deploy/, and with -update writes them.
func TestDocTables_Keys(t *testing.T) {
	for _, f := range []struct {
		kind, page string
	}{
		{"switch", "switch.md"},
		{"controller", "controller.md"},
		{"agent", "agent.md"},
		{"policy", "policy.md"},
	} {
		schema, err := os.ReadFile("../deploy/" + f.kind + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		keys := keysOf(t, schema)
		for i := range keys { // the keys of defaults are those of a port: they stand there once
			if keys[i].name == "defaults" {
				keys[i].inner = nil
			}
		}
		var b strings.Builder
		fmt.Fprintf(&b, "<!-- made by make doc-tables; do not edit -->\n\n# Keys of weir %[1]s\n\n"+
			"From `weir %[1]s --schema` (`deploy/%[1]s.schema.json`). The command: [%[2]s](../%[2]s).\n\n"+
			"| key | value | meaning |\n|---|---|---|\n", f.kind, f.page)
		rows(&b, "", keys)
		if strings.Count(b.String(), "\n") < 25 {
			t.Errorf("%s: only few keys: %s", f.kind, b.String())
		}
		path := "tables/" + f.kind + "-keys.md"
		if *update {
			if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
			t.Errorf("%s differs from the schema (%v): run make doc-tables", path, err)
		}
	}
}
