// Package compare compares two results: the runs that both sides have, the differences of their metrics, and
// confidence intervals over the seeds.
//
//	cells.go     which runs belong together, and which cells of A and B are compared
//	interval.go  the confidence interval of a difference of means
//	flows.go     completion times of single flows, from flows.parquet
//	file.go      differences between the experiment files
package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"weir/experiment/result"
	"weir/law"
)

// Options selects what is compared. The first element of a pair is A's, the second B's.
type Options struct {
	Schemes    [2]string            // "": all, each with the same one
	Worlds     [2]string            // "": all, each with the same one
	At         map[string][2]string // by axis: the values that are compared
	Metrics    []string             // paths, names joined by a dot; none: the main metrics
	LawMetrics []law.Metric         // of the build, with those of the laws that are main metrics
	// Confidence of the intervals, above 0 and below 1.
	Confidence float64
}

// Side is one of the two results.
type Side struct {
	Name  string
	Doc   *result.Document
	Flows Flows // nil: not known
}

// Comparison is the comparison of B with A. Values are means over seeds, in the units of the document.
type Comparison struct {
	A          Input        `json:"a"`
	B          Input        `json:"b"`
	Confidence float64      `json:"confidence"`
	Files      []FileChange `json:"files_differ"`
	Pairs      []*Pair      `json:"pairs"`
	OnlyA      []string     `json:"only_a"` // cells without a partner
	OnlyB      []string     `json:"only_b"`
	// Intervals counts the metrics with an interval that differ with some seed; Significant counts those whose
	// interval does not include 0. By chance alone, a share of 1 - Confidence would be significant.
	Intervals   int `json:"intervals"`
	Significant int `json:"significant"`
}

// Input describes one side.
type Input struct {
	Name       string   `json:"name"`
	Experiment string   `json:"experiment"`
	Weir       []string `json:"weir"`    // versions that made its runs
	Kernels    []string `json:"kernels"` // of the machines that made them
	Worlds     []string `json:"worlds"`
	Schemes    []string `json:"schemes"`
	Runs       int      `json:"runs"`
	Partial    int      `json:"partial"` // runs that were cut short; they are not compared
	Fatal      []string `json:"fatal"`   // unmet settings of chosen runs; metrics that they are fatal to are not compared
	HasFlows   bool     `json:"has_flows"`
}

// Pair is one cell of A compared with one of B.
type Pair struct {
	A CellName `json:"a"`
	B CellName `json:"b"`
	// SeedsA and SeedsB are the seeds compared, for metrics that every run has; By is the kind of interval.
	SeedsA []int64  `json:"seeds_a"`
	SeedsB []int64  `json:"seeds_b"`
	By     string   `json:"interval,omitempty"`
	OnlyA  []string `json:"only_a"` // metrics that B lacks
	OnlyB  []string `json:"only_b"`
	// Metrics are those that both have.
	Metrics       []Difference   `json:"metrics"`
	Distributions []Distribution `json:"distributions"`
}

// CellName describes the runs of a cell, which differ only by their seed.
type CellName struct {
	World  string            `json:"world"`
	Scheme string            `json:"scheme"`
	Axes   map[string]string `json:"axes"`
	Seeds  []int64           `json:"seeds"`
}

func (c CellName) String() string {
	text := c.Scheme + " in " + c.World
	if axes := result.AxesText(c.Axes); axes != "" {
		text += ", " + strings.ReplaceAll(axes, ",", ", ")
	}
	return text
}

// Compare compares b with a. An error names what was asked for but does not exist, and lists what does.
func Compare(a, b Side, o Options) (*Comparison, error) {
	if !(o.Confidence > 0 && o.Confidence < 1) {
		return nil, fmt.Errorf("confidence is %v; it must be between 0 and 1", o.Confidence)
	}
	out := &Comparison{A: input(a, 0, o), B: input(b, 1, o), Confidence: o.Confidence, Pairs: []*Pair{}}
	for side, in := range []Input{out.A, out.B} {
		if in.Runs == 0 {
			return nil, fmt.Errorf("%s has no runs", in.Name)
		}
		if in.Runs == in.Partial {
			return nil, fmt.Errorf("%s has no finished run", in.Name)
		}
		if err := o.sound(side, in); err != nil {
			return nil, err
		}
	}
	if a.Doc != b.Doc {
		out.Files = fileChanges(a.Doc.File, b.Doc.File)
	}
	m, err := match(a, b, o)
	if err != nil {
		return nil, err
	}
	out.OnlyA, out.OnlyB = m.onlyA, m.onlyB
	for _, p := range m.pairs {
		pair := comparePair(p[0], p[1], o)
		pair.Distributions = distributions(p[0], p[1], a.Flows, b.Flows)
		out.Pairs = append(out.Pairs, pair)
	}
	return out, out.sum(o)
}

// sound checks that a side has the schemes and worlds of the options.
func (o Options) sound(side int, in Input) error {
	if s := o.Schemes[side]; s != "" && !slices.Contains(in.Schemes, s) {
		return fmt.Errorf("%s has no scheme %q; it has %s", in.Name, s, strings.Join(in.Schemes, ", "))
	}
	if w := o.Worlds[side]; w != "" && !slices.Contains(in.Worlds, w) {
		return fmt.Errorf("%s has no runs in world %q; it has %s", in.Name, w, strings.Join(in.Worlds, ", "))
	}
	return nil
}

