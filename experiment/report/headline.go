package report

import (
	"fmt"
	"slices"
	"strings"

	"weir/experiment/result"
)

// baselines are laws of every switch, which others are held against.
var baselines = []string{"droptail", "red", "ecn", "static"}

// Headline is the verdict in one sentence: what the main scheme does to the tail of completion times, to throughput and to
// drops, beside the first scheme of the document, at the first point of its axes; and how the claims came out. It is empty
// of a document without runs.
func Headline(doc *result.Document) string {
	parts := blocks(doc)
	if len(parts) == 0 {
		return ""
	}
	b := parts[0]
	world := b.cells[0].world
	cells := slices.DeleteFunc(slices.Clone(b.cells), func(c *cell) bool { return c.world != world })
	base, main := cells[0], mainCell(cells)
	where := []string{map[string]string{"sim": "simulator"}[world]}
	if where[0] == "" {
		where[0] = world
	}
	if b.title != "" {
		where = append(where, b.title)
	}
	where = append(where, conditions(doc, main.runs, len(main.runs)))
	said := effects(doc, base, main)
	if len(said) == 0 {
		said = []string{count(len(doc.Runs), "run")}
	}
	text := strings.Join(said, ", ") + ": " + main.scheme
	if main != base {
		text += " against " + base.scheme
	}
	text += " (" + strings.Join(where, ", ") + ")"
	if len(doc.Claims) > 0 {
		text += "; claims: " + Counts(doc)
	}
	return text + "."
}

// mainCell is the first whose law is none of the baselines, else the last.
func mainCell(cells []*cell) *cell {
	for _, c := range cells {
		if slices.ContainsFunc(c.runs[0].Laws, func(law string) bool { return !slices.Contains(baselines, law) }) {
			return c
		}
	}
	return cells[len(cells)-1]
}

// effects words the change of what matters: of each group with completion times the tail, of one without the throughput,
// and all drops.
func effects(doc *result.Document, base, main *cell) []string {
	var out []string
	names := groupNames(doc)
	several := len(names) > 2
	prefix := func(name string) string {
		if several {
			return name + " "
		}
		return ""
	}
	for _, name := range names[:min(len(names), 3)] {
		if !hasRates(doc, name) {
			if text := arrow(base, main, []string{name, "fct_ms", "p99"}, " ms"); text != "" {
				out = append(out, prefix(name)+"p99 "+text)
			}
		}
	}
	for _, name := range names[:min(len(names), 3)] {
		if hasRates(doc, name) {
			if text := percent(base, main, []string{name, "throughput_mbps"}); text != "" {
				out = append(out, prefix(name)+"goodput "+text)
			}
		}
	}
	if text := arrow(base, main, []string{result.AllPorts, "drops"}, ""); text != "" {
		out = append(out, "drops "+text)
	}
	return out
}

// middle is the median over a cell's seeds; false: it has none.
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

func percent(base, main *cell, path []string) string {
	a, okA := base.middle(path)
	b, okB := main.middle(path)
	switch {
	case !okA || !okB:
		return ""
	case base == main || a == 0:
		return number(b) + " Mbit/s"
	}
	return fmt.Sprintf("%+.1f %%", 100*(b/a-1))
}
