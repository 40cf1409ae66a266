package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
)

// linePicture draws metrics over an axis: a curve for each metric, scheme and point on the other axes. A scheme
// that does not use the axis is a horizontal line.
func linePicture(doc *result.Document, a *asked, p *picture, style func(*cell) look) {
	values := axisValues(doc, a.Over)
	if len(values) == 0 {
		return
	}
	at, numeric := placesOf(values)
	p.x = axis{label: a.Over, min: at[0], max: at[len(at)-1]}
	if _, unit, ok := quantity(values[0]); ok && unit != "" {
		p.x.label += " (" + unit + ")"
	}
	if !numeric {
		p.names = values
	}
	low, high := math.Inf(1), 0.0
	for _, path := range a.Line {
		for _, row := range lineRows(doc, a.Over, style) {
			c := curve{label: row.label, look: row.look, markers: true}
			if len(a.Line) > 1 {
				c.label += ", " + barName(path, a.Line)
				c.look.dash = len(p.curves) % len(dashes)
			}
			var upper plotter.XYs
			for i, v := range values {
				y := slices.Sorted(slices.Values(row.at(v).values(strings.Split(path, "."), 1)))
				if len(y) == 0 {
					continue
				}
				c.line = append(c.line, plotter.XY{X: at[i], Y: median(y)})
				c.band = append(c.band, plotter.XY{X: at[i], Y: y[0]})
				upper = append(upper, plotter.XY{X: at[i], Y: y[len(y)-1]})
				low, high = min(low, y[0]), max(high, y[len(y)-1])
			}
			slices.Reverse(upper)
			if c.band = append(c.band, upper...); len(c.line) > 0 {
				p.curves = append(p.curves, c)
			}
		}
	}
	p.y = axis{label: unit(a.Line[0]), max: roundUp(high)}
	if a.Log && low < high {
		p.y.fit(low, high)
		if !p.y.log {
			p.y.min = 0
		}
	}
}

