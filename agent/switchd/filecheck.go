package switchd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/agent/metrics"
	"weir/config"
	"weir/law"
)

const (
	leastBuffer = 1514 // one full Ethernet frame
	deviceName  = 15   // letters in a device's name: IFNAMSIZ less one
	maxPatterns = 256  // of one file, in addition to any number of plain names
	longestRTT  = time.Second
)

// fileChecker checks what a schema cannot express.
type fileChecker struct {
	*config.Checker
	agent *Agent
	laws  []LawKeys // those that the switch runs
}

func (c *fileChecker) check(f *File) {
	base := f.Defaults.over(defaultPort(c.laws))
	c.settings([]string{"defaults"}, f.Defaults, base)
	c.matches(f)
	for i, p := range f.Ports {
		c.settings([]string{"ports", strconv.Itoa(i)}, p.PortSettings, p.over(base))
	}
	c.scope(f.Scope)
	for i := range c.laws {
		c.laws[i].Law.Check(c.Checker, []string{c.laws[i].name}, c.laws[i].Keys)
	}
	c.compose(f)
	c.enforce(f)
	c.rollback(&f.Rollback)
	if err := metrics.CheckListen(f.Metrics.Listen); err != nil {
		c.Fail([]string{"metrics", "listen"}, fmt.Sprintf("%q is not an address and a port", config.Clip(f.Metrics.Listen)),
			"an address of this machine and a port, such as "+metrics.DefaultListen+"; an empty string: none")
	}
}

// readLaws finds the laws that the switch runs, and reads their keys: those of all ports, and those of each port, which
// default to those of defaults, which default to the law's own.
func (c *fileChecker) readLaws(f *File) {
	for _, l := range c.agent.every() {
		if c.section(f, l.name) != nil {
			c.laws = append(c.laws, l)
		}
	}
	if len(c.laws) == 0 {
		c.laws = c.agent.chosen(0)
	}
	f.laws = c.laws
	for i := range c.laws {
		l := &c.laws[i]
		c.readOver(l.Keys, l.name)
		base := l.Law.Facts().Port
		c.readOver(base, "defaults", l.name)
		f.Defaults.Laws = append(f.Defaults.Laws, base)
		for k := range f.Ports {
			own := base
			if at := []string{"ports", strconv.Itoa(k), l.name}; c.Given(at...) {
				own = copyOf(base)
				c.readOver(own, at...)
			}
			f.Ports[k].Laws = append(f.Ports[k].Laws, own)
		}
	}
}

// section returns the path of the first section of a law in the file; nil: it has none.
func (c *fileChecker) section(f *File, name string) []string {
	for _, at := range [][]string{{name}, {"defaults", name}} {
		if c.Given(at...) {
			return at
		}
	}
	for i := range f.Ports {
		if at := []string{"ports", strconv.Itoa(i), name}; c.Given(at...) {
			return at
		}
	}
	return nil
}

// compose checks that the laws can run at one place, with each other and with the marking of the key mark.
func (c *fileChecker) compose(f *File) {
	var specs []*law.Spec
	for i := range c.laws {
		specs = append(specs, c.laws[i].Law.Facts().Spec)
	}
	var conflict *law.ConflictError
	if err := law.Compose(specs...); errors.As(err, &conflict) {
		c.Fail(c.section(f, conflict.B), err.Error(), "")
		return
	}
	specs = append(specs, &law.Spec{Name: "mark", Claims: []law.Resource{law.Marking}})
	err := law.Compose(specs...)
	if err == nil {
		return
	}
	for i, p := range f.Ports {
		if m := p.over(f.Defaults).Mark; m != nil && m.Threshold > 0 {
			c.Fail([]string{"ports", strconv.Itoa(i)}, err.Error(), "")
		}
	}
}

// readOver reads the values that the file has at a path into keys.
func (c *fileChecker) readOver(keys any, at ...string) {
	t := c.Root.Find(at...)
	if t == nil {
		return
	}
	text, err := json.Marshal(t.Plain())
	if err == nil {
		err = json.Unmarshal(text, keys)
	}
	if err != nil { // which the schema allowed
		c.Fail(at, config.OneLine(err.Error()), "")
	}
}

// copyOf returns a copy of the struct that keys points to.
func copyOf(keys any) any {
	out := reflect.New(reflect.TypeOf(keys).Elem())
	out.Elem().Set(reflect.ValueOf(keys).Elem())
	return out.Interface()
}

