package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	"weir/law"
)

// meaning checks what a schema cannot express. It notes every error; a check that depends on an earlier one is
// skipped when that one failed.
func (c *checker) meaning(f *File) {
	if f.ID == "" {
		c.Fail([]string{"id"}, "the key is missing", "a name, or ids for a file that several experiments share")
	}
	if f.Duration <= 0 {
		c.Fail([]string{"duration"}, "0 is not a duration", "above 0s")
	}
	c.network(f.Network)
	c.control(f)
	c.names(f)
	for i := range f.Traffic {
		c.pattern(f, i)
	}
	var g *Graph
	if f.Network.Rate > 0 {
		g = c.buildGraph(f.Topology, f.Network)
	}
	for i := range f.Schemes {
		c.scheme(f, i, g)
	}
	c.guests([]string{"guests"}, f.Guests)
	if g != nil {
		for i := range f.Traffic {
			c.endpoints(f, i, g)
		}
		c.ports(f, g)
		c.guarantees(f, g)
	}
	c.windows(f)
}

func (c *checker) network(n Network) {
	switch {
	case n.RTT > 0 && n.Delay > 0:
		c.Fail([]string{"network", "delay"}, "both rtt and delay are given", "one of them")
	case n.RTT == 0 && n.Delay == 0 && c.Given("network", "rtt"):
		c.Fail([]string{"network", "rtt"}, "0 is not a round trip", "above 0s")
	case n.RTT == 0 && n.Delay == 0 && c.Given("network", "delay"):
		c.Fail([]string{"network", "delay"}, "0 is not a delay", "above 0s")
	case n.RTT == 0 && n.Delay == 0:
		c.Fail([]string{"network", "rtt"}, "neither rtt nor delay is given", "one of them, above 0s")
	case n.RTT > maxDelay:
		c.Fail([]string{"network", "rtt"}, fmt.Sprintf("%s is out of range", n.RTT), fmt.Sprintf("at most %s", maxDelay))
	case n.Delay > maxDelay:
		c.Fail([]string{"network", "delay"}, fmt.Sprintf("%s is out of range", n.Delay), fmt.Sprintf("at most %s", maxDelay))
	}
	if n.Rate == 0 {
		c.Fail([]string{"network", "rate"}, "0 is not a rate", "above 0kbit")
	}
	c.buffer([]string{"network", "buffer"}, n.Buffer)
}

// control checks the keys of the messages to and from a controller.
func (c *checker) control(f *File) {
	has := slices.ContainsFunc(f.Schemes, func(s Scheme) bool { return c.laws.controls(s.Laws) })
	n := &f.Network
	for key, d := range map[string]law.Duration{"control_delay": n.controlDelay(), "control_jitter": n.ControlJitter, "control_loss": 0} {
		at := []string{"network", key}
		switch {
		case !c.Given(at...):
		case !has:
			c.Fail(at, "no scheme has a law of a controller", "name such a law in a scheme, or remove the key")
		case d > maxControl:
			c.Fail(at, fmt.Sprintf("%s is out of range", d), fmt.Sprintf("at most %s", maxControl))
		}
	}
}

func (c *checker) buffer(path []string, l law.Limit) {
	if l.N == 0 || !l.Packets && l.N < smallestBufferLen {
		c.Fail(path, fmt.Sprintf("a buffer of %s is smaller than a full frame", l), fmt.Sprintf("at least %dB or 1pkt", smallestBufferLen))
	}
}

// names checks that names that share a namespace in paths and results are distinct.
func (c *checker) names(f *File) {
	items, schemes := map[string]bool{}, map[string]bool{}
	for i, t := range f.Traffic {
		if items[t.Name] {
			c.Fail([]string{"traffic", strconv.Itoa(i), "name"}, fmt.Sprintf("another item is called %s", t.Name), "names that differ; group measures items together")
		}
		items[t.Name] = true
	}
	for i, s := range f.Schemes {
		if schemes[s.Name] {
			c.Fail([]string{"schemes", strconv.Itoa(i), "name"}, fmt.Sprintf("another scheme is called %s", s.Name), "labels that differ; laws may repeat")
		}
		schemes[s.Name] = true
	}
	groups := f.groups()
	for _, label := range sortedKeys(f.Measure.Ports) {
		path := []string{"measure", "ports", label}
		switch {
		case !labelPattern.MatchString(label):
			c.Fail(path, fmt.Sprintf("%q is not a label", config.Clip(label)), labelRule)
		case label == "all":
			c.Fail(path, "all is the name for the sum of all ports", "another label")
		case slices.Contains(groups, label):
			c.Fail(path, "a group of traffic has this name", "labels that differ from groups")
		}
	}
	for _, label := range sortedKeys(f.Measure.Windows) {
		path := []string{"measure", "windows", label}
		_, port := f.Measure.Ports[label]
		switch {
		case !labelPattern.MatchString(label):
			c.Fail(path, fmt.Sprintf("%q is not a label", config.Clip(label)), labelRule)
		case port || label == "all" || slices.Contains(groups, label):
			c.Fail(path, "a group or port has this name", "labels that differ from both")
		}
	}
}

