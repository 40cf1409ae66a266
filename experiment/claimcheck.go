package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/config"
	"weir/experiment/claim"
	"weir/experiment/result"
)

// claims checks the syntax of a file's claims, and that every scheme, axis, value, window, group, port and metric
// in them exists. It checks the file's figures in the same way.
func (c *checker) claims(f *File, axes []axis) {
	for i, s := range f.Claims {
		path := []string{"claims", strconv.Itoa(i)}
		if s.Paper != "" && s.Ours != "" {
			c.Fail(path, "paper and ours are both given", "a claim is the paper's or ours")
		}
		var figures []string
		for i := range f.Figures {
			figures = append(figures, f.Figures[i].Name)
		}
		if s.Figure != "" && !slices.Contains(figures, s.Figure) {
			c.Fail(append(path, "figure"), fmt.Sprintf("there is no figure %q", s.Figure), config.OneOf(s.Figure, figures))
		}
		parsed, err := claim.Parse(s.Claim)
		if err != nil {
			c.Fail(path, err.Error(), "a claim is LEFT op RIGHT over SCHEME[AXIS=VALUE].WINDOW.GROUP.METRIC")
			continue
		}
		for _, p := range parsed.Paths() {
			c.claimPath(path, f, axes, p)
		}
	}
	c.figures(f, axes)
}

func (c *checker) claimPath(path []string, f *File, axes []axis, p *claim.Path) {
	var schemes []string
	for _, s := range f.Schemes {
		schemes = append(schemes, s.Name)
	}
	if !slices.Contains(schemes, p.Scheme) {
		c.Fail(path, fmt.Sprintf("there is no scheme %q", p.Scheme), config.OneOf(p.Scheme, schemes))
		return
	}
	for _, b := range p.At {
		c.claimAxis(path, axes, b.Axis, &b.Value)
	}
	if p.Over != "" {
		c.claimAxis(path, axes, p.Over, nil)
	}
	c.metricPath(path, f, p.Names, p.Distribution)
}

// metricPath checks the names after the scheme: [WINDOW.]GROUP-OR-PORT.METRIC.
func (c *checker) metricPath(path []string, f *File, names []string, distribution bool) {
	if _, window := f.Measure.Windows[names[0]]; window && len(names) > 1 {
		names = names[1:]
	}
	groups, ports := f.groups(), append(sortedKeys(f.Measure.Ports), result.AllPorts)
	var metrics []string
	switch {
	case slices.Contains(groups, names[0]):
		metrics = result.GroupMetrics()
		if distribution {
			metrics = result.GroupDistributions()
		}
	case names[0] == result.AllPorts:
		metrics = result.AllPortsMetrics(c.laws.Specs().Metrics())
	case slices.Contains(ports, names[0]):
		metrics = result.PortMetrics(c.laws.Specs().Metrics())
		if distribution {
			metrics = result.PortDistributions(c.laws.Specs().Metrics())
		}
	default:
		c.Fail(path, fmt.Sprintf("there is no window, group or port %q", names[0]),
			config.OneOf(names[0], slices.Concat(sortedKeys(f.Measure.Windows), groups, ports)))
		return
	}
	if metric := strings.Join(result.PresentPath(names)[1:], "."); !slices.Contains(metrics, metric) {
		c.Fail(path, fmt.Sprintf("%s has no metric %q", names[0], metric), config.OneOf(metric, siblings(metric, metrics)))
	}
}

// figures checks that every figure draws something, and that every metric it draws exists.
func (c *checker) figures(f *File, axes []axis) {
	names := map[string]bool{}
	for i := range f.Figures {
		fig := &f.Figures[i]
		path := []string{"figures", strconv.Itoa(i)}
		kinds := 0
		for _, given := range []bool{len(fig.Bars) > 0, fig.CDF != "", len(fig.Line) > 0, len(fig.Rates) > 0, fig.Queue != ""} {
			if given {
				kinds++
			}
		}
		if kinds != 1 {
			c.Fail(path, "a figure needs one of bars, cdf, line, rates and queue",
				"bars: a list of metrics; line: the same, over an axis; cdf: a distribution; rates: groups; queue: a port")
		}
		if names[fig.Name] {
			c.Fail(path, fmt.Sprintf("the name %q is taken", fig.Name), "each figure has a name of its own")
		}
		names[fig.Name] = true
		for j, text := range fig.Bars {
			c.metricPath(append(slices.Clone(path), "bars", strconv.Itoa(j)), f, strings.Split(text, "."), false)
		}
		if fig.CDF != "" {
			c.metricPath(append(slices.Clone(path), "cdf"), f, strings.Split(fig.CDF, "."), true)
		}
		c.lineFigure(path, f, fig, axes)
		for j, group := range fig.Rates {
			if groups := f.groups(); !slices.Contains(groups, group) {
				c.Fail(append(slices.Clone(path), "rates", strconv.Itoa(j)), fmt.Sprintf("there is no group %q", group), config.OneOf(group, groups))
			}
		}
		if ports := sortedKeys(f.Measure.Ports); fig.Queue != "" && !slices.Contains(ports, fig.Queue) {
			c.Fail(append(slices.Clone(path), "queue"), fmt.Sprintf("measure names no port %q", fig.Queue), config.OneOf(fig.Queue, ports))
		}
	}
}

// lineFigure checks the metrics and the axis of a line figure.
func (c *checker) lineFigure(path []string, f *File, fig *Figure, axes []axis) {
	for j, text := range fig.Line {
		c.metricPath(append(slices.Clone(path), "line", strconv.Itoa(j)), f, strings.Split(text, "."), false)
	}
	switch {
	case len(fig.Line) > 0 && fig.Over == "":
		c.Fail(append(slices.Clone(path), "line"), "over is missing", "over: the axis on x")
	case fig.Over != "" && len(fig.Line) == 0:
		c.Fail(append(slices.Clone(path), "over"), "over without line", "line: the metrics that are drawn over it")
	case fig.Over != "":
		c.claimAxis(append(slices.Clone(path), "over"), axes, fig.Over, nil)
	}
}

// siblings returns the metrics that have the same first part as the one that was written. If none has, it returns
// the first parts of all metrics: there are more than a hundred metrics.
func siblings(metric string, all []string) []string {
	head, _, _ := strings.Cut(metric, ".")
	var same, heads []string
	for _, m := range all {
		h, _, more := strings.Cut(m, ".")
		if h == head {
			same = append(same, m)
		}
		if more {
			h += ".*"
		}
		if !slices.Contains(heads, h) {
			heads = append(heads, h)
		}
	}
	if len(same) > 0 {
		return same
	}
	return heads
}

// claimAxis checks an axis and, if given, one of its values.
func (c *checker) claimAxis(path []string, axes []axis, name string, value *string) {
	var names, values []string
	for _, a := range axes {
		names = append(names, a.name)
		if a.name == name {
			for _, v := range a.values {
				values = append(values, v.name)
			}
		}
	}
	switch {
	case !slices.Contains(names, name):
		c.Fail(path, fmt.Sprintf("there is no axis %q", name), config.OneOf(name, names))
	case value != nil && !slices.ContainsFunc(values, func(v string) bool { return claim.SameValue(v, *value) }):
		c.Fail(path, fmt.Sprintf("axis %s has no value %q", name, *value), config.OneOf(*value, values))
	}
}
