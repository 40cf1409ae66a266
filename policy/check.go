package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"weir/config"
	"weir/law"
)

// checker checks what the schema of a file cannot express.
type checker struct {
	*config.Checker
	*Reader
}

// sections are the keys of a selection.
var sections = map[Kind]string{Port: "ports", Host: "hosts", VM: "vms"}

func (c *checker) check(f *file) {
	selected := f.selectors()
	if len(selected) == 0 {
		c.Fail([]string{"select"}, "nothing is selected", "one or more of ports, hosts, vms")
	}
	for _, k := range kinds {
		if s := selected[k]; s != nil {
			c.selector(k, s)
		}
	}
	used := c.lawsOf(f, selected)
	guarantees := f.Guarantee != (Guarantee{}) || c.Given("guarantee", "rate") || c.Given("guarantee", "cap")
	if guarantees {
		c.guarantee(f, selected)
		used[VM] = true
	}
	if len(f.Laws) == 0 && !guarantees {
		c.Fail(nil, "the policy has no laws and no guarantee", "laws, a guarantee, or both")
	}
	for _, k := range kinds {
		if selected[k] != nil && !used[k] && len(c.Errs) == 0 {
			c.Fail([]string{"select", sections[k]}, "no law of the policy runs there", "remove it, or add a law that does")
		}
	}
}

func (c *checker) selector(k Kind, s *Selector) {
	at := func(keys ...string) []string { return append([]string{"select", sections[k]}, keys...) }
	if len(s.Names) == 0 && len(s.Labels) == 0 {
		c.Fail(at(), "nothing is selected", "names, labels, or both; all: names: ['*']")
	}
	for i, name := range s.Names {
		if wrong := wrongPattern(k, name); wrong != "" {
			c.Fail(at("names", fmt.Sprint(i)), fmt.Sprintf("%q %s", config.Clip(name), wrong), allowedName(k))
		}
	}
	if len(s.Labels) > MaxLabels {
		c.Fail(at("labels"), fmt.Sprintf("%d labels", len(s.Labels)), fmt.Sprintf("at most %d", MaxLabels))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		values := s.Labels[key]
		if !validLabelKey(key) {
			c.Fail(at("labels", key), fmt.Sprintf("%q is not a label", config.Clip(key)), labelForm)
		}
		for _, v := range values {
			if !validText(v) {
				c.Fail(at("labels", key), fmt.Sprintf("%q is not a value of a label", config.Clip(v)), labelForm)
			}
		}
	}
}

func wrongPattern(k Kind, name string) string {
	stem := strings.TrimSuffix(name, "*")
	if k == Port {
		node, port, cut := strings.Cut(stem, "/")
		switch {
		case name == "*", !cut && stem != name && ValidName(node): // all ports, or those of switches whose names begin so
			return ""
		case !cut:
			return "is not a port"
		case !ValidName(node) || port != "" && !ValidName(port) || port == "" && stem == name:
			return "is not a port"
		}
		return ""
	}
	if name != "*" && !ValidName(stem) {
		return "is not a name"
	}
	return ""
}

func allowedName(k Kind) string {
	if k == Port {
		return "SWITCH/PORT; * at the end stands for any letters"
	}
	return fmt.Sprintf("1 to %d letters without spaces, / and *; * at the end stands for any letters", MaxName)
}

// lawsOf checks the laws, and returns the kinds of targets at which one runs.
func (c *checker) lawsOf(f *file, selected map[Kind]*Selector) map[Kind]bool {
	used := map[Kind]bool{}
	together := map[Kind][]*law.Spec{}
	if len(f.Laws) > MaxLaws {
		c.Fail([]string{"laws"}, fmt.Sprintf("%d laws", len(f.Laws)), fmt.Sprintf("at most %d", MaxLaws))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Laws)) {
		l, known := c.laws[name]
		if !known {
			c.Fail([]string{"laws", name}, fmt.Sprintf("%q is not a law", config.Clip(name)), config.OneOf(name, c.specs.Names()))
			continue
		}
		fits := false
		for _, k := range kinds {
			if selected[k] != nil && k.takes(l.spec) {
				fits, used[k] = true, true
				together[k] = append(together[k], l.spec)
			}
		}
		if !fits && len(selected) > 0 {
			c.Fail([]string{"laws", name}, fmt.Sprintf("the law %s runs at: %s; the policy selects none of them", name, sitesOf(l.spec)), "")
		}
		l.check(c.Checker, name)
	}
	for _, k := range kinds {
		if err := law.Compose(together[k]...); err != nil {
			c.Fail([]string{"laws"}, err.Error(), "")
		}
	}
	return used
}

