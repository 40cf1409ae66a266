package experiment

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Limits on what a file may hold, so that no file can exhaust the reader.
const (
	maxFileBytes = 1 << 20
	maxTreeNodes = 50_000 // after aliases are expanded
	maxTreeDepth = 24
)

// tree is a value of the file that knows where it stands. It is what is checked, what --set and
// vary change, and what the File is decoded from.
type tree struct {
	value  any     // string, int64, float64, bool or nil; unused when the others are set
	fields []field // of a mapping
	items  []*tree // of a sequence
	kind   treeKind
	at     place
}

type treeKind uint8

const (
	scalar treeKind = iota
	mapping
	sequence
)

type field struct {
	key   string
	at    place
	value *tree
}

// place is a line of the file, or the option that a value came from.
type place struct {
	line   int
	option string // "--set guests.cc=reno"
}

// get gives the value of a key of a mapping, or nil.
func (t *tree) get(key string) *tree {
	for i := range t.fields {
		if t.fields[i].key == key {
			return t.fields[i].value
		}
	}
	return nil
}

// set gives a mapping's key a value, in place of what it had.
func (t *tree) set(key string, v *tree) {
	for i := range t.fields {
		if t.fields[i].key == key {
			t.fields[i].value, t.fields[i].at = v, v.at
			return
		}
	}
	t.fields = append(t.fields, field{key, v.at, v})
}

// clone copies the whole tree.
func (t *tree) clone() *tree {
	c := *t
	c.fields = make([]field, len(t.fields))
	for i, f := range t.fields {
		c.fields[i] = field{f.key, f.at, f.value.clone()}
	}
	c.items = make([]*tree, len(t.items))
	for i, v := range t.items {
		c.items[i] = v.clone()
	}
	return &c
}

// plain gives the tree as the values that JSON decoders give.
func (t *tree) plain() any {
	switch t.kind {
	case mapping:
		m := make(map[string]any, len(t.fields))
		for _, f := range t.fields {
			m[f.key] = f.value.plain()
		}
		return m
	case sequence:
		s := make([]any, len(t.items))
		for i, v := range t.items {
			s[i] = v.plain()
		}
		return s
	}
	return t.value
}

// text gives a scalar as a user would write it.
func (t *tree) text() string {
	switch v := t.value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case nil:
		return "null"
	}
	return fmt.Sprint(t.value)
}

// locate follows path (keys and indices) as far as it goes and gives the place where it ends; a
// key that does not exist is looked for where it would stand.
func (t *tree) locate(path []string) place {
	at := t.at
	for _, step := range path {
		var next *tree
		switch t.kind {
		case mapping:
			for i := range t.fields {
				if t.fields[i].key == step {
					next, at = t.fields[i].value, t.fields[i].at
				}
			}
		case sequence:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(t.items) {
				next, at = t.items[i], t.items[i].at
			}
		}
		if next == nil {
			return at
		}
		t = next
	}
	return at
}

// find follows path and gives the value there, or nil.
func (t *tree) find(path ...string) *tree {
	for _, step := range path {
		var next *tree
		switch t.kind {
		case mapping:
			next = t.get(step)
		case sequence:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(t.items) {
				next = t.items[i]
			}
		}
		if next == nil {
			return nil
		}
		t = next
	}
	return t
}

// show writes path as --set has it: items of a list by their name where they have one.
func (t *tree) show(path []string) string {
	var out []string
	for _, step := range path {
		if t == nil {
			out = append(out, step)
			continue
		}
		shown := step
		next := t.find(step)
		if t.kind == sequence && next != nil {
			if n := next.label(); n != "" {
				shown = n
			}
		}
		out = append(out, shown)
		t = next
	}
	return strings.Join(out, ".")
}

// label is the name by which --set knows an item of a list.
func (t *tree) label() string {
	for _, key := range []string{"name", "as"} {
		if v := t.get(key); v != nil {
			if s, ok := v.value.(string); ok && s != "" {
				return s
			}
		}
	}
	return ""
}

