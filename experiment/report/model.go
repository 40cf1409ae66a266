// Package report shows results to people: a table for the terminal, figures, and one HTML page.
//
//	model.go    which runs belong together: points on the axes, schemes, seeds
//	columns.go  the columns of a group and of a port, and the format of numbers
//	table.go    the table for the terminal
//	claims.go   claims, unmet and skipped, for the terminal
//	figures.go  which figures are drawn; plot.go, overtime.go: how
//	html.go     the page
package report

import (
	"maps"
	"slices"
	"strings"

	"weir/experiment/result"
)

// cell has the runs that differ only by their seed.
type cell struct {
	world, scheme string
	runs          []*result.Run // in order of seed
}

// block is one point on every axis, and its cells: by scheme, then world.
type block struct {
	title string // "guest_cc=cubic", "" without axes
	axes  map[string]string
	cells []*cell
}

// blocks groups the runs of a document for display. A scheme that does not use an axis was run once for all its
// values, and is shown at each.
func blocks(doc *result.Document) []*block {
	var points []map[string]string
	for _, r := range doc.Runs {
		if !slices.ContainsFunc(points, func(p map[string]string) bool { return maps.Equal(p, r.Axes) }) {
			points = append(points, r.Axes)
		}
	}
	var out []*block
	for _, p := range points {
		if slices.ContainsFunc(points, func(q map[string]string) bool { return len(q) > len(p) && within(p, q) }) {
			continue
		}
		out = append(out, &block{title: pointTitle(p), axes: p, cells: cellsAt(doc, p)})
	}
	return out
}

// within reports whether every axis of p has the same value in q.
func within(p, q map[string]string) bool {
	for axis, value := range p {
		if v, ok := q[axis]; !ok || v != value {
			return false
		}
	}
	return true
}

func cellsAt(doc *result.Document, point map[string]string) []*cell {
	var cells []*cell
	schemes := schemeNames(doc)
	for _, r := range doc.Runs {
		if !within(r.Axes, point) {
			continue
		}
		i := slices.IndexFunc(cells, func(c *cell) bool { return c.world == r.World && c.scheme == r.Scheme })
		if i < 0 {
			i = len(cells)
			cells = append(cells, &cell{world: r.World, scheme: r.Scheme})
		}
		cells[i].runs = append(cells[i].runs, r)
	}
	slices.SortStableFunc(cells, func(a, b *cell) int {
		return slices.Index(schemes, a.scheme) - slices.Index(schemes, b.scheme)
	})
	for _, c := range cells {
		slices.SortStableFunc(c.runs, func(a, b *result.Run) int { return int(a.Seed - b.Seed) })
	}
	return cells
}

func pointTitle(p map[string]string) string {
	var parts []string
	for _, axis := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, axis+"="+p[axis])
	}
	return strings.Join(parts, ", ")
}

// schemeNames lists the schemes in the order in which they were run.
func schemeNames(doc *result.Document) []string {
	var out []string
	for _, r := range doc.Runs {
		if !slices.Contains(out, r.Scheme) {
			out = append(out, r.Scheme)
		}
	}
	return out
}

func worldNames(doc *result.Document) []string {
	var out []string
	for _, r := range doc.Runs {
		if !slices.Contains(out, r.World) {
			out = append(out, r.World)
		}
	}
	return out
}

// label returns a cell's name in its block: with the world only if there are several.
func (c *cell) label(worlds []string) string {
	if len(worlds) > 1 {
		return c.scheme + " " + c.world
	}
	return c.scheme
}

// values returns the values of a metric times a factor, one for each seed that has one.
func (c *cell) values(path []string, times float64) []float64 {
	var out []float64
	for _, r := range c.runs {
		if x, ok := r.Metric(path); ok {
			out = append(out, x*times)
		}
	}
	return out
}

// names collects the keys that any run has, sorted.
func names(doc *result.Document, keys func(*result.Run) []string) []string {
	seen := map[string]bool{}
	for _, r := range doc.Runs {
		for _, k := range keys(r) {
			seen[k] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func groupNames(doc *result.Document) []string {
	return names(doc, func(r *result.Run) []string { return slices.Collect(maps.Keys(r.Groups)) })
}

// portNames lists the named ports; the pseudo-port "all" is not one.
func portNames(doc *result.Document) []string {
	all := names(doc, func(r *result.Run) []string { return slices.Collect(maps.Keys(r.Ports)) })
	return slices.DeleteFunc(all, func(s string) bool { return s == result.AllPorts })
}

func windowNames(doc *result.Document) []string {
	return names(doc, func(r *result.Run) []string { return slices.Collect(maps.Keys(r.Windows)) })
}
