package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tree is a value of a file with its place in the file. Trees are checked, changed by options, and decoded into the typed
// configuration.
type Tree struct {
	Form   Form
	Value  any     // of a scalar: string, int64, float64, bool or nil
	Fields []Field // of a mapping, in the order of the file
	Items  []*Tree // of a sequence
	At     Place

	// Implied: the mapping is not in the file. The file has an earlier version, with the keys one level higher.
	Implied bool
}

// Form is the type of a value.
type Form uint8

// The forms of a value.
const (
	Scalar Form = iota
	Mapping
	Sequence
)

// Field is a key of a mapping and its value.
type Field struct {
	Key   string
	At    Place
	Value *Tree
}

// Place is the line of the file, or the option, that a value came from.
type Place struct {
	Line   int
	Option string // "--set guests.cc=reno"
}

// Get returns the value of a key of a mapping, or nil.
func (t *Tree) Get(key string) *Tree {
	for i := range t.Fields {
		if t.Fields[i].Key == key {
			return t.Fields[i].Value
		}
	}
	return nil
}

// Set sets the value of a mapping's key.
func (t *Tree) Set(key string, v *Tree) {
	for i := range t.Fields {
		if t.Fields[i].Key == key {
			t.Fields[i].Value, t.Fields[i].At = v, v.At
			return
		}
	}
	t.Fields = append(t.Fields, Field{key, v.At, v})
}

// Clone copies the whole tree.
func (t *Tree) Clone() *Tree {
	c := *t
	c.Fields = make([]Field, len(t.Fields))
	for i, f := range t.Fields {
		c.Fields[i] = Field{f.Key, f.At, f.Value.Clone()}
	}
	c.Items = make([]*Tree, len(t.Items))
	for i, v := range t.Items {
		c.Items[i] = v.Clone()
	}
	return &c
}

// Plain returns the tree as the values that JSON decoders make.
func (t *Tree) Plain() any {
	switch t.Form {
	case Mapping:
		m := make(map[string]any, len(t.Fields))
		for _, f := range t.Fields {
			m[f.Key] = f.Value.Plain()
		}
		return m
	case Sequence:
		s := make([]any, len(t.Items))
		for i, v := range t.Items {
			s[i] = v.Plain()
		}
		return s
	}
	return t.Value
}

// Text returns a scalar as a user would write it.
func (t *Tree) Text() string {
	switch v := t.Value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case nil:
		return "null"
	}
	return fmt.Sprint(t.Value)
}

// Locate follows path (keys and indices) as far as it exists and returns the place where it ends. For a missing key that is
// the place of its mapping.
func (t *Tree) Locate(path []string) Place {
	at := t.At
	for _, step := range path {
		var next *Tree
		switch t.Form {
		case Mapping:
			for i := range t.Fields {
				if t.Fields[i].Key == step {
					next, at = t.Fields[i].Value, t.Fields[i].At
				}
			}
		case Sequence:
			if next = t.item(step); next != nil {
				at = next.At
			}
		}
		if next == nil {
			return at
		}
		t = next
	}
	return at
}

// Find follows path and returns the value there, or nil.
func (t *Tree) Find(path ...string) *Tree {
	for _, step := range path {
		var next *Tree
		switch t.Form {
		case Mapping:
			next = t.Get(step)
		case Sequence:
			next = t.item(step)
		}
		if next == nil {
			return nil
		}
		t = next
	}
	return t
}

// item returns the item of a sequence by its index from 0, or nil.
func (t *Tree) item(step string) *Tree {
	if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(t.Items) {
		return t.Items[i]
	}
	return nil
}

// Show returns path as a user writes it: with the names of items of lists where they have one.
func (t *Tree) Show(path []string) string {
	var out []string
	for _, step := range path {
		if t == nil {
			out = append(out, step)
			continue
		}
		shown := step
		next := t.Find(step)
		if t.Form == Sequence && next != nil {
			if n := next.Label(); n != "" {
				shown = n
			}
		}
		if next == nil || !next.Implied {
			out = append(out, shown)
		}
		t = next
	}
	return strings.Join(out, ".")
}

// Label returns the name of an item of a list.
func (t *Tree) Label() string {
	for _, key := range []string{"name", "as", "match"} {
		if v := t.Get(key); v != nil {
			if s, ok := v.Value.(string); ok && s != "" {
				return s
			}
		}
	}
	return ""
}

// Put sets the value at a path of the tree, and makes missing mappings. The path is a list of keys from the top of the file,
// joined by dots; an item of a list has its name or its index from 0. A missing item is an error. The schema checks the
// keys afterwards.
func (t *Tree) Put(path string, v *Tree) error {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if step == "" {
			return fmt.Errorf("%q is not a path of keys; write it like guests.cc or traffic.NAME.size", Clip(path))
		}
		last := i == len(steps)-1
		switch t.Form {
		case Mapping:
			if last {
				t.Set(step, v)
				return nil
			}
			next := t.Get(step)
			if next == nil {
				next = &Tree{Form: Mapping, At: v.At}
				t.Set(step, next)
			}
			t = next
		case Sequence:
			k := t.index(step)
			if k < 0 {
				return fmt.Errorf("%s has no %q; %s", strings.Join(steps[:i], "."), Clip(step), OneOf(step, t.labels()))
			}
			if last {
				t.Items[k] = v
				return nil
			}
			t = t.Items[k]
		default:
			return fmt.Errorf("%s is a single value and has no %q; leave out the part after it", strings.Join(steps[:i], "."), Clip(step))
		}
	}
	return nil
}

// Canonical returns a path of Put with the indices of items of lists in place of their names, so that two spellings of one path are equal.
// A part that does not exist stays as it is.
func (t *Tree) Canonical(path string) string {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if t == nil {
			break
		}
		if t.Form == Sequence {
			if k := t.index(step); k >= 0 {
				steps[i] = strconv.Itoa(k)
			}
		}
		t = t.Find(steps[i])
	}
	return strings.Join(steps, ".")
}

// index finds an item of a list by its label or its index.
func (t *Tree) index(step string) int {
	for i, item := range t.Items {
		if item.Label() == step {
			return i
		}
	}
	if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(t.Items) {
		return i
	}
	return -1
}

func (t *Tree) labels() []string {
	var out []string
	for i, item := range t.Items {
		if l := item.Label(); l != "" {
			out = append(out, l)
		} else {
			out = append(out, strconv.Itoa(i))
		}
	}
	return out
}

// Changed reports whether any part of the tree came from an option.
func (t *Tree) Changed() bool {
	if t.At.Option != "" {
		return true
	}
	return slices.ContainsFunc(t.Items, (*Tree).Changed) ||
		slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Value.Changed() })
}

// relabel sets the place of every value of a tree to an option.
func (t *Tree) relabel(at Place) {
	t.At = at
	for i := range t.Fields {
		t.Fields[i].At = at
		t.Fields[i].Value.relabel(at)
	}
	for _, v := range t.Items {
		v.relabel(at)
	}
}
