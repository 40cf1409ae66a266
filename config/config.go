// Package config reads the files that people write for Weir, all in one strict way. They are YAML. A JSON schema made from the
// Go types checks them first, then code checks what a schema cannot express. Every error has file, line and key, lists what
// is allowed, and guesses what was meant.
//
//	config.go   kinds of files (kind: Switch)
//	kinds.go    which command reads which kind
//	parse.go    the text as a tree, within limits
//	tree.go     values that know their line
//	version.go  files of the version before
//	schema.go   JSON schemas of Go types
//	checker.go  what is wrong with one file
//	params.go   parameters of one thing of many, such as a law
//	explain.go  violations of a schema in our words
package config

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// Kind is one kind of file: those that begin with `kind: NAME`. They are read into a T.
type Kind[T any] struct {
	Name    string
	Version Version
	Limits  Limits
	// Default returns the defaults.
	Default func() *T
	// Check checks the decoded file for what a schema cannot express.
	Check func(*Checker, *T)

	schema    []byte
	validator *validator.Schema
}

// NewKind makes a kind of file with the keys of T, in their newest version. extend adds keys to the schema that check reads
// itself.
func NewKind[T any](name string, v Version, l Limits, def func() *T, check func(*Checker, *T), extend ...func(*jsonschema.Schema)) *Kind[T] {
	s := SchemaOf(new(T))
	for _, more := range extend {
		more(s)
	}
	s.Title, s.ID = "Weir "+strings.ToLower(name), ""
	k := &Kind[T]{Name: name, Version: v, Limits: l, Default: def, Check: check, schema: EncodeSchema(s)}
	k.validator = Compile(k.schema)
	return k
}

// Schema returns the JSON schema of the kind.
func (k *Kind[T]) Schema() []byte { return k.schema }

// Load reads and checks a file. Faults of the file are returned as Errors.
func (k *Kind[T]) Load(path string) (*T, error) {
	data, err := ReadFile(path, k.Limits)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return k.Parse(path, data)
}

// Parse checks a file in memory; name is its name in errors.
func (k *Kind[T]) Parse(name string, data []byte) (*T, error) {
	doc, errs := parseNode(name, data, k.holds(), k.Limits)
	if doc == nil {
		return nil, errs.OrNil()
	}
	c := &Checker{File: name}
	var implied map[*yaml.Node]bool
	if m := k.upgrade(doc); m != nil {
		if errs := m.errors(name, k.Version.Newest); len(errs) > 0 {
			return nil, errs.OrNil()
		}
		implied, c.older, c.Warning = m.implied, true, m.warning(name, k.Version)
	}
	t, more := readTree(name, doc, implied, k.Limits)
	if errs = append(more, errs...); len(errs) > 0 {
		return nil, errs.OrNil()
	}
	c.Root = t
	return k.check(c)
}

func (k *Kind[T]) holds() string { return "kind: " + k.Name + " and its keys" }

// FromTree checks a tree that was made from options, in the newest version.
func (k *Kind[T]) FromTree(name string, t *Tree) (*T, error) {
	return k.check(&Checker{File: name, Root: t})
}

func (k *Kind[T]) check(c *Checker) (*T, error) {
	c.version = k.Version
	c.Whole = "a mapping that begins with kind: " + k.Name
	out := k.read(c)
	if len(c.Errs) > 0 {
		return nil, c.Errs.OrNil()
	}
	return out, nil
}

func (k *Kind[T]) read(c *Checker) *T {
	if other := OtherKind(c.File, c.Root, k.Name); other != nil {
		c.Errs = append(c.Errs, other)
		return nil
	}
	// All keys of a file of another kind are unknown here.
	if kind := c.Root.Get("kind"); c.Root.Form == Mapping && (kind == nil || kind.Value != any(k.Name)) {
		if kind == nil {
			c.Fail([]string{"kind"}, "the key is missing", "it must be given: kind: "+k.Name)
		} else {
			c.Fail([]string{"kind"}, fmt.Sprintf("%q is another kind of file", Clip(kind.Text())), "allowed: "+k.Name)
		}
		return nil
	}
	c.Validate(k.validator, c.Root)
	if len(c.Errs) > 0 {
		return nil
	}
	out := k.Default()
	text, err := json.Marshal(c.Root.Plain())
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil { // the schema accepted it, so the user cannot fix it; still no panic
		c.Fail(nil, OneLine(err.Error()), "")
		return nil
	}
	k.Check(c, out)
	return out
}
