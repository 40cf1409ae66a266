package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/config"
)

// splitOption splits KEY=VALUE.
func splitOption(flag, text string) (key, value, option string, err error) {
	key, value, ok := strings.Cut(text, "=")
	option = flag + " " + config.Clip(text)
	if !ok || key == "" || value == "" {
		return "", "", "", fmt.Errorf("%s: not of the form KEY=VALUE; write for example %s guests.cc=reno", option, flag)
	}
	return strings.TrimSpace(key), value, option, nil
}

// splitValues splits the values of --sweep at commas outside brackets.
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

// With returns a copy of the file with values changed as by --set KEY=VALUE.
func (f *File) With(set []string) (*File, error) { return f.override(set, nil) }

// override applies --set and --sweep to a copy of the file's tree and checks the result.
func (f *File) override(set, sweep []string) (*File, error) {
	if f.tree == nil {
		return nil, fmt.Errorf("experiment %s was not read from a file: use Load or Parse", f.ID)
	}
	t := f.tree.Clone()
	given := map[string]string{} // by canonical key: the last option that changed it
	for _, s := range set {
		key, text, option, err := splitOption("--set", s)
		if err != nil {
			return nil, err
		}
		given[t.Canonical(key)] = option
		v, err := config.ParseOption(option, text)
		if err != nil {
			return nil, err
		}
		if _, err := dropAxis(t, key, option); err != nil {
			return nil, err
		}
		if err := t.Put(key, v); err != nil {
			return nil, fmt.Errorf("%s: %w", option, err)
		}
	}
	for _, s := range sweep {
		key, list, option, err := splitOption("--sweep", s)
		if err != nil {
			return nil, err
		}
		for _, before := range slices.Sorted(maps.Keys(given)) {
			if covers(t.Canonical(key), before) {
				return nil, fmt.Errorf("%s: %s also sets this key; set a key once, or sweep it once with all its values", option, given[before])
			}
		}
		given[t.Canonical(key)] = option
		if err := addAxis(t, key, list, option); err != nil {
			return nil, err
		}
	}
	out, errs := f.laws.check(f.name, t)
	if len(errs) > 0 {
		return nil, errs.OrNil()
	}
	return out, nil
}

// covers reports whether setting one canonical key also sets the other: it is the same, or a part of the first.
func covers(key, other string) bool { return key == other || strings.HasPrefix(other, key+".") }

// dropAxis removes the axis that varies key: a key that is set has one value. It returns the axis's name; "" if there
// is none. An axis that sets more or less than this key, or several keys, would hide the value: that is an error.
func dropAxis(t *config.Tree, key, option string) (name string, err error) {
	vary := t.Get("vary")
	if vary == nil {
		return "", nil
	}
	want := t.Canonical(key)
	for i, axis := range vary.Items {
		for _, set := range axisKeys(axis) {
			switch own := t.Canonical(set); {
			case own == want && axis.Get("cases") == nil:
				vary.Items = append(vary.Items[:i:i], vary.Items[i+1:]...)
				vary.At.Option = option
				return axisName(axis), nil
			case own == want:
				return "", fmt.Errorf("%s: the axis %s sets this key; choose another key, or set vary", option, axis.Label())
			case covers(own, want) || covers(want, own):
				return "", fmt.Errorf("%s: the axis %s sets %s; choose another key, or set vary", option, axisName(axis), set)
			}
		}
	}
	return "", nil
}

// axisKeys lists the keys that an axis of vary sets.
func axisKeys(axis *config.Tree) (out []string) {
	if key := axis.Get("key"); key != nil {
		out = append(out, key.Text())
	}
	if cases := axis.Get("cases"); cases != nil {
		for _, fd := range cases.Fields {
			for _, set := range fd.Value.Fields {
				out = append(out, set.Key)
			}
		}
	}
	return out
}

// addAxis adds a --sweep to vary, as an axis named by the last part of its key. It replaces an axis of the same
// key and keeps its name, which claims and figures use.
func addAxis(t *config.Tree, key, list, option string) error {
	name, err := dropAxis(t, key, option)
	if err != nil {
		return err
	}
	at := config.Place{Option: option}
	values := &config.Tree{Form: config.Sequence, At: at}
	for _, one := range splitValues(list) {
		v, err := config.ParseOption(option, one)
		if err != nil {
			return err
		}
		values.Items = append(values.Items, v)
	}
	axis := &config.Tree{Form: config.Mapping, At: at}
	axis.Set("key", &config.Tree{Value: key, At: at})
	axis.Set("values", values)
	vary := t.Get("vary")
	if vary == nil {
		vary = &config.Tree{Form: config.Sequence, At: at}
		t.Set("vary", vary)
	}
	if name == "" {
		name = key[strings.LastIndexByte(key, '.')+1:]
		for _, other := range vary.Items {
			if axisName(other) == name {
				name = strings.ReplaceAll(key, ".", "_")
			}
		}
	}
	axis.Set("as", &config.Tree{Value: name, At: at})
	vary.Items = append(vary.Items, axis)
	return nil
}

// axisName returns the name of an axis of vary.
func axisName(t *config.Tree) string {
	if as := t.Get("as"); as != nil {
		return as.Text()
	}
	if key := t.Get("key"); key != nil {
		return key.Text()[strings.LastIndexByte(key.Text(), '.')+1:]
	}
	return ""
}
