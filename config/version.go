package config

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Version says which layouts of its keys a kind of file has. A file names its own with `version: N`; one that does not
// has version 1. Files of the version before the newest are read too: their keys are moved first.
type Version struct {
	Newest  int
	Moved   []Move // what Newest has elsewhere than the version before
	Command string // prints a file of the version before as Newest, given its name; "": none does
}

// Move is a key that stands elsewhere since a version. Both are paths from the top of the file, "*" for each item of a
// list. To has one step more than From: the key stands under a new one beside which it stood before.
type Move struct{ From, To string }

// moved is what was done to a file of an earlier version.
type moved struct {
	implied map[*yaml.Node]bool // nodes that the file does not have
	early   map[*yaml.Node]bool // keys of the newest version that the file has all the same
	keys    []movedKey
}

type movedKey struct {
	text string // "gain -> LAW.gain"
	line int
}

// upgrade makes the document of an earlier version one of the newest, in place. It gives nil for a document that is not
// of this kind or not of an earlier version.
func (k *Kind[T]) upgrade(doc *yaml.Node) *moved {
	root := alias(doc)
	if root == nil || root.Kind != yaml.MappingNode || k.Version.Newest < 2 {
		return nil
	}
	if kind := valueOf(root, "kind"); kind == nil || kind.Value != k.Name {
		return nil
	}
	if v := valueOf(root, "version"); v != nil && v.Value != strconv.Itoa(k.Version.Newest-1) {
		return nil // the newest, or one that is not known
	}
	m := &moved{implied: map[*yaml.Node]bool{}, early: map[*yaml.Node]bool{}}
	for _, move := range k.Version.Moved {
		from, to := strings.Split(move.From, "."), strings.Split(move.To, ".")
		m.move(root, from, to)
	}
	m.setVersion(root, k.Version.Newest)
	return m
}

// move moves the key at the end of the path from to the mapping that is the last step but one of to.
func (m *moved) move(at *yaml.Node, from, to []string) {
	if at = alias(at); at == nil {
		return
	}
	if len(from) > 1 {
		if from[0] == "*" && at.Kind == yaml.SequenceNode {
			for _, item := range at.Content {
				m.move(item, from[1:], to[1:])
			}
		} else if at.Kind == yaml.MappingNode {
			m.move(valueOf(at, from[0]), from[1:], to[1:])
		}
		return
	}
	if at.Kind != yaml.MappingNode {
		return
	}
	into := indexOf(at, to[0])
	if into >= 0 && !m.implied[at.Content[into+1]] {
		m.early[at.Content[into]] = true
		return
	}
	i := indexOf(at, from[0])
	if i < 0 {
		return
	}
	key, value := at.Content[i], at.Content[i+1]
	m.keys = append(m.keys, movedKey{from[0] + " -> " + strings.Join(to, "."), key.Line})
	if into < 0 {
		made := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: key.Line, Style: at.Style}
		m.implied[made] = true
		// In the place of the first key that moves, so that comments stay near what they are about.
		at.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: to[0], Line: key.Line}
		at.Content[i+1] = made
		made.Content = []*yaml.Node{key, value}
		return
	}
	at.Content[into+1].Content = append(at.Content[into+1].Content, key, value)
	at.Content = slices.Delete(at.Content, i, i+2)
}

// setVersion makes the document say the newest version, behind its kind.
func (m *moved) setVersion(root *yaml.Node, newest int) {
	value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(newest)}
	m.implied[value] = true
	if i := indexOf(root, "version"); i >= 0 {
		value.Line = root.Content[i+1].Line
		root.Content[i+1] = value
		return
	}
	i := indexOf(root, "kind")
	value.Line = root.Content[i].Line
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "version", Line: value.Line}
	root.Content = slices.Insert(root.Content, i+2, key, value)
}

// errors refuses keys of the newest version in a file of the one before.
func (m *moved) errors(name string, newest int) (errs Errors) {
	for key := range m.early {
		errs = append(errs, &Error{
			File: name, Line: key.Line, Key: key.Value, Wrong: fmt.Sprintf("the file is of version %d, and this is a key of version %d", newest-1, newest),
			Allowed: fmt.Sprintf("write version: %d behind kind, and all keys as that version has them", newest),
		})
	}
	return errs
}

// warning says of a file of an earlier version what is to be written instead. It is one line.
func (m *moved) warning(name string, v Version) string {
	text := fmt.Sprintf("%s is of version %d, which is still read: write version: %d", name, v.Newest-1, v.Newest)
	slices.SortStableFunc(m.keys, func(a, b movedKey) int { return a.line - b.line })
	said := map[string]bool{}
	for _, k := range m.keys {
		if !said[k.text] {
			text += fmt.Sprintf(", %s (line %d)", k.text, k.line)
		}
		said[k.text] = true
	}
	if v.Command != "" {
		text += "; to print the whole file so: " + v.Command + " " + name
	}
	return text
}

// Newest gives the text of a file in the newest version of its kind, with its comments. It gives nil when the file is of
// that version already. The file need not be right in other ways.
func (k *Kind[T]) Newest(name string, data []byte) ([]byte, error) {
	doc, errs := parseNode(name, data, k.holds(), k.Limits)
	if len(errs) > 0 {
		return nil, errs.OrNil()
	}
	if k.upgrade(doc) == nil {
		return nil, nil
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("write %s in version %d: %w", name, k.Version.Newest, err)
	}
	return out.Bytes(), e.Close()
}

// now gives the path that a key of the version before has in the newest; "": it is none that moved.
func (v *Version) now(path []string) string {
	for _, move := range v.Moved {
		if from := strings.Split(move.From, "."); matches(from, path) {
			return strings.Join(append(slices.Clone(path[:len(path)-1]), strings.Split(move.To, ".")[len(path)-1:]...), ".")
		}
	}
	return ""
}

func matches(pattern, path []string) bool {
	return slices.EqualFunc(pattern, path, func(p, step string) bool { return p == "*" || p == step })
}

// knownBefore gives the keys that the version before had at a path where the newest has those of known.
func (v *Version) knownBefore(parent, known []string) (out []string) {
	drop := map[string]bool{}
	for _, move := range v.Moved {
		from, to := strings.Split(move.From, "."), strings.Split(move.To, ".")
		if matches(from[:len(from)-1], parent) {
			out, drop[to[len(to)-2]] = append(out, from[len(from)-1]), true
		}
	}
	for _, key := range known {
		if !drop[key] {
			out = append(out, key)
		}
	}
	return out
}

// alias gives the node that an alias stands for, and any other node as it is. An alias that contains itself ends as
// itself: the reader refuses it.
func alias(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

func indexOf(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if k := mapping.Content[i]; k.Kind == yaml.ScalarNode && k.Value == key {
			return i
		}
	}
	return -1
}

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	if i := indexOf(mapping, key); i >= 0 {
		return alias(mapping.Content[i+1])
	}
	return nil
}
