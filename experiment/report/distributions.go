package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
)

// sample has the values of one run, and the share of its flows that they are.
type sample struct {
	values []float64 // sorted
	share  float64
}

// cdfPicture draws the distribution of the group's completion times. A curve ends at the share of flows that
// finished.
func cdfPicture(doc *result.Document, b *block, group string, style func(*cell) look) *picture {
	p := &picture{
		name:  fileName("fct", group, b.title),
		title: at("Completion time of "+group, b),
		x:     axis{label: "flow completion time (ms)"},
		y:     axis{label: "share of flows", min: 0, max: 1},
		caption: fmt.Sprintf("Share of the flows of %s that were complete after a time. A curve that ends below 1 has unfinished flows.%s",
			group, seedsText(doc, " Line: median over seeds; band: smallest to largest.")),
	}
	low, high := math.Inf(1), 0.0
	for _, c := range b.cells {
		var runs []sample
		for _, r := range detailed(c) {
			if s := fctSample(r, group); len(s.values) > 0 {
				runs = append(runs, s)
				low, high = min(low, s.values[0]), max(high, s.values[len(s.values)-1])
			}
		}
		if len(runs) > 0 {
			p.curves = append(p.curves, distributionCurve(c.label(worldNames(doc)), style(c), runs))
		}
	}
	p.x.fit(low, high)
	if !p.x.log {
		p.x.min = 0
	}
	p.thin()
	return p
}

// fit sets the ends of an axis around the data: of a logarithmic one to 1, 2 or 5 times a power of 10.
func (a *axis) fit(low, high float64) {
	a.min, a.max = low, roundUp(high)
	if a.log = logWorthy(low, high); !a.log {
		return
	}
	a.min, a.max = 0, 0
	for e := math.Floor(math.Log10(low)); ; e++ {
		for _, m := range []float64{1, 2, 5} {
			switch v := m * math.Pow(10, e); {
			case v <= low:
				a.min = v
			case v >= high:
				a.max = v
				return
			}
		}
	}
}

func fctSample(r *result.Run, group string) sample {
	var s sample
	sized := 0
	for i := range r.Detail.Flows {
		f := &r.Detail.Flows[i]
		if f.Group != group || f.Endless {
			continue
		}
		sized++
		if f.FCTMs != nil {
			s.values = append(s.values, *f.FCTMs)
		}
	}
	slices.Sort(s.values)
	s.share = float64(len(s.values)) / max(1, float64(sized))
	return s
}

// cdfLevels is the number of points of a distribution's curve.
const cdfLevels = 400

// distributionCurve draws one cell: at each level the median over seeds of the quantile, and the band from the
// smallest to the largest.
func distributionCurve(label string, l look, runs []sample) curve {
	c := curve{label: label, look: l}
	var left, right plotter.XYs
	for k := 0; k <= cdfLevels; k++ {
		p := float64(k) / cdfLevels
		var x []float64
		share := 0.0
		for _, s := range runs {
			x = append(x, result.Quantile(s.values, p))
			share += s.share / float64(len(runs))
		}
		slices.Sort(x)
		c.line = append(c.line, plotter.XY{X: median(x), Y: p * share})
		left = append(left, plotter.XY{X: x[0], Y: p * share})
		right = append(right, plotter.XY{X: x[len(x)-1], Y: p * share})
	}
	if len(runs) > 1 {
		slices.Reverse(right)
		c.band = slices.Concat(left, right)
	}
	return c
}

// rankedFlows is the largest number of flows whose goodput is drawn flow by flow.
const rankedFlows = 64

// goodputPicture draws the goodput of each flow of a group described by rates, the flows sorted by goodput; for
// many flows it draws the distribution.
func goodputPicture(doc *result.Document, b *block, group string, style func(*cell) look) *picture {
	p := &picture{name: fileName("goodput", group, b.title), title: at("Goodput per flow of "+group, b)}
	seeds := seedsText(doc, " Line: median over seeds; band: smallest to largest.")
	most, flows := 0.0, 0
	var cells []*cell
	var samples [][]sample
	for _, c := range b.cells {
		var runs []sample
		for _, r := range detailed(c) {
			if s := goodputSample(r, group); len(s.values) > 0 {
				runs = append(runs, s)
				flows, most = max(flows, len(s.values)), max(most, s.values[len(s.values)-1])
			}
		}
		if len(runs) > 0 {
			cells, samples = append(cells, c), append(samples, runs)
		}
	}
	if flows > rankedFlows {
		p.x, p.y = axis{label: "goodput of a flow (Mbit/s)", max: roundUp(most)}, axis{label: "share of flows", max: 1}
		p.caption = "Share of the flows of " + group + " whose goodput over their own active time is below a rate." + seeds
		for i, c := range cells {
			p.curves = append(p.curves, distributionCurve(c.label(worldNames(doc)), style(c), samples[i]))
		}
		p.thin()
		return p
	}
	p.x = axis{label: "flows, slowest first", min: 0.5, max: max(1.5, float64(flows)+0.5)}
	p.y = axis{label: "goodput (Mbit/s)", max: roundUp(most)}
	p.caption = "Payload of each flow of " + group + " over its own active time, sorted; a horizontal line is a fair share." + seeds
	for i, c := range cells {
		p.curves = append(p.curves, rankedCurve(c.label(worldNames(doc)), style(c), samples[i]))
	}
	return p
}

func goodputSample(r *result.Run, group string) sample {
	s := sample{share: 1}
	for i := range r.Detail.Flows {
		f := &r.Detail.Flows[i]
		if f.Group != group {
			continue
		}
		if v, ok := f.GoodputMbps(); ok {
			s.values = append(s.values, v)
		}
	}
	slices.Sort(s.values)
	return s
}

// rankedCurve draws the k-th slowest flow: the median over seeds and the band.
func rankedCurve(label string, l look, runs []sample) curve {
	c := curve{label: label, look: l, markers: true}
	var lower, upper plotter.XYs
	for k := 0; ; k++ {
		var y []float64
		for _, s := range runs {
			if k < len(s.values) {
				y = append(y, s.values[k])
			}
		}
		if len(y) == 0 {
			break
		}
		slices.Sort(y)
		x := float64(k + 1)
		c.line = append(c.line, plotter.XY{X: x, Y: median(y)})
		lower = append(lower, plotter.XY{X: x, Y: y[0]})
		upper = append(upper, plotter.XY{X: x, Y: y[len(y)-1]})
	}
	if len(runs) > 1 {
		slices.Reverse(upper)
		c.band = slices.Concat(lower, upper)
	}
	return c
}

// thin removes points of lines and bands that are too close to the previous one to be visible.
func (p *picture) thin() {
	for i := range p.curves {
		c := &p.curves[i]
		c.line, c.band = p.thinned(c.line), p.thinned(c.band)
	}
}

func (p *picture) thinned(points plotter.XYs) plotter.XYs {
	if len(points) < 3 {
		return points
	}
	kept := points[:1:1]
	for j, xy := range points[1:] {
		last := kept[len(kept)-1]
		if math.Abs(p.x.place(xy.X)-p.x.place(last.X)) > 0.002 || math.Abs(xy.Y-last.Y) > 0.01 || j == len(points)-2 {
			kept = append(kept, xy)
		}
	}
	return kept
}

// place returns the position of a value on the axis, 0 to 1.
func (a *axis) place(v float64) float64 {
	if a.log {
		return math.Log(v/a.min) / math.Log(a.max/a.min)
	}
	return (v - a.min) / (a.max - a.min)
}