// groups lists the groups of traffic, in order.
func (f *File) groups() []string {
	var out []string
	for _, t := range f.Traffic {
		if !slices.Contains(out, t.Group) {
			out = append(out, t.Group)
		}
	}
	return out
}

// guests checks the times that cannot be 0.
func (c *checker) guests(path []string, g Guests) {
	for key, d := range map[string]*law.Duration{"rto_min": g.RTOMin, "initial_rto": g.InitialRTO} {
		if d != nil && (*d < 10e3 || *d > 120e9) {
			c.Fail(append(slices.Clone(path), key), fmt.Sprintf("%s is out of range", *d), "from 10us to 120s")
		}
	}
}

func (c *checker) scheme(f *File, i int, g *Graph) {
	s, path := f.Schemes[i], []string{"schemes", strconv.Itoa(i)}
	in := func(keys ...string) []string { return slices.Concat(path, keys) }
	c.guests(in("guests"), s.Guests)
	for k, w := range s.Worlds {
		if c.Given(in("worlds")...) && !slices.Contains(f.Worlds, w) {
			c.Fail(in("worlds", strconv.Itoa(k)), fmt.Sprintf("the file does not run in %s", w), "allowed: "+strings.Join(f.Worlds, ", "))
		}
	}
	var laws []Law
	for k, name := range s.Laws {
		l, ok := c.laws.named(name)
		if ok {
			laws = append(laws, l)
			continue
		}
		at := in("laws", strconv.Itoa(k))
		if !c.Given(in("laws")...) {
			at = in("name")
		}
		c.Fail(at, fmt.Sprintf("%q is not a law", config.Clip(name)), config.OneOf(name, c.laws.Specs().Names()))
	}
	if len(laws) == len(s.Laws) {
		c.params(in("params"), laws, s.Params)
		c.together(in("laws"), laws)
	}
	c.idle(in("params"), laws, s.Params)
	for k, pattern := range s.At {
		if g == nil {
			break
		}
		if _, err := g.Select(pattern, Switch); err != nil {
			c.Fail(in("at", strconv.Itoa(k)), err.Error(), config.OneOf(pattern, g.nodes(Switch)))
		}
	}
}

// together refuses laws that cannot run at one place.
func (c *checker) together(path []string, laws []Law) {
	var specs []*law.Spec
	for i := range laws {
		specs = append(specs, &laws[i].Spec)
	}
	if conflict := (*law.ConflictError)(nil); errors.As(law.Compose(specs...), &conflict) {
		c.Fail(path, fmt.Sprintf("%s and %s cannot run at one place: both need %s, which has one owner", conflict.A, conflict.B, conflict.Resource),
			"make each a scheme of its own")
	}
}

// idle refuses parameters that have no effect in the laws that take them.
func (c *checker) idle(path []string, laws []Law, params map[string]any) {
	refuse := func(at []string, laws []Law) {
		if idle, is := idleIn(laws, at[len(at)-1]); is && c.Given(at...) {
			c.Fail(at, idle.Why, idle.Do)
		}
	}
	for _, key := range sortedKeys(params) {
		refuse(append(slices.Clone(path), key), laws)
	}
	for _, l := range laws {
		for _, key := range sortedKeys(block(params, l.Name)) {
			refuse(append(slices.Clone(path), l.Name, key), []Law{l})
		}
	}
}

// idleIn reports whether a parameter has no effect on any of the laws that have it, and why.
func idleIn(laws []Law, key string) (why law.Idle, is bool) {
	for i := range laws {
		if !slices.Contains(laws[i].fields(), key) {
			continue
		}
		if why, is = laws[i].Idle[key]; !is {
			return law.Idle{}, false
		}
	}
	return why, is
}

// params checks a scheme's params against the fields of its laws. Each law takes the keys that it has, and those under its name.
func (c *checker) params(path []string, laws []Law, params map[string]any) {
	having := map[string][]string{} // key -> the laws that have it
	for _, l := range laws {
		for _, key := range l.fields() {
			having[key] = append(having[key], l.Name)
		}
	}
	given := &config.Tree{Form: config.Mapping}
	if c.Root != nil {
		if t := c.Root.Find(path...); t != nil {
			given = t
		}
	}
	names := lawNames(laws)
	for _, key := range sortedKeys(params) {
		at := append(slices.Clone(path), key)
		switch owners := having[key]; {
		case slices.Contains(names, key):
		case len(owners) == 0:
			known := sortedKeys(having)
			if len(names) > 1 {
				known = append(known, names...)
			}
			c.UnknownKey(at, known)
		case len(owners) > 1:
			c.Fail(at, fmt.Sprintf("%s have this parameter, and it means something else in each", strings.Join(owners, " and ")),
				fmt.Sprintf("%s: {%s: ...}", owners[0], key))
		}
	}
	for _, l := range laws {
		c.paramsOf(path, &l, given, params)
	}
}

