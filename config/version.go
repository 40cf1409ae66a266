package config

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Version describes the layouts of keys that a kind of file has. A file gives its own with `version: N`, by default 1. Files
// of the version before the newest are read too: their keys are moved first.
type Version struct {
	Newest  int
	Moved   []Move // keys with other paths in Newest than in the version before
	Command string // prints a file of the version before as Newest, given its name; "": none
}

// Move is a key whose path changed in a version. Both paths begin at the top of the file; "*" stands for each item of a list.
// To has one step more than From: the key is now below a new key that took its former place.
type Move struct{ From, To string }

// moved lists the changes that were made to a file of an earlier version.
type moved struct {
	implied map[*yaml.Node]bool // nodes that the file does not have
	early   map[*yaml.Node]bool // keys of the newest version that the file has nevertheless
	keys    []movedKey
}

type movedKey struct {
	text string // "gain -> LAW.gain"
	line int
}

// upgrade converts a document of an earlier version to the newest, in place. It returns nil for a document that is not of this
// kind or not of an earlier version.
func (k *Kind[T]) upgrade(doc *yaml.Node) *moved {
	root := alias(doc)
	if root == nil || root.Kind != yaml.MappingNode || k.Version.Newest < 2 {
		return nil
	}
	if kind := valueOf(root, "kind"); kind == nil || kind.Value != k.Name {
		return nil
	}
	if v := valueOf(root, "version"); v != nil && v.Value != strconv.Itoa(k.Version.Newest-1) {
		return nil // the newest version, or an unknown one
	}
	m := &moved{implied: map[*yaml.Node]bool{}, early: map[*yaml.Node]bool{}}
	for _, move := range k.Version.Moved {
		from, to := strings.Split(move.From, "."), strings.Split(move.To, ".")
		m.move(root, from, to)
	}
	m.setVersion(root, k.Version.Newest)
	return m
}

// move moves the key at the end of path `from` to the mapping at the last step but one of path `to`.
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
		// In the place of the first key that moves, so that comments stay near their keys.
		at.Content[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: to[0], Line: key.Line}
		at.Content[i+1] = made
		made.Content = []*yaml.Node{key, value}
		return
	}
	at.Content[into+1].Content = append(at.Content[into+1].Content, key, value)
	at.Content = slices.Delete(at.Content, i, i+2)
}

// setVersion writes the newest version into the document, after its kind.
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

// errors returns an error for each key of the newest version in a file of the one before.
func (m *moved) errors(name string, newest int) (errs Errors) {
	for key := range m.early {
		errs = append(errs, &Error{
			File: name, Line: key.Line, Key: key.Value, Wrong: fmt.Sprintf("the file has version %d, and this is a key of version %d", newest-1, newest),
			Allowed: fmt.Sprintf("write version: %d after kind, and all keys as in that version", newest),
		})
	}
	return errs
}

// warning explains, in one line, how to write a file of an earlier version in the newest one.
func (m *moved) warning(name string, v Version) string {
	text := fmt.Sprintf("%s has version %d, which is still read: write version: %d", name, v.Newest-1, v.Newest)
	slices.SortStableFunc(m.keys, func(a, b movedKey) int { return a.line - b.line })
	said := map[string]bool{}
	for _, k := range m.keys {
		if !said[k.text] {
			text += fmt.Sprintf(", %s (line %d)", k.text, k.line)
		}
		said[k.text] = true
	}
	if v.Command != "" {
		text += "; to print the whole file in that version: " + v.Command + " " + name
	}
	return text
}

// Newest returns the text of a file in the newest version of its kind, with its comments, and nil if the file already has that
// version. The file may have other faults.
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

// now returns the path that a key of the version before has in the newest; "": the key has not moved.
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

// knownBefore returns the keys that the version before had at a path where the newest has the keys of known.
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

// alias returns the node that an alias refers to, and any other node unchanged. An alias that contains itself is returned as it
// is: the reader refuses it.
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
