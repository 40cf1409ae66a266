package reproduction

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/experiment/result"
)

// comparison is a page that compares two kinds of runs of the same experiments.
type comparison struct {
	path, head string
	dirs       []kindOf
}

// kindOf is a directory of summaries. Its runs are shown as name, or as their world where name is "".
type kindOf struct{ dir, name string }

// comparisons returns the pages: the lab with the simulator at the lab's starts and lines, and bridges with Open vSwitches.
func comparisons() []comparison {
	return []comparison{
		{tablesDir + "/lab-and-simulator.md", `# The lab and the simulator: tables

Made by ` + "`make reproduction`" + ` from the summaries in [results/lab-sim](../../results/lab-sim); do not edit. What the
figures mean: [validation.md](../validation.md#against-linux). Each value is the median over the seeds.
`, []kindOf{{"lab-sim", ""}}},
		{tablesDir + "/bridges-and-ovs.md", `# Bridges and Open vSwitches in the lab: tables

Made by ` + "`make reproduction`" + ` from the summaries in [results/lab](../../results/lab) and
[results/lab-ovs](../../results/lab-ovs); do not edit. The commands stand in [REPRODUCTION.md](../REPRODUCTION.md#q5). What the
figures mean: [lab.md](../lab.md#open-vswitch).
`, []kindOf{{"lab", "bridge"}, {"lab-ovs", "Open vSwitch"}}},
	}
}

// comparedFigure is a column: the metric at a path, times a factor.
type comparedFigure struct {
	head  string
	times float64
	path  []string
}

func comparedFigures() []comparedFigure {
	return []comparedFigure{
		{"used, %", 100, []string{"bottleneck", "utilisation"}},
		{"elephants, Mbit/s", 1, []string{"elephants", "throughput_mbps"}},
		{"Jain", 1, []string{"elephants", "jain"}},
		{"queue, KB", 1e-3, []string{"bottleneck", "queue_bytes", "mean"}},
		{"drops", 1, []string{result.AllPorts, "drops"}},
		{"timeouts of mice", 1, []string{"mice", "timeouts"}},
		{"timeouts of elephants", 1, []string{"elephants", "timeouts"}},
		{"mice: mean, ms", 1, []string{"mice", "fct_ms", "mean"}},
		{"mice: p50, ms", 1, []string{"mice", "fct_ms", "p50"}},
		{"mice: p99, ms", 1, []string{"mice", "fct_ms", "p99"}},
	}
}

// page makes the page from the summaries below the root of the repository. An experiment that lacks a kind is left
// out.
func (p *comparison) page(root string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(root, resultsDir, p.dirs[0].dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("look for summaries to compare: %w", err)
	}
	var b bytes.Buffer
	b.WriteString(p.head)
	for _, path := range paths {
		if !p.complete(root, filepath.Base(path)) {
			continue
		}
		var both *result.Document
		for _, kind := range p.dirs {
			doc, err := readSummary(filepath.Join(root, resultsDir, kind.dir, filepath.Base(path)))
			if err != nil {
				return nil, err
			}
			for _, r := range doc.Runs {
				if kind.name != "" {
					r.World = kind.name
				}
			}
			if both == nil {
				both = doc
			} else {
				both.Runs = append(both.Runs, doc.Runs...)
			}
		}
		writeComparison(&b, both)
	}
	return b.Bytes(), nil
}

// complete reports whether there is a summary of each kind.
func (p *comparison) complete(root, name string) bool {
	return !slices.ContainsFunc(p.dirs, func(kind kindOf) bool {
		_, err := os.Stat(filepath.Join(root, resultsDir, kind.dir, name))
		return err != nil
	})
}

// writeComparison writes the table of one experiment: a row for each point, scheme and world, in the order of the runs.
func writeComparison(b *bytes.Buffer, doc *result.Document) {
	type key struct{ point, scheme, world string }
	var keys []key
	runs := map[key][]*result.Run{}
	seeds := map[int64]bool{}
	for _, r := range doc.Runs {
		k := key{where(&result.Claim{For: r.Axes}), r.Scheme, r.World}
		if runs[k] == nil {
			keys = append(keys, k)
		}
		runs[k] = append(runs[k], r)
		seeds[r.Seed] = true
	}
	slices.SortStableFunc(keys, func(x, y key) int {
		if x.point != y.point {
			return strings.Compare(x.point, y.point)
		}
		if x.scheme != y.scheme {
			return strings.Compare(x.scheme, y.scheme)
		}
		return strings.Compare(x.world, y.world)
	})
	noun := "seeds"
	if len(seeds) == 1 {
		noun = "seed"
	}
	fmt.Fprintf(b, "\n## %s\n\n%d %s, weir %s, time scale %g.\n\n| guests | scheme | |", doc.Experiment, len(seeds), noun, strings.Join(doc.Versions(), " and "), doc.Runs[0].Scale)
	var shown []comparedFigure
	for _, f := range comparedFigures() {
		if _, ok := doc.Runs[0].Metric(f.path); ok {
			shown = append(shown, f)
			b.WriteString(" " + f.head + " |")
		}
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---:|", len(shown)) + "\n")
	for _, k := range keys {
		fmt.Fprintf(b, "| %s | %s | %s |", k.point, k.scheme, k.world)
		for _, f := range shown {
			b.WriteString(" " + median(runs[k], f) + " |")
		}
		b.WriteString("\n")
	}
}

// median words a figure's median over runs to three digits, or "" where it was not measured.
func median(runs []*result.Run, f comparedFigure) string {
	var values []float64
	for _, r := range runs {
		if v, ok := r.Metric(f.path); ok {
			values = append(values, v*f.times)
		}
	}
	if len(values) == 0 {
		return ""
	}
	slices.Sort(values)
	v := result.Quantile(values, 0.5)
	if v >= 99.95 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
