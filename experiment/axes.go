package experiment

import (
	"fmt"
	"slices"
	"strconv"

	"weir/config"
)

// maxPoints limits how many points the axes of a file span.
const maxPoints = 10_000

// axis is one axis of vary: its values in order, and what each value sets.
type axis struct {
	name   string
	values []axisValue
}

type axisValue struct {
	name string
	sets []setting
}

type setting struct {
	path  string
	value *config.Tree
}

// axes reads vary and notes its errors.
func (c *checker) axes(f *File) []axis {
	var out []axis
	points := 1
	for i, a := range f.Vary {
		path := []string{"vary", strconv.Itoa(i)}
		in := func(keys ...string) []string { return slices.Concat(path, keys) }
		one := axis{name: a.As}
		switch {
		case a.Key != "" && len(a.Cases) > 0:
			c.Fail(in("cases"), "both key and cases are given", "key and values, or cases")
		case a.Key == "" && len(a.Cases) == 0:
			c.Fail(path, "the axis has neither key nor cases", "{key: guests.cc, values: [cubic, reno]}, or {as: NAME, cases: {...}}")
		case a.Key != "" && len(a.Values) == 0:
			c.Fail(in("values"), "the key is missing", "a list of at least 1")
		case a.Key != "":
			one.values = c.axisValues(in, a)
		case len(a.Values) > 0:
			c.Fail(in("values"), "cases have no values", "key and values, or cases")
		default:
			one.values = c.axisCases(in, a)
		}
		if a.As != "" && !labelPattern.MatchString(a.As) {
			c.Fail(in("as"), fmt.Sprintf("%q is not a name for an axis", config.Clip(a.As)), labelRule)
		}
		if slices.ContainsFunc(out, func(b axis) bool { return b.name == one.name }) {
			c.Fail(in("as"), fmt.Sprintf("another axis is called %s", one.name), "names that differ")
		}
		for _, b := range out {
			if key := hides(c.Root, one, b); key != "" {
				c.Fail(path, fmt.Sprintf("the axis %s also sets %s", b.name, key), "one axis for a key")
				break
			}
		}
		if points *= max(len(one.values), 1); points > maxPoints {
			c.Fail(path, fmt.Sprintf("the axes span more than %d points", maxPoints), "fewer values")
			break
		}
		out = append(out, one)
	}
	return out
}

// hides returns a key of an axis whose value a later axis replaces, or "".
func hides(t *config.Tree, later, axis axis) string {
	for _, v := range later.values {
		for _, a := range v.sets {
			for _, w := range axis.values {
				for _, b := range w.sets {
					if covers(t.Canonical(a.path), t.Canonical(b.path)) {
						return b.path
					}
				}
			}
		}
	}
	return ""
}

func (c *checker) axisValues(in func(...string) []string, a Axis) []axisValue {
	var out []axisValue
	for k := range a.Values {
		at := in("values", strconv.Itoa(k))
		v := c.Root.Find(at...)
		name := v.Text()
		if v.Form != config.Scalar {
			name = strconv.Itoa(k)
		}
		if slices.ContainsFunc(out, func(o axisValue) bool { return o.name == name }) {
			c.Fail(at, fmt.Sprintf("the value %s is listed twice", config.Clip(name)), "values that differ")
		}
		out = append(out, c.axisValue(in("key"), name, setting{a.Key, v}))
	}
	return out
}

func (c *checker) axisCases(in func(...string) []string, a Axis) []axisValue {
	var out []axisValue
	if !c.Given(in("as")...) {
		c.Fail(in("as"), "the key is missing", "cases need a name for the axis")
	}
	for _, name := range a.order {
		at := in("cases", name)
		if !labelPattern.MatchString(name) {
			c.Fail(at, fmt.Sprintf("%q is not a name for a case", config.Clip(name)), labelRule)
		}
		var sets []setting
		for _, fd := range c.Root.Find(at...).Fields {
			sets = append(sets, setting{fd.Key, fd.Value})
		}
		out = append(out, c.axisValue(at, name, sets...))
	}
	return out
}

// axisValue resolves one value of an axis, and notes the settings that cannot be applied.
func (c *checker) axisValue(at []string, name string, sets ...setting) axisValue {
	trial := c.Root.Clone()
	for _, s := range sets {
		switch top := topOf(s.path); top {
		case "vary", "claims", "seeds", "lab", "worlds", "id", "ids":
			c.Fail(at, fmt.Sprintf("%s cannot be varied", top), "keys of guests, traffic, schemes, network, topology, measure")
			continue
		}
		if err := trial.Put(s.path, s.value); err != nil {
			c.Fail(at, err.Error(), "")
		}
	}
	return axisValue{name, sets}
}

func topOf(path string) string {
	for i, r := range path {
		if r == '.' {
			return path[:i]
		}
	}
	return path
}

// apply returns a copy of the tree with value i of the axis set.
func (a axis) apply(t *config.Tree, i int) *config.Tree {
	out := t.Clone()
	for _, s := range a.values[i].sets {
		_ = out.Put(s.path, s.value.Clone()) // applied without error when the axis was read
	}
	return out
}
