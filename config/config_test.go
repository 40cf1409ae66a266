package config

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"weir/law"
)

// thing is a kind of file for these tests.
type thing struct {
	Kind  string         `json:"kind" jsonschema:"required,enum=Thing"`
	Rate  law.Rate       `json:"rate,omitempty"`
	Wait  law.Duration   `json:"wait,omitempty"`
	Scope []netip.Prefix `json:"scope,omitempty"`
	Parts []struct {
		Name string `json:"name" jsonschema:"required"`
		Size int    `json:"size,omitempty" jsonschema:"minimum=1"`
	} `json:"parts,omitempty"`
}

func things(l Limits) *Kind[thing] {
	return NewKind("Thing", Version{}, l, func() *thing { return &thing{Wait: 7} }, func(c *Checker, t *thing) {
		if t.Rate == 0 && c.Given("rate") {
			c.Fail([]string{"rate"}, "0 is no rate", "above 0kbit")
		}
	})
}

func TestKind(t *testing.T) {
	k := things(DefaultLimits)
	got, err := k.Parse("a.yaml", []byte("kind: Thing\nrate: 1.5Gbit\nscope: [10.0.0.0/8, \"fd00::/8\"]\nparts: [{name: x}]\n"))
	if err != nil || got.Rate != 1.5e9 || got.Wait != 7 || len(got.Scope) != 2 || got.Parts[0].Name != "x" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, row := range []struct{ text, says string }{
		{"kind: thing\n", `a.yaml:1: kind: "thing" is another kind of file; allowed: Thing`},
		{"rate: 1Gbit\n", "a.yaml:1: kind: the key is missing; it must be given: kind: Thing"},
		{"kind: Thing\nrate: 0kbit\n", "a.yaml:2: rate: 0 is no rate; above 0kbit"},
		{"kind: Thing\nrates: 1Gbit\n", "a.yaml:2: rates: unknown key; did you mean rate? allowed: kind, parts, rate, scope, wait"},
		{"kind: Thing\nrate: 99999999999Gbit\n", `a.yaml:2: rate: rate "99999999999Gbit" is too large; at most 9007199Gbit`},
		{"kind: Thing\nparts:\n  - {name: x}\n  - {name: y, size: 0}\n", `a.yaml:4: parts.y.size: "0" is out of range; at least 1`},
		{"kind: Thing\nscope: [10.0.0.1/8]\n", "a.yaml:2: scope.0: 10.0.0.1/8 has bits beyond its length: 10.0.0.0/8 is meant, or /32; a prefix is an address and its length, such as 10.0.0.0/8 or fd00::/8"},
		{"7\n", `a.yaml:1: "7" is not a mapping; a mapping that begins with kind: Thing`},
	} {
		if _, err := k.Parse("a.yaml", []byte(row.text)); err == nil || err.Error() != row.says {
			t.Errorf("%q:\n%v\nwanted\n%s", row.text, err, row.says)
		}
	}
}

// No file keeps the reader busy for long, even if it is small.
func TestLimits(t *testing.T) {
	k := things(Limits{Bytes: 4096, Nodes: 500})
	bomb := "kind: Thing\na: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
	for _, next := range []string{"b", "c", "d", "e", "f", "g", "h"} {
		last := string(rune(next[0] - 1))
		bomb += next + ": &" + next + " [" + strings.Repeat("*"+last+", ", 8) + "*" + last + "]\n"
	}
	for _, row := range []struct{ what, text, says string }{
		{"aliases of aliases", bomb, "too much is nested or repeated here; at most 500 values, 24 levels deep"},
		{"depth", "kind: Thing\nparts: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "24 levels deep"},
		{"values", "kind: Thing\nparts: [" + strings.Repeat("1, ", 600) + "1]\n", "at most 500 values"},
		{"bytes", "kind: Thing\n#" + strings.Repeat("x", 5000), "at most 4096"},
	} {
		_, err := k.Parse("a.yaml", []byte(row.text))
		var errs Errors
		if !errors.As(err, &errs) || len(errs) > MaxErrors || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v", row.what, err)
		}
	}
	many := "kind: Thing\n"
	for range 150 {
		many += "?\n" // the key null, repeated
	}
	_, err := k.Parse("a.yaml", []byte(many))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) > MaxErrors {
		t.Errorf("%d errors of one file: at most %d", len(errs), MaxErrors)
	}
}

// A schema can be compiled without a working directory.
func TestCompile_WithoutWorkingDirectory(t *testing.T) {
	dir := t.TempDir() + "/gone"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	Compile([]byte(`{"type": "object"}`))
}
