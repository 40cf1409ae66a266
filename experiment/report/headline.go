package report

import (
	"fmt"
	"slices"
	"strings"

	"weir/experiment/result"
)

// Headline returns the verdict in one sentence. It has the effect of the main scheme on the tail of completion times, on throughput and on drops. It compares with the
// first scheme of the document, at the first point of its axes. Then come the numbers of claims confirmed and refuted. It is empty for a document without runs.
func Headline(doc *result.Document) string {
	parts := blocks(doc)
	if len(parts) == 0 {
		return ""
	}
	b := parts[0]
	world := b.cells[0].world
	cells := slices.DeleteFunc(slices.Clone(b.cells), func(c *cell) bool { return c.world != world })
	base, main := cells[0], mainCell(doc, cells)
	where := []string{map[string]string{"sim": "simulator"}[world]}
	if where[0] == "" {
		where[0] = world
	}
	if b.title != "" {
		where = append(where, b.title)
	}
	where = append(where, conditions(doc, main.runs, len(main.runs)))
	changes := effects(doc, base, main)
	if len(changes) == 0 {
		changes = []string{count(len(doc.Runs), "run")}
	}
	text := strings.Join(changes, ", ") + ": " + main.scheme
	if main != base {
		text += " against " + base.scheme
	}
	text += " (" + strings.Join(where, ", ") + ")"
	if len(doc.Claims) > 0 {
		text += "; claims: " + Counts(doc)
	}
	return text + "."
}

// mainCell returns the first cell whose law is not a baseline, else the last.
func mainCell(doc *result.Document, cells []*cell) *cell {
	for _, c := range cells {
		if slices.ContainsFunc(c.runs[0].Laws, func(name string) bool { l, known := doc.Laws.Named(name); return !known || !l.Baseline }) {
			return c
		}
	}
	return cells[len(cells)-1]
}

// mostTails is the number of groups whose tail is in the headline.
const mostTails = 2

// effects returns the main changes in words: the tail of groups with completion times, the sum of the throughput
// of the other groups, and all drops.
func effects(doc *result.Document, base, main *cell) []string {
	var out []string
	var timed, rated []string
	for _, name := range groupNames(doc) {
		if hasRates(doc, name) {
			rated = append(rated, name)
		} else {
			timed = append(timed, name)
		}
	}
	for _, name := range timed[:min(len(timed), mostTails)] {
		if text := arrow(base, main, []string{name, "fct_ms", "p99"}, " ms"); text != "" {
			if len(timed) > 1 {
				text = "of " + name + " " + text
			}
			out = append(out, "p99 "+text)
		}
	}
	if text := percent(base, main, rated); text != "" {
		out = append(out, "throughput "+text)
	}
	if text := arrow(base, main, []string{result.AllPorts, "drops"}, ""); text != "" {
		out = append(out, "drops "+text)
	}
	return out
}

// middle returns the median over a cell's seeds; false: it has none.
func (c *cell) middle(path []string) (float64, bool) {
	values := c.values(path, 1)
	if len(values) == 0 {
		return 0, false
	}
	return median(slices.Sorted(slices.Values(values))), true
}

func arrow(base, main *cell, path []string, unit string) string {
	a, okA := base.middle(path)
	b, okB := main.middle(path)
	switch {
	case !okA || !okB:
		return ""
	case base == main:
		return number(b) + unit
	}
	return number(a) + " -> " + number(b) + unit
}

// percent returns the change of the throughput of groups together, in words; "" if one is not known.
func percent(base, main *cell, groups []string) string {
	a, b := 0.0, 0.0
	for _, name := range groups {
		x, okA := base.middle([]string{name, "throughput_mbps"})
		y, okB := main.middle([]string{name, "throughput_mbps"})
		if !okA || !okB {
			return ""
		}
		a, b = a+x, b+y
	}
	switch {
	case len(groups) == 0:
		return ""
	case base == main || a == 0:
		return number(b) + " Mbit/s"
	}
	return fmt.Sprintf("%+.1f %%", 100*(b/a-1))
}