func sitesOf(s *law.Spec) string {
	var out []string
	for _, site := range s.Sites {
		out = append(out, site.String())
	}
	return strings.Join(out, ", ")
}

func (c *checker) guarantee(f *file, selected map[Kind]*Selector) {
	g, at := f.Guarantee, func(key string) []string { return []string{"guarantee", key} }
	switch {
	case selected[VM] == nil:
		c.Fail([]string{"guarantee"}, "no VMs are selected", "select.vms: a guarantee is for VMs")
	case c.Given(at("rate")...) && g.Rate == 0:
		c.Fail(at("rate"), "0 is not a rate", "above 0kbit, or leave it out")
	case c.Given(at("cap")...) && g.Cap == 0:
		c.Fail(at("cap"), "0 is not a rate", "above 0kbit, or leave it out")
	case g.Cap > 0 && g.Cap < g.Rate:
		c.Fail(at("cap"), fmt.Sprintf("%s is below the guaranteed rate of %s", g.Cap, g.Rate), "at least that rate")
	case f.Enforce.Percent < 100:
		c.Fail([]string{"enforce", "percent"}, "a guarantee is for a VM, not for a part of its flows", "100, or a policy of its own for the guarantee")
	}
}

// lawReader reads the parameters of one law.
type lawReader struct {
	spec     *law.Spec
	schema   *validator.Schema
	defaults map[string]json.RawMessage
}

func newLawReader(s *law.Spec) *lawReader {
	l := &lawReader{spec: s, schema: config.ParamsSchema(s.Params())}
	text, err := json.Marshal(s.Params())
	if err == nil {
		err = json.Unmarshal(text, &l.defaults)
	}
	if err != nil { // the types are ours: cannot happen with any file
		panic(fmt.Sprintf("defaults of the law %s: %v", s.Name, err))
	}
	return l
}

// check checks the parameters that a file gives.
func (l *lawReader) check(c *config.Checker, name string) {
	params, before := l.spec.Params(), len(c.Errs)
	c.ParamsBy(l.schema, params, "laws", name)
	for _, key := range slices.Sorted(maps.Keys(l.spec.Idle)) {
		if at := []string{"laws", name, key}; c.Given(at...) {
			c.Fail(at, "the key has no effect: "+l.spec.Idle[key].Why, l.spec.Idle[key].Do)
		}
	}
	if l.spec.New == nil || len(c.Errs) > before || !slices.Contains(l.spec.Sites, law.Controller) {
		return
	}
	if _, err := l.spec.New(law.Controller, params, &law.Topology{}); err != nil {
		c.Fail([]string{"laws", name}, config.OneLine(err.Error()), "")
	}
}

// setting returns the law with checked parameters.
func (l *lawReader) setting(given map[string]any) (Setting, error) {
	s, params := Setting{Law: l.spec.Name}, l.spec.Params()
	text, err := json.Marshal(given)
	if err == nil {
		err = config.DecodeParams(text, params)
	}
	if err == nil {
		s.Params, err = json.Marshal(params)
	}
	var all map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(s.Params, &all)
	}
	if err != nil {
		return s, fmt.Errorf("parameters of the law %s: %w", s.Law, err)
	}
	var shown []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(all[key], l.defaults[key]) {
			shown = append(shown, key+"="+strings.Trim(string(all[key]), `"`))
		}
	}
	s.Given = strings.Join(shown, " ")
	return s, nil
}