// settings checks the settings at one place of the file. whole has the defaults filled in.
func (c *fileChecker) settings(at []string, said, whole PortSettings) {
	in := func(keys ...string) []string { return append(at[:len(at):len(at)], keys...) }
	given := func(key string) bool { return c.Given(in(key)...) }
	if given("rate") && said.Rate == 0 {
		c.Fail(in("rate"), "0 is not a rate", "above 0kbit, or leave it out")
	}
	if given("shape") && said.Shape == 0 {
		c.Fail(in("shape"), "0 is not a rate", "above 0kbit, or leave it out")
	}
	if given("buffer") && (said.Buffer < leastBuffer || said.Buffer > math.MaxUint32) {
		c.Fail(in("buffer"), fmt.Sprintf("%s is out of range", said.Buffer), fmt.Sprintf("%dB (one full frame) to 4.29GB", leastBuffer))
	}
	if d := said.RTT.Std(); given("rtt") && (d <= 0 || d > longestRTT) {
		c.Fail(in("rtt"), fmt.Sprintf("%s is out of range", said.RTT), "above 0s, up to 1s")
	}
	if given("rate") && given("shape") {
		c.Fail(in("rate"), "both rate and shape are given", "shape alone, which is also the port's rate")
	}
	for i := range c.laws {
		if l := &c.laws[i]; given(l.name) {
			l.Law.Check(c.Checker, in(l.name), whole.Laws[i])
		}
	}
	c.mark(in, said, whole)
}

func (c *fileChecker) mark(in func(...string) []string, said, whole PortSettings) {
	m := said.Mark
	switch {
	case m == nil:
	case m.Threshold > math.MaxUint32:
		c.Fail(in("mark", "threshold"), fmt.Sprintf("%s is out of range", m.Threshold), "below 4.29GB")
	case whole.Buffer > 0 && m.Threshold >= whole.Buffer:
		c.Fail(in("mark", "threshold"), fmt.Sprintf("%s is never reached in a buffer of %s", m.Threshold, whole.Buffer), "less than the buffer, or 0B")
	}
}

// named is a name or pattern, and its place in the file.
type named struct {
	text string
	at   []string
	line int
}

// names returns the elements of a list of names with their places in the file.
func (c *fileChecker) names(at []string, n deviceNames) (out []named) {
	t := c.Root.Find(at...)
	for i, text := range n {
		where := at
		if t != nil && t.Form == config.Sequence {
			where = slices.Concat(at, []string{strconv.Itoa(i)})
		}
		out = append(out, named{text, where, c.Root.Locate(where).Line})
	}
	return out
}

// checkDevice returns an error if text can be neither the name of a device nor a pattern.
func checkDevice(text string) error {
	if _, err := path.Match(text, ""); err != nil {
		return fmt.Errorf("%q is not a valid pattern: a bracket or backslash is not closed", config.Clip(text))
	}
	switch {
	case text == "":
		return errors.New("the name is empty")
	case strings.ContainsAny(text, "/ \t\n"):
		return fmt.Errorf("%q contains a blank or slash, which no device name does", config.Clip(text))
	case !isPattern(text) && len(text) > deviceName:
		return fmt.Errorf("%q has %d letters, more than a device name can have", config.Clip(text), len(text))
	}
	return nil
}

const deviceRule = "a device's name of up to 15 letters, or a pattern such as swp* or eth[0-3]"

// matches checks each name and pattern, and that no earlier entry hides it.
func (c *fileChecker) matches(f *File) {
	exact, patterns := map[string]named{}, []named{}
	for i, p := range f.Ports {
		at := []string{"ports", strconv.Itoa(i), "match"}
		if len(p.Match) == 0 {
			c.Fail(at, "the list is empty", "a name, a pattern, or a list of them")
		}
		for _, n := range c.names(at, p.Match) {
			if err := checkDevice(n.text); err != nil {
				c.Fail(n.at, err.Error(), deviceRule)
				continue
			}
			before, twice := exact[n.text]
			if !twice && !isPattern(n.text) {
				before, twice = matching(patterns, n.text)
			}
			if twice {
				where := fmt.Sprintf(" in line %d", before.line)
				if before.line == 0 {
					where = ""
				}
				c.Fail(n.at, fmt.Sprintf("%q never applies: %q%s matches it first", n.text, before.text, where), "put this entry before the other one, since the first match counts, or leave it out")
				continue
			}
			exact[n.text] = n
			if isPattern(n.text) {
				patterns = append(patterns, n)
			}
			if len(patterns) == maxPatterns+1 {
				c.Fail(n.at, fmt.Sprintf("this is pattern %d of the file", len(patterns)), fmt.Sprintf("at most %d patterns; names are not limited", maxPatterns))
				return
			}
		}
	}
}

