// Package compare puts two results side by side: what was run on both sides, by how much its metrics differ, and how
// sure that is, as far as the seeds can tell.
//
//	cells.go     which runs belong together, and which of A stand against which of B
//	interval.go  the confidence interval of a difference of means
//	flows.go     completion times of single flows, of flows.parquet
//	file.go      where the experiment files differ
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

// Options chooses what stands against what. The first of two is A's, the second B's.
type Options struct {
	Schemes    [2]string            // "": all, each against the same
	Worlds     [2]string            // "": all, each against the same
	At         map[string][2]string // by axis: the value that is compared
	Metrics    []string             // paths, names joined by a dot; none: the main metrics
	LawMetrics []law.Metric         // of the build: they say which of the laws' are main ones
	// Confidence of the intervals, above 0 and below 1.
	Confidence float64
}

// Side is one of the two results.
type Side struct {
	Name  string
	Doc   *result.Document
	Flows Flows // nil: not known
}

// Comparison is B held against A. Values are means over seeds, in the units of the document.
type Comparison struct {
	A          Input        `json:"a"`
	B          Input        `json:"b"`
	Confidence float64      `json:"confidence"`
	Files      []FileChange `json:"files_differ"`
	Pairs      []*Pair      `json:"pairs"`
	OnlyA      []string     `json:"only_a"` // cells that stand against nothing
	OnlyB      []string     `json:"only_b"`
	// Intervals counts those of metrics that are not the same with every seed, Significant those that leave 0 out.
	// Were there no difference but chance, 1 - Confidence of them would.
	Intervals   int `json:"intervals"`
	Significant int `json:"significant"`
}

// Input says what one side is.
type Input struct {
	Name       string   `json:"name"`
	Experiment string   `json:"experiment"`
	Weir       []string `json:"weir"`    // versions that made its runs
	Kernels    []string `json:"kernels"` // that they were made on
	Worlds     []string `json:"worlds"`
	Schemes    []string `json:"schemes"`
	Runs       int      `json:"runs"`
	Partial    int      `json:"partial"` // of the runs: cut short, and left out here
	HasFlows   bool     `json:"has_flows"`
}

// Pair is one cell of A against one of B.
type Pair struct {
	A CellName `json:"a"`
	B CellName `json:"b"`
	// SeedsA and SeedsB are compared, of metrics that every run has; By says how.
	SeedsA []int64  `json:"seeds_a"`
	SeedsB []int64  `json:"seeds_b"`
	By     string   `json:"interval,omitempty"`
	OnlyA  []string `json:"only_a"` // metrics that B lacks
	OnlyB  []string `json:"only_b"`
	// Metrics that both have.
	Metrics       []Difference   `json:"metrics"`
	Distributions []Distribution `json:"distributions"`
}

// CellName says which runs a cell holds: those that differ by their seed alone.
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

// Compare holds b against a. Errors say what was asked for that is not there, and what is.
func Compare(a, b Side, o Options) (*Comparison, error) {
	if !(o.Confidence > 0 && o.Confidence < 1) {
		return nil, fmt.Errorf("a confidence of %v; it lies between 0 and 1", o.Confidence)
	}
	out := &Comparison{A: input(a), B: input(b), Confidence: o.Confidence, Pairs: []*Pair{}}
	for side, in := range []Input{out.A, out.B} {
		if in.Runs == 0 {
			return nil, fmt.Errorf("%s holds no runs", in.Name)
		}
		if in.Runs == in.Partial {
			return nil, fmt.Errorf("%s holds no run that was finished", in.Name)
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

// sound says what of the options a side does not have.
func (o Options) sound(side int, in Input) error {
	if s := o.Schemes[side]; s != "" && !slices.Contains(in.Schemes, s) {
		return fmt.Errorf("%s has no scheme %q; it has %s", in.Name, s, strings.Join(in.Schemes, ", "))
	}
	if w := o.Worlds[side]; w != "" && !slices.Contains(in.Worlds, w) {
		return fmt.Errorf("%s has no runs in world %q; it has %s", in.Name, w, strings.Join(in.Worlds, ", "))
	}
	return nil
}

// sum counts intervals, and refuses a metric that was asked for and is nowhere.
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
			return fmt.Errorf("no run that is compared has the metric %s; write it as in a claim, without the scheme: mice.fct_ms.p99", m)
		}
	}
	if len(found) == 0 {
		return errors.New("the runs have no metric in common: their groups of traffic and ports have other names")
	}
	return nil
}

// Beyond lists the differences that are significant and larger than the share of A's value, in words.
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

func input(s Side) Input {
	in := Input{Name: s.Name, Experiment: s.Doc.Experiment, Runs: len(s.Doc.Runs), HasFlows: s.Flows != nil}
	add := func(to *[]string, v string) {
		if !slices.Contains(*to, v) {
			*to = append(*to, v)
		}
	}
	for _, r := range s.Doc.Runs {
		version, kernel := s.Doc.Weir, s.Doc.Host.Kernel
		if r.By != nil {
			version, kernel = r.By.Weir, r.By.Kernel
		}
		add(&in.Weir, version)
		add(&in.Kernels, kernel)
		if r.Partial {
			in.Partial++
			continue
		}
		add(&in.Worlds, r.World)
		add(&in.Schemes, r.Scheme)
	}
	return in
}

// comparePair holds every metric of one cell against the other's.
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

// metricsOf gives the paths that are compared.
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