// sum counts intervals, and returns an error if a metric that was asked for does not exist.
func (c *Comparison) sum(o Options) error {
	found := map[string]bool{}
	for _, p := range c.Pairs {
		for _, d := range p.Metrics {
			found[d.Metric] = true
			if d.Low != nil && !d.Same() {
				c.Intervals++
			}
			if d.Significant {
				c.Significant++
			}
		}
		for _, m := range slices.Concat(p.OnlyA, p.OnlyB) {
			found[m] = true
		}
	}
	for _, m := range o.Metrics {
		if !found[m] {
			if fatal := slices.Concat(c.A.Fatal, c.B.Fatal); len(fatal) > 0 {
				return fmt.Errorf("no run has the metric %s, or it is not compared: %s", m, some(fatal))
			}
			return fmt.Errorf("no compared run has the metric %s; write it as in a claim, without the scheme: mice.fct_ms.p99", m)
		}
	}
	if len(found) == 0 {
		if fatal := slices.Concat(c.A.Fatal, c.B.Fatal); len(fatal) > 0 {
			return fmt.Errorf("no metric is compared: %s", some(fatal))
		}
		return errors.New("the runs have no metric in common: their groups of traffic and ports have different names")
	}
	return nil
}

// HasInterval reports whether a metric has an interval. Without one, no difference is significant.
func (c *Comparison) HasInterval() bool {
	return slices.ContainsFunc(c.Pairs, func(p *Pair) bool {
		return slices.ContainsFunc(p.Metrics, func(d Difference) bool { return d.Low != nil })
	})
}

// Beyond lists, in words, the differences that are significant and larger than the share of A's value.
func (c *Comparison) Beyond(share float64) []string {
	var out []string
	for _, p := range c.Pairs {
		for _, d := range p.Metrics {
			if d.Significant && math.Abs(d.Difference) > share*math.Abs(d.A) {
				out = append(out, fmt.Sprintf("%s: %s", p.B, d.Metric))
			}
		}
	}
	return out
}

// Missing lists, in words, where a difference could not be found. These are cells of A without a partner, and metrics that only A has
// although scheme and world are the same. Of named metrics they are also those that one side lacks, or that have no interval.
func (c *Comparison) Missing(named []string) []string {
	var out []string
	for _, cell := range c.OnlyA {
		out = append(out, cell+" is only in A")
	}
	for _, p := range c.Pairs {
		add := func(metric, why string) { out = append(out, fmt.Sprintf("%s: %s %s", p.B, metric, why)) }
		for _, m := range p.OnlyA {
			if len(named) > 0 || p.A.Scheme == p.B.Scheme && p.A.World == p.B.World {
				add(m, "is only in A")
			}
		}
		if len(named) == 0 {
			continue
		}
		for _, m := range p.OnlyB {
			add(m, "is only in B")
		}
		for _, d := range p.Metrics {
			if d.Low == nil {
				add(d.Metric, "has no interval")
			}
		}
	}
	return out
}

func input(s Side, side int, o Options) Input {
	in := Input{Fatal: []string{}, Name: s.Name, Experiment: s.Doc.Experiment, Runs: len(s.Doc.Runs), HasFlows: s.Flows != nil, Weir: s.Doc.Versions()}
	add := func(to *[]string, v string) {
		if !slices.Contains(*to, v) {
			*to = append(*to, v)
		}
	}
	for _, r := range s.Doc.Runs {
		kernel := s.Doc.Host.Kernel
		if r.By != nil {
			kernel = r.By.Kernel
		}
		add(&in.Kernels, kernel)
		if r.Partial {
			in.Partial++
			continue
		}
		add(&in.Worlds, r.World)
		add(&in.Schemes, r.Scheme)
		for _, u := range r.Unmet {
			if u.Severity == result.Fatal && o.wants(side, r) {
				add(&in.Fatal, u.Text)
			}
		}
	}
	return in
}

// comparePair compares every metric of one cell with the other's.
func comparePair(a, b *cell, o Options) *Pair {
	p := &Pair{A: a.name(), B: b.name()}
	p.SeedsA, p.SeedsB, p.By = chosen(a.seeds(), b.seeds())
	p.OnlyA, p.OnlyB, p.Metrics = []string{}, []string{}, []Difference{}
	for _, path := range metricsOf(slices.Concat(a.runs, b.runs), o) {
		x, y := a.values(path), b.values(path)
		name := strings.Join(path, ".")
		switch {
		case len(x) > 0 && len(y) > 0:
			p.Metrics = append(p.Metrics, difference(name, x, y, o.Confidence))
		case len(x) > 0:
			p.OnlyA = append(p.OnlyA, name)
		case len(y) > 0:
			p.OnlyB = append(p.OnlyB, name)
		}
	}
	return p
}

// metricsOf returns the paths that are compared.
func metricsOf(runs []*result.Run, o Options) [][]string {
	if len(o.Metrics) == 0 {
		return result.MainMetrics(runs, o.LawMetrics)
	}
	var out [][]string
	for _, m := range o.Metrics {
		out = append(out, strings.Split(m, "."))
	}
	return out
}