// axisValues lists the values of an axis: in ascending order if they are numbers, else in the order of the runs.
func axisValues(doc *result.Document, name string) []string {
	var out []string
	for _, r := range doc.Runs {
		if v, ok := r.Axes[name]; ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	if _, numeric := placesOf(out); numeric {
		slices.SortStableFunc(out, func(a, b string) int {
			x, _, _ := quantity(a)
			y, _, _ := quantity(b)
			return cmp.Compare(x, y)
		})
	}
	return out
}

// placesOf returns the positions of the values on an axis: their numbers if these have one unit, else 0, 1, 2 ...
func placesOf(values []string) (at []float64, numeric bool) {
	for i, text := range values {
		v, u, ok := quantity(text)
		_, first, _ := quantity(values[0])
		if !ok || u != first {
			at = nil
			for k := range values {
				at = append(at, float64(k))
			}
			return at, false
		}
		if at = append(at, v); i == 0 {
			numeric = true
		}
	}
	return at, numeric
}

// lineRow has the runs of one curve: a scheme in a world at one point on all axes but one.
type lineRow struct {
	label string
	look  look
	runs  []*result.Run
	over  string
}

// at returns the runs at one value of the axis on x.
func (l lineRow) at(value string) *cell {
	c := &cell{}
	for _, r := range l.runs {
		if v, ok := r.Axes[l.over]; !ok || v == value {
			c.runs = append(c.runs, r)
		}
	}
	return c
}

func lineRows(doc *result.Document, over string, style func(*cell) look) []lineRow {
	var out []lineRow
	var keys []string
	for _, r := range doc.Runs {
		rest := maps.Clone(r.Axes)
		delete(rest, over)
		c := &cell{world: r.World, scheme: r.Scheme, runs: []*result.Run{r}}
		label := c.label(worldNames(doc))
		if len(rest) > 0 {
			label += ", " + pointValues(rest)
		}
		i := slices.Index(keys, label)
		if i < 0 {
			i = len(keys)
			keys = append(keys, label)
			out = append(out, lineRow{label: label, look: style(c), over: over})
			out[i].look.dash = i % len(dashes)
		}
		out[i].runs = append(out[i].runs, r)
	}
	return out
}

// timePieces is the number of pieces of a curve over time that shows several seeds.
const timePieces = 125

// ratesPictures draws groups' rates over time, a picture for each scheme: a curve for each group at each point on
// the axes.
func ratesPictures(doc *result.Document, a *asked, style func(*cell) look) []*picture {
	var out []*picture
	most := 0.0
	worlds := worldNames(doc)
	for _, v := range variants(doc, style) {
		label := v.cell.label(worlds)
		name := fileName(a.Name, label)
		i := slices.IndexFunc(out, func(p *picture) bool { return p.name == name })
		if i < 0 {
			i = len(out)
			out = append(out, &picture{
				name: name, title: a.Title + ": " + label, caption: a.Note,
				x: axis{label: "time (s)"}, y: axis{label: "payload (Mbit/s)"},
			})
		}
		p := out[i]
		for _, group := range a.Rates {
			var seeds []plotter.XYs
			join := 1 // for all seeds, so that their points are at the same instants
			for _, r := range detailed(v.cell) {
				join = max(join, len(r.Detail.Rates[group])/timePieces)
			}
			for _, r := range detailed(v.cell) {
				if points := joined(r.Detail.Rates[group], r.Detail.StepMs, join); len(points) > 0 {
					seeds = append(seeds, points)
					p.x.max = max(p.x.max, r.Detail.DurationMs/1e3)
				}
			}
			c := overSeeds(seeds)
			if len(c.line) == 0 {
				continue
			}
			c.label = group
			if values := pointValues(v.runs[0].Axes); values != "" {
				if c.label += ", " + values; len(a.Rates) == 1 {
					c.label = values
				}
			}
			n := len(p.curves)
			c.look = nthLook(n)
			p.curves = append(p.curves, c)
		}
		most = max(most, p.top())
	}
	for _, p := range out { // one scale, so that schemes can be compared
		p.y.max = roundUp(most)
	}
	return out
}

// queueOverTime draws a port's queue over time, all schemes in one picture.
func queueOverTime(doc *result.Document, a *asked, p *picture, style func(*cell) look) {
	p.x, p.y = axis{label: "time (s)"}, axis{label: "queue (KB)"}
	all := variants(doc, style)
	end := 0.0 // one for all, so that all are cut at the same instants
	for _, v := range all {
		for _, r := range detailed(v.cell) {
			if len(r.Detail.Queues[a.Queue]) > 0 {
				end = max(end, r.Detail.DurationMs)
			}
		}
	}
	p.x.max = end / 1e3
	for _, v := range all {
		var seeds []plotter.XYs
		for _, r := range detailed(v.cell) {
			if mean, _, _ := envelope(r.Detail.Queues[a.Queue], 0, end, timePieces); len(mean) > 0 {
				seeds = append(seeds, mean)
			}
		}
		if c := overSeeds(seeds); len(c.line) > 0 {
			c.label, c.look = v.label, v.look
			p.curves = append(p.curves, c)
		}
	}
	for _, b := range blocks(doc) {
		for _, l := range portLines(b, a.Queue) {
			if !slices.Contains(p.lines, l) {
				p.lines = append(p.lines, l)
			}
		}
	}
	p.fitQueue()
	p.caption = strings.TrimSpace(fmt.Sprintf("%s Mean over %s ms.", p.caption, number(end/timePieces)))
}

// overSeeds combines the curves of several seeds. The line is the median at each instant; the band is from the
// smallest to the largest. If a seed has no point at an instant, the others count.
func overSeeds(seeds []plotter.XYs) curve {
	var c curve
	var upper plotter.XYs
	at := map[float64][]float64{}
	for _, s := range seeds {
		for _, p := range s {
			at[p.X] = append(at[p.X], p.Y)
		}
	}
	for _, x := range slices.Sorted(maps.Keys(at)) {
		y := slices.Sorted(slices.Values(at[x]))
		c.line = append(c.line, plotter.XY{X: x, Y: median(y)})
		if len(seeds) > 1 {
			c.band = append(c.band, plotter.XY{X: x, Y: y[0]})
			upper = append(upper, plotter.XY{X: x, Y: y[len(y)-1]})
		}
	}
	slices.Reverse(upper)
	c.band = append(c.band, upper...)
	return c
}