// matching returns the first pattern that matches a name.
func matching(patterns []named, name string) (named, bool) {
	for _, p := range patterns {
		if ok, _ := path.Match(p.text, name); ok {
			return p, true
		}
	}
	return named{}, false
}

func (c *fileChecker) scope(scope []netip.Prefix) {
	for i := range c.laws {
		if l := &c.laws[i]; len(scope) > 0 && l.wholePorts() {
			c.Fail([]string{"scope"}, fmt.Sprintf("%s acts on all packets of a port", l.name), "leave it out")
		}
	}
	seen := map[netip.Prefix]bool{}
	for i, p := range scope {
		if seen[p] {
			c.Fail([]string{"scope", strconv.Itoa(i)}, fmt.Sprintf("%s is listed twice", p), "each prefix once")
		}
		seen[p] = true
	}
}

func (c *fileChecker) enforce(f *File) {
	var list []PortRule
	for _, p := range f.Ports {
		list = append(list, PortRule{Match: p.Match})
	}
	rules := newRules(nil, list)
	for _, n := range c.names([]string{"enforce", "ports"}, f.Enforce.Ports) {
		switch err := checkDevice(n.text); {
		case err != nil:
			c.Fail(n.at, err.Error(), deviceRule)
		case !isPattern(n.text) && rules.of(n.text) == nil:
			c.Fail(n.at, fmt.Sprintf("no entry of ports matches %q", n.text), "a port of this switch")
		}
	}
	c.canary(f.Enforce.Percent, "enforce", "percent")
	if f.Defaults.Percent != nil {
		c.canary(*f.Defaults.Percent, "defaults", "percent")
	}
	for i := range f.Ports {
		if p := f.Ports[i].Percent; p != nil {
			c.canary(*p, "ports", strconv.Itoa(i), "percent")
		}
	}
	if c.Given("enforce", "ports") && len(f.Enforce.Ports) == 0 {
		c.Fail([]string{"enforce", "ports"}, "the list is empty", "at least one; percent: 0 enforces nowhere")
	}
}

// canary checks that the laws work if only a part of the flows is limited.
func (c *fileChecker) canary(percent int, at ...string) {
	if percent <= 0 || percent >= 100 {
		return
	}
	for i := range c.laws {
		l := &c.laws[i]
		if l.wholePorts() {
			c.Fail(at, fmt.Sprintf("%d %% of the flows is a canary, and %s acts on all packets of a port", percent, l.name), "percent: 100, or percent: 0 to observe")
			continue
		}
		all, is := l.Law.(AllFlows)
		if !is {
			continue
		}
		if key := all.NeedsAllFlows(l.Keys); key != "" {
			c.Fail(at, fmt.Sprintf("%d %% of the flows is a canary, and %s.%s needs all flows of a port limited", percent, l.name, key),
				fmt.Sprintf("percent: 100, or percent: 0 to observe, or %s: {%s: off}", l.name, key))
		}
	}
}

func (c *fileChecker) rollback(r *fileRollback) {
	first := map[Figure]bool{}
	for i := range c.laws {
		if l := &c.laws[i]; len(r.If) > 0 && l.wholePorts() {
			c.Fail([]string{"rollback", "if"}, fmt.Sprintf("%s counts no flows, so no rule can be judged", l.name), "leave it out")
		}
	}
	for i, text := range r.If {
		at := []string{"rollback", "if", strconv.Itoa(i)}
		rule, err := ParseRule(text)
		switch {
		case err != nil:
			c.Fail(at, err.Error(), "goodput < NUMBER, retransmissions > NUMBER or drops > NUMBER")
		case first[rule.Figure]:
			c.Fail(at, fmt.Sprintf("a second rule for %s", rule.Figure), "one rule per figure: keep the stricter one")
		}
		first[rule.Figure] = true
	}
	if r.Over < law.Duration(time.Second) || r.Over > law.Duration(time.Hour) {
		c.Fail([]string{"rollback", "over"}, fmt.Sprintf("%s is out of range", r.Over), "1s to 1h")
	}
}
