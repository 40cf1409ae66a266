package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Limits bounds the size of a file, so that no file can exhaust the reader.
type Limits struct {
	Bytes int
	Nodes int // values, after aliases are expanded
}

// DefaultLimits fits a file that is written by hand.
var DefaultLimits = Limits{Bytes: 1 << 20, Nodes: 50_000}

// maxDepth limits the nesting of values.
const maxDepth = 24

// ReadFile reads a file. Of a file that is too large it reads only one byte more than allowed.
func ReadFile(path string, l Limits) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(l.Bytes)+1))
}

// ParseTree reads the one YAML document in data. holds describes the content of a file: "one experiment".
func ParseTree(name string, data []byte, holds string, l Limits) (*Tree, Errors) {
	doc, errs := parseNode(name, data, holds, l)
	if doc == nil {
		return nil, errs
	}
	t, more := readTree(name, doc, nil, l)
	if errs = append(more, errs...); len(errs) > 0 {
		return nil, errs
	}
	return t, nil
}

// parseNode returns the root of the one YAML document in data. A second document is an error; then the root of the first is
// returned as well.
func parseNode(name string, data []byte, holds string, l Limits) (*yaml.Node, Errors) {
	if len(data) > l.Bytes {
		return nil, Errors{{File: name, Line: 1, Wrong: fmt.Sprintf("the file has %d bytes", len(data)), Allowed: fmt.Sprintf("at most %d", l.Bytes)}}
	}
	empty := &Error{File: name, Line: 1, Wrong: "the file is empty", Allowed: holds}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, Errors{empty}
	} else if err != nil {
		return nil, Errors{yamlError(name, err)}
	}
	if len(doc.Content) == 0 {
		return nil, Errors{empty}
	}
	var errs Errors
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		line := second.Line
		if len(second.Content) > 0 {
			line = second.Content[0].Line
		}
		errs = Errors{{File: name, Line: line, Wrong: "a second document begins here", Allowed: "one document a file"}}
	} else if !errors.Is(err, io.EOF) {
		errs = Errors{yamlError(name, err)}
	}
	return doc.Content[0], errs
}

// readTree makes a tree of a document. implied holds nodes that are not in the file.
func readTree(name string, doc *yaml.Node, implied map[*yaml.Node]bool, l Limits) (*Tree, Errors) {
	r := &treeReader{name: name, limits: l, active: map[*yaml.Node]bool{}, implied: implied}
	t := r.read(doc, 0)
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return t, nil
}

// ParseOption reads the value of an option (--set, --sweep) as YAML.
func ParseOption(option, text string) (*Tree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: %q is not a YAML value; quote it, or leave out the option", option, Clip(text))
	}
	r := &treeReader{name: option, limits: DefaultLimits, active: map[*yaml.Node]bool{}}
	v := r.read(doc.Content[0], 0)
	if len(r.errs) > 0 {
		return nil, fmt.Errorf("%s: %s; %s", option, r.errs[0].Wrong, r.errs[0].Allowed)
	}
	v.relabel(Place{Option: option})
	return v, nil
}

type treeReader struct {
	name   string
	limits Limits
	nodes  int
	active map[*yaml.Node]bool // anchors being expanded
	errs   Errors

	implied map[*yaml.Node]bool // not in the file
}

func (r *treeReader) fail(line int, key, wrong, allowed string) {
	r.errs = append(r.errs, &Error{File: r.name, Line: line, Key: key, Wrong: wrong, Allowed: allowed})
}

// read makes a tree of a node. It adds errors to r and puts null in place of faulty values.
func (r *treeReader) read(n *yaml.Node, depth int) *Tree {
	t := &Tree{At: Place{Line: n.Line}, Implied: r.implied[n]}
	r.nodes++
	if most := r.limits.Nodes; r.nodes > most || depth > maxDepth {
		if r.nodes <= most+1 {
			r.nodes = most + 1
			r.fail(n.Line, "", "too much is nested or repeated here", fmt.Sprintf("at most %d values, %d levels deep", most, maxDepth))
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
		t.At.Line = n.Line
	case yaml.MappingNode:
		r.mapping(t, n, depth)
	case yaml.SequenceNode:
		t.Form = Sequence
		for _, c := range n.Content {
			t.Items = append(t.Items, r.read(c, depth+1))
		}
	default:
		r.scalar(t, n)
	}
	return t
}

func (r *treeReader) mapping(t *Tree, n *yaml.Node, depth int) {
	t.Form = Mapping
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
		t.Fields = append(t.Fields, Field{k.Value, Place{Line: k.Line}, r.read(n.Content[i+1], depth+1)})
	}
}

func (r *treeReader) scalar(t *Tree, n *yaml.Node) {
	var v any
	if err := n.Decode(&v); err != nil {
		r.fail(n.Line, "", fmt.Sprintf("%q cannot be read: %v", Clip(n.Value), OneLine(err.Error())), "a text, a number, true or false")
		return
	}
	switch v := v.(type) {
	case int:
		t.Value = int64(v)
	case int64:
		t.Value = v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			r.fail(n.Line, "", fmt.Sprintf("%q is not a finite number", n.Value), "a finite number")
		}
		t.Value = v
	case bool, nil:
		t.Value = v
	case time.Time:
		t.Value = n.Value
	case string:
		t.Value = v
	default:
		r.fail(n.Line, "", fmt.Sprintf("%q is a %T", Clip(n.Value), v), "a text, a number, true or false")
	}
}

var yamlLine = regexp.MustCompile(`line (\d+)(?:, column \d+)?:? ?`)

// yamlError turns the decoder's error into one line.
func yamlError(name string, err error) *Error {
	text := OneLine(strings.TrimPrefix(err.Error(), "yaml: "))
	line := 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = yamlLine.ReplaceAllString(text, "")
	}
	return &Error{File: name, Line: line, Wrong: "this is not YAML: " + text, Allowed: "a YAML mapping"}
}