// parseTree reads the one YAML document in data.
func parseTree(name string, data []byte) (*tree, Errors) {
	if len(data) > maxFileBytes {
		return nil, Errors{{File: name, Line: 1, Wrong: fmt.Sprintf("the file has %d bytes", len(data)), Allowed: fmt.Sprintf("at most %d", maxFileBytes)}}
	}
	r := &treeReader{name: name, active: map[*yaml.Node]bool{}}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		return nil, Errors{yamlError(name, err)}
	}
	if len(doc.Content) == 0 {
		return nil, Errors{{File: name, Line: 1, Wrong: "the file is empty", Allowed: "one experiment"}}
	}
	t := r.read(doc.Content[0], 0)
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		line := second.Line
		if len(second.Content) > 0 {
			line = second.Content[0].Line
		}
		r.fail(line, "", "a second document begins here", "one document a file")
	} else if line := yamlError(name, err); !errors.Is(err, errEOF) {
		r.errs = append(r.errs, line)
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return t, nil
}

type treeReader struct {
	name   string
	nodes  int
	active map[*yaml.Node]bool // anchors being expanded
	errs   Errors
}

func (r *treeReader) fail(line int, key, wrong, allowed string) {
	r.errs = append(r.errs, &Error{File: r.name, Line: line, Key: key, Wrong: wrong, Allowed: allowed})
}

// read makes a tree of a node; errors are kept in r and a null stands where they were.
func (r *treeReader) read(n *yaml.Node, depth int) *tree {
	t := &tree{at: place{line: n.Line}}
	r.nodes++
	if r.nodes > maxTreeNodes || depth > maxTreeDepth {
		if r.nodes <= maxTreeNodes+1 {
			r.nodes = maxTreeNodes + 1
			r.fail(n.Line, "", "too much is nested or repeated here", fmt.Sprintf("at most %d values, %d levels deep", maxTreeNodes, maxTreeDepth))
		}
		r.nodes++
		return t
	}
	switch n.Kind {
	case yaml.AliasNode:
		if n.Alias == nil || r.active[n.Alias] {
			r.fail(n.Line, n.Value, "an alias that contains itself", "a value")
			return t
		}
		r.active[n.Alias] = true
		t = r.read(n.Alias, depth+1)
		delete(r.active, n.Alias)
		t.at.line = n.Line
	case yaml.MappingNode:
		r.mapping(t, n, depth)
	case yaml.SequenceNode:
		t.kind = sequence
		for _, c := range n.Content {
			t.items = append(t.items, r.read(c, depth+1))
		}
	default:
		r.scalar(t, n)
	}
	return t
}

func (r *treeReader) mapping(t *tree, n *yaml.Node, depth int) {
	t.kind = mapping
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode {
			r.fail(k.Line, "", "a key is a list or a mapping", "a plain name")
			continue
		}
		if first, twice := seen[k.Value]; twice {
			r.fail(k.Line, k.Value, fmt.Sprintf("the key stands here again (first in line %d)", first), "each key once")
			continue
		}
		seen[k.Value] = k.Line
		t.fields = append(t.fields, field{k.Value, place{line: k.Line}, r.read(n.Content[i+1], depth+1)})
	}
}

func (r *treeReader) scalar(t *tree, n *yaml.Node) {
	var v any
	if err := n.Decode(&v); err != nil {
		r.fail(n.Line, "", fmt.Sprintf("%q cannot be read: %v", clip(n.Value), oneLine(err.Error())), "a text, a number, true or false")
		return
	}
	switch v := v.(type) {
	case int:
		t.value = int64(v)
	case int64:
		t.value = v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			r.fail(n.Line, "", fmt.Sprintf("%q is not a finite number", n.Value), "a finite number")
		}
		t.value = v
	case bool, nil:
		t.value = v
	case time.Time:
		t.value = n.Value
	case string:
		t.value = v
	default:
		r.fail(n.Line, "", fmt.Sprintf("%q is a %T", clip(n.Value), v), "a text, a number, true or false")
	}
}

var yamlLine = regexp.MustCompile(`line (\d+)(?:, column \d+)?:? ?`)

// yamlError turns the decoder's error into one line of ours.
func yamlError(name string, err error) *Error {
	text := oneLine(strings.TrimPrefix(err.Error(), "yaml: "))
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = yamlLine.ReplaceAllString(text, "")
	}
	if errors.Is(err, errEOF) {
		return &Error{File: name, Line: 1, Wrong: "the file is empty", Allowed: "one experiment"}
	}
	return &Error{File: name, Line: line, Wrong: "this is not YAML: " + text, Allowed: "a YAML mapping"}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// clip shortens what a user wrote for use in a message.
func clip(s string) string {
	s = oneLine(s)
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "..."
	}
	return s
}
