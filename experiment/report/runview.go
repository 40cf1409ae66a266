package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/experiment/result"
)

// runView is one run in full.
type runView struct {
	Scheme, Where string
	Partial       bool
	Facts         []fact
	Parts         []partView
}

// partView is a group or port, in a window or the whole run.
type partView struct {
	Title         string
	Scalars       []fact
	Distributions []distributionView
}

type distributionView struct {
	Name   string
	Values []string
}

// statistics are the columns of a distribution.
var statistics = []string{"n", "mean", "sd", "min", "p10", "p25", "p50", "p75", "p90", "p99", "max"}

func newRunView(r *result.Run) runView {
	v := runView{Scheme: r.Scheme, Partial: r.Partial}
	v.Where = r.World
	if len(r.Axes) > 0 {
		v.Where += ", " + pointTitle(r.Axes)
	}
	v.Where += fmt.Sprintf(", seed %d", r.Seed)
	v.Facts = []fact{{"Laws", strings.Join(r.Laws, ", ")}}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		if _, isAxis := r.Axes[name]; !isAxis {
			v.Facts = append(v.Facts, fact{name, plain(r.Params[name])})
		}
	}
	if r.RTTus != nil {
		v.Facts = append(v.Facts, fact{"Idle RTT", number(*r.RTTus) + " us"})
	}
	if r.Scale != 1 {
		v.Facts = append(v.Facts, fact{"Scale", number(r.Scale)})
	}
	if r.Busy != nil {
		v.Facts = append(v.Facts, fact{"Processors", fmt.Sprintf("busy %.0f %% of the time, %.0f %% in the busiest second", 100*r.Busy.Mean, 100*r.Busy.Max)})
	}
	if r.By != nil {
		v.Facts = append(v.Facts, fact{"Made", fmt.Sprintf("%s, by weir %s on Linux %s, in %.0f s",
			r.By.Ended.UTC().Format("2006-01-02 15:04 MST"), r.By.Weir, r.By.Kernel, r.By.TookS)})
	}
	for _, text := range r.UnmetTexts() {
		v.Facts = append(v.Facts, fact{"Not as asked for", text})
	}
	v.Parts = parts(r, nil, r.Groups, r.Ports)
	for _, name := range slices.Sorted(maps.Keys(r.Windows)) {
		w := r.Windows[name]
		v.Parts = append(v.Parts, parts(r, []string{name}, w.Groups, w.Ports)...)
	}
	return v
}

// plain returns a parameter as its JSON, text without quotes.
func plain(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func parts(r *result.Run, window []string, groups map[string]*result.Group, ports map[string]*result.PortResult) []partView {
	var out []partView
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		s := subject{path: append(slices.Clone(window), name)}
		p := partView{Title: s.title()}
		p.fill(r, s.path, result.GroupMetrics(), result.GroupDistributions())
		if d := groups[name].Deadlines; d != nil && len(d.MissedIDs) > 0 {
			p.Scalars = append(p.Scalars, fact{"missed ids", strings.Trim(fmt.Sprint(d.MissedIDs), "[]")})
		}
		out = append(out, p)
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		s := subject{path: append(slices.Clone(window), name)}
		p := partView{Title: "port " + s.title()}
		if name == result.AllPorts {
			p.Title = s.title()
		}
		metrics, distributions := ports[name].Metrics()
		p.fill(r, s.path, metrics, distributions)
		out = append(out, p)
	}
	return out
}

// fill adds every metric that the run has: numbers, and distributions as rows.
func (p *partView) fill(r *result.Run, path, metrics, distributions []string) {
	get := func(metric string) (float64, bool) {
		return r.Metric(append(slices.Clone(path), strings.Split(metric, ".")...))
	}
	for _, m := range metrics {
		inside := slices.ContainsFunc(distributions, func(d string) bool { return strings.HasPrefix(m, d+".") })
		if v, ok := get(m); ok && !inside {
			p.Scalars = append(p.Scalars, fact{m, number(v)})
		}
	}
	for _, d := range distributions {
		row := distributionView{Name: d}
		for _, s := range statistics {
			if v, ok := get(d + "." + s); ok {
				row.Values = append(row.Values, number(v))
			}
		}
		if len(row.Values) > 0 {
			p.Distributions = append(p.Distributions, row)
		}
	}
}