func lawNames(laws []Law) []string {
	var names []string
	for i := range laws {
		names = append(names, laws[i].Name)
	}
	return names
}

// paramsOf checks what one law takes of a scheme's params.
func (c *checker) paramsOf(path []string, l *Law, given *config.Tree, params map[string]any) {
	known, own := l.fields(), given.Find(l.Name)
	if own != nil {
		path = append(slices.Clone(path), l.Name)
	}
	if own != nil && own.Form != config.Mapping {
		c.Fail(path, fmt.Sprintf("%s's parameters are a mapping", l.Name), fmt.Sprintf("%s: {%s: ...}", l.Name, known[0]))
		return
	}
	all := &config.Tree{Form: config.Mapping, At: given.At}
	for _, fd := range given.Fields {
		if slices.Contains(known, fd.Key) && (own == nil || own.Find(fd.Key) == nil) {
			all.Fields = append(all.Fields, fd)
		}
	}
	if own != nil {
		all.Fields = append(all.Fields, own.Fields...)
	}
	before := len(c.Errs)
	c.Validate(l.schema(), all, path...)
	if len(c.Errs) > before {
		return
	}
	decoded, err := l.decode(params)
	if err != nil {
		c.Fail(path, config.OneLine(err.Error()), "")
		return
	}
	for _, key := range config.Zeros(decoded) {
		if at := append(slices.Clone(path), key); !c.Meant(at) {
			c.Fail(at, "0 is not allowed", "above 0")
		}
	}
}

// maxPairs limits the pairs of one traffic item (32 B each): a fat tree of 16 pods, all guests with each other.
const maxPairs = 1 << 20

func (c *checker) endpoints(f *File, i int, g *Graph) {
	t, path := f.Traffic[i], []string{"traffic", strconv.Itoa(i)}
	from, err := g.Select(t.From, Guest)
	if err != nil {
		c.Fail(append(path, "from"), err.Error(), "the guests are "+g.families(Guest))
	}
	to, err2 := g.Select(t.To, Guest)
	if err2 != nil {
		c.Fail(append(path, "to"), err2.Error(), "the guests are "+g.families(Guest))
	}
	if err != nil || err2 != nil {
		return
	}
	if len(from)*len(to) > maxPairs {
		c.Fail(append(path, "from"), fmt.Sprintf("%d sources and %d destinations", len(from), len(to)), fmt.Sprintf("at most %d pairs", maxPairs))
		return
	}
	if len(pairs(from, to, t.Pair)) == 0 {
		c.Fail(append(path, "pair"), fmt.Sprintf("pair: %s leaves no pair of %s and %s", t.Pair, t.From, t.To), "endpoints that differ and are paired")
	}
}

func (c *checker) ports(f *File, g *Graph) {
	for _, label := range sortedKeys(f.Measure.Ports) {
		if _, _, err := g.Port(f.Measure.Ports[label]); err != nil {
			c.Fail([]string{"measure", "ports", label}, err.Error(), "a port is node->neighbour, such as "+g.somePort())
		}
	}
}

// somePort returns the name of a port, as an example for errors.
func (g *Graph) somePort() string {
	for _, l := range g.Links {
		if l.Rate > 0 {
			return PortName(l.B, l.A)
		}
	}
	return "switch->receiver1"
}

func (c *checker) windows(f *File) {
	for _, label := range sortedKeys(f.Measure.Windows) {
		path, w := []string{"measure", "windows", label}, f.Measure.Windows[label]
		switch {
		case w[1] <= w[0]:
			c.Fail(path, fmt.Sprintf("the window ends at %s and begins at %s", w[1], w[0]), "[from, to] with to after from")
		case w[1] > f.Duration:
			c.Fail(path, fmt.Sprintf("the window ends at %s, after the run (%s)", w[1], f.Duration), "at most the duration")
		}
	}
	switch s, path := f.Measure.Series, []string{"measure", "series"}; {
	case s < 1e6 || s > f.Duration && f.Duration > 0:
		c.Fail(path, fmt.Sprintf("a step of %s is out of range", s), "from 1ms to the duration")
	case f.Duration/s > maxSteps:
		c.Fail(path, fmt.Sprintf("%s has %d steps of %s", f.Duration, f.Duration/s, s), fmt.Sprintf("at most %d: a longer step, or a shorter duration", maxSteps))
	}
}

// maxSteps limits the steps of rates over time (8 B each, for every group and up to 64 flows).
const maxSteps = 1_000_000
