package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A --set path names a key from the top of the file, parts joined by dots; an item of a list is
// named by its name (traffic.mice.size, schemes.ecn.params.threshold) or its index from 0.

// put sets the value at a path of the tree, making mappings that do not exist yet. The keys are
// checked by the schema afterwards; only what a list does not hold is an error here.
func (t *tree) put(path string, v *tree) error {
	steps := strings.Split(path, ".")
	for i, step := range steps {
		if step == "" {
			return fmt.Errorf("%q is not a path of keys; write it as guests.cc or traffic.NAME.size", clip(path))
		}
		last := i == len(steps)-1
		switch t.kind {
		case mapping:
			if last {
				t.set(step, v)
				return nil
			}
			next := t.get(step)
			if next == nil {
				next = &tree{kind: mapping, at: v.at}
				t.set(step, next)
			}
			t = next
		case sequence:
			k := t.index(step)
			if k < 0 {
				return fmt.Errorf("%s has no %q; %s", strings.Join(steps[:i], "."), clip(step), oneOf(step, t.labels()))
			}
			if last {
				t.items[k] = v
				return nil
			}
			t = t.items[k]
		default:
			return fmt.Errorf("%s is a single value and has no %q; leave out what follows it", strings.Join(steps[:i], "."), clip(step))
		}
	}
	return nil
}

// index finds an item of a list by its label or its index.
func (t *tree) index(step string) int {
	for i, item := range t.items {
		if item.label() == step {
			return i
		}
	}
	if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(t.items) {
		return i
	}
	return -1
}

func (t *tree) labels() []string {
	var out []string
	for i, item := range t.items {
		if l := item.label(); l != "" {
			out = append(out, l)
		} else {
			out = append(out, strconv.Itoa(i))
		}
	}
	return out
}

// changed tells whether an option made any part of the tree.
func (t *tree) changed() bool {
	if t.at.option != "" {
		return true
	}
	return slices.ContainsFunc(t.items, (*tree).changed) ||
		slices.ContainsFunc(t.fields, func(f field) bool { return f.value.changed() })
}

// relabel makes every value of a tree come from an option.
func (t *tree) relabel(at place) {
	t.at = at
	for i := range t.fields {
		t.fields[i].at = at
		t.fields[i].value.relabel(at)
	}
	for _, v := range t.items {
		v.relabel(at)
	}
}

// optionValue reads the value of --set as YAML has it.
func optionValue(option, text string) (*tree, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: %q is not a value; quote it, or leave out the option", option, clip(text))
	}
	r := &treeReader{name: option, active: map[*yaml.Node]bool{}}
	v := r.read(doc.Content[0], 0)
	if len(r.errs) > 0 {
		return nil, fmt.Errorf("%s: %s; %s", option, r.errs[0].Wrong, r.errs[0].Allowed)
	}
	v.relabel(place{option: option})
	return v, nil
}

// splitOption takes KEY=VALUE apart.
func splitOption(flag, text string) (key, value, option string, err error) {
	key, value, ok := strings.Cut(text, "=")
	option = flag + " " + text
	if !ok || key == "" || value == "" {
		return "", "", "", fmt.Errorf("%s: not KEY=VALUE; write it as %s guests.cc=reno", option, flag)
	}
	return strings.TrimSpace(key), value, option, nil
}

// splitValues takes the values of --sweep apart at commas outside brackets.
func splitValues(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range text {
		switch r {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, text[from:i]), i+1
			}
		}
	}
	return append(out, text[from:])
}

// override applies --set and --sweep to a copy of the file's tree and checks the whole anew.
func (f *File) override(set, sweep []string) (*File, error) {
	if f.tree == nil {
		return nil, fmt.Errorf("experiment %s was not read from a file: make it with Load or Parse", f.ID)
	}
	t := f.tree.clone()
	for _, s := range set {
		key, text, option, err := splitOption("--set", s)
		if err != nil {
			return nil, err
		}
		v, err := optionValue(option, text)
		if err != nil {
			return nil, err
		}
		if err := dropAxis(t, key, option); err != nil {
			return nil, err
		}
		if err := t.put(key, v); err != nil {
			return nil, fmt.Errorf("%s: %w", option, err)
		}
	}
	for _, s := range sweep {
		if err := addAxis(t, s); err != nil {
			return nil, err
		}
	}
	out, errs := check(f.name, t)
	if len(errs) > 0 {
		return nil, errs.orNil()
	}
	return out, nil
}

// dropAxis removes the axis that varies key: a key that is set has one value. One case of an axis
// of cases cannot be taken out of its others.
func dropAxis(t *tree, key, option string) error {
	vary := t.get("vary")
	if vary == nil {
		return nil
	}
	for i, axis := range vary.items {
		if k := axis.get("key"); k != nil && k.value == any(key) {
			vary.items = append(vary.items[:i:i], vary.items[i+1:]...)
			vary.at.option = option
			return nil
		}
		cases := axis.get("cases")
		if cases == nil {
			continue
		}
		for _, fd := range cases.fields {
			if fd.value.get(key) != nil {
				return fmt.Errorf("%s: the axis %s sets this key; choose another key, or set vary", option, axis.label())
			}
		}
	}
	return nil
}

// addAxis turns a --sweep into an axis of vary, named by the last part of its key; an axis of the
// same key is replaced.
func addAxis(t *tree, text string) error {
	key, list, option, err := splitOption("--sweep", text)
	if err != nil {
		return err
	}
	if err := dropAxis(t, key, option); err != nil {
		return err
	}
	at := place{option: option}
	values := &tree{kind: sequence, at: at}
	for _, one := range splitValues(list) {
		v, err := optionValue(option, one)
		if err != nil {
			return err
		}
		values.items = append(values.items, v)
	}
	axis := &tree{kind: mapping, at: at}
	axis.set("key", &tree{value: key, at: at})
	axis.set("values", values)
	vary := t.get("vary")
	if vary == nil {
		vary = &tree{kind: sequence, at: at}
		t.set("vary", vary)
	}
	name := key[strings.LastIndexByte(key, '.')+1:]
	for _, other := range vary.items {
		if other.axisName() == name {
			name = strings.ReplaceAll(key, ".", "_")
		}
	}
	axis.set("as", &tree{value: name, at: at})
	vary.items = append(vary.items, axis)
	return nil
}

// axisName is the name of an axis of vary.
func (t *tree) axisName() string {
	if as := t.get("as"); as != nil {
		return as.text()
	}
	if key := t.get("key"); key != nil {
		return key.text()[strings.LastIndexByte(key.text(), '.')+1:]
	}
	return ""
}
