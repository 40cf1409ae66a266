package report

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// asked is a figure that the experiment file asks for.
type asked struct {
	Name, Title, Note string
	Bars              []string
	CDF               string
	Line, Rates       []string
	Over, Queue       string
	Log               bool
}

// askedFigures reads the figures of a document's experiment file.
func askedFigures(doc *result.Document) []asked {
	var f struct{ Figures []asked }
	if json.Unmarshal(doc.File, &f) != nil {
		return nil // a file of another form
	}
	return f.Figures
}

// askedPictures draws them: all schemes at all points on the axes in one picture, as papers do.
func askedPictures(doc *result.Document, style func(*cell) look) []*picture {
	var out []*picture
	for _, a := range askedFigures(doc) {
		a.Title = cmp.Or(a.Title, a.Name)
		for _, p := range a.pictures(doc, style) {
			if len(p.curves) == 0 {
				continue // no run has it
			}
			p.of = asDrawn
			if seeds := seedsText(doc, "Median over seeds, and the smallest and largest."); seeds != "" {
				p.caption = strings.TrimSpace(p.caption + " " + seeds)
			}
			out = append(out, p)
		}
	}
	return out
}

// asDrawn is the heading of the figures that a file asks for.
const asDrawn = "As the paper draws it"

// drawn lists the pictures of a figure by file name and title, in the order of schemes.
func (a *asked) drawn(doc *result.Document) []indexFigure {
	title := cmp.Or(a.Title, a.Name)
	if len(a.Rates) == 0 {
		return []indexFigure{{fileName(a.Name), title}}
	}
	var out []indexFigure
	worlds := worldNames(doc)
	for _, b := range blocks(doc) {
		for _, c := range b.cells {
			label := c.label(worlds)
			if f := (indexFigure{fileName(a.Name, label), title + ": " + label}); !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// FigureOf returns which of the pictures with these names shows a claim: the claim's figure. If that has a picture
// for each scheme, it is that of the scheme that the claim names first. It returns "" if there is none.
func FigureOf(figure, text string, names []string) string {
	if figure == "" {
		return ""
	}
	if name := fileName(figure); slices.Contains(names, name) {
		return name
	}
	parsed, err := claim.Parse(text)
	if err != nil {
		return "" // another version of Weir can read it
	}
	for _, path := range parsed.Paths() {
		for _, label := range []string{path.Scheme, path.Scheme + " lab", path.Scheme + " sim"} {
			if name := fileName(figure, label); slices.Contains(names, name) {
				return name
			}
		}
	}
	return ""
}

func (a *asked) pictures(doc *result.Document, style func(*cell) look) []*picture {
	if len(a.Rates) > 0 {
		return ratesPictures(doc, a, style)
	}
	p := &picture{name: fileName(a.Name), title: a.Title, caption: a.Note}
	switch {
	case len(a.Bars) > 0:
		barsPicture(doc, a, p, style)
	case a.CDF != "":
		valuesPicture(doc, a, p, style)
	case len(a.Line) > 0:
		linePicture(doc, a, p, style)
	case a.Queue != "":
		queueOverTime(doc, a, p, style)
	}
	return []*picture{p}
}

// variant is one scheme at one point on the axes, as one bar or curve.
type variant struct {
	*cell
	label string
	look  look
	pale  bool // every second point, to separate points of the same colour
}

func variants(doc *result.Document, style func(*cell) look) []variant {
	var out []variant
	parts, worlds := blocks(doc), worldNames(doc)
	for _, scheme := range schemeNames(doc) {
		for i, b := range parts {
			for _, c := range b.cells {
				if c.scheme != scheme {
					continue
				}
				if slices.ContainsFunc(out, func(v variant) bool {
					return v.scheme == scheme && v.world == c.world && maps.Equal(v.runs[0].Axes, c.runs[0].Axes)
				}) {
					continue // a scheme without this axis is shown at every point
				}
				v := variant{cell: c, label: c.label(worlds), look: style(c), pale: i%2 == 1}
				if len(c.runs[0].Axes) > 0 {
					v.label += ", " + pointValues(c.runs[0].Axes)
				}
				v.look.dash = len(out) % len(dashes)
				out = append(out, v)
			}
		}
	}
	return out
}

// pointValues returns a point's values without the axes' names: "cubic".
func pointValues(p map[string]string) string {
	var out []string
	for _, axis := range slices.Sorted(maps.Keys(p)) {
		out = append(out, p[axis])
	}
	return strings.Join(out, " ")
}

// barsPicture draws metrics next to each other, the variants of each next to each other.
func barsPicture(doc *result.Document, a *asked, p *picture, style func(*cell) look) {
	all := variants(doc, style)
	low, high := math.Inf(1), 0.0
	for k, v := range all {
		c := curve{label: v.label, look: v.look, pale: v.pale}
		c.look.dash = 0
		for i, path := range a.Bars {
			values := v.values(strings.Split(path, "."), 1)
			if len(values) == 0 {
				continue
			}
			slices.Sort(values)
			width := 0.84 / float64(len(all))
			b := bar{
				x: float64(i) + (float64(k)-float64(len(all)-1)/2)*width, width: width * 0.9,
				y: median(values), low: values[0], high: values[len(values)-1],
			}
			c.bars = append(c.bars, b)
			if b.low > 0 {
				low = min(low, b.low)
			}
			high = max(high, b.high)
		}
		if len(c.bars) > 0 {
			p.curves = append(p.curves, c)
		}
	}
	for _, path := range a.Bars {
		p.names = append(p.names, barName(path, a.Bars))
	}
	p.x.min, p.x.max = -0.5, float64(len(a.Bars))-0.5
	p.y = axis{label: unit(a.Bars[0]), max: roundUp(high * 1.06)}
	if a.Log && low < high {
		p.y.fit(low, high*1.3)
		if !p.y.log {
			p.y.min = 0
		}
	}
}

// valuesPicture draws the distribution of values: of each flow, each mouse.
func valuesPicture(doc *result.Document, a *asked, p *picture, style func(*cell) look) {
	low, high := math.Inf(1), 0.0
	path := strings.Split(a.CDF, ".")
	for _, v := range variants(doc, style) {
		var runs []sample
		for _, r := range v.runs {
			values, ok := r.Values(path)
			if !ok || len(values) == 0 {
				continue
			}
			s := sample{values: slices.Sorted(slices.Values(values)), share: 1}
			runs = append(runs, s)
			low, high = min(low, s.values[0]), max(high, s.values[len(s.values)-1])
		}
		if len(runs) > 0 {
			p.curves = append(p.curves, distributionCurve(v.label, v.look, runs))
		}
	}
	p.x, p.y = axis{label: unit(a.CDF)}, axis{label: "share", max: 1}
	p.x.fit(low, high)
	if !p.x.log {
		p.x.min = 0
	}
	p.thin()
}

// unit returns a metric's name and unit, for an axis: "fct (ms)".
func unit(path string) string {
	names := strings.Split(path, ".")
	for i, n := range slices.Backward(names) {
		for _, u := range []struct{ end, unit string }{{"_ms", "ms"}, {"_mbps", "Mbit/s"}, {"_bytes", "bytes"}} {
			if what, ok := strings.CutSuffix(n, u.end); ok {
				if i > 0 && names[i-1] == "by_mouse" {
					what += " FCT of a mouse"
				}
				return strings.ReplaceAll(strings.ReplaceAll(what, "fct", "flow completion time"), "_", " ") + " (" + u.unit + ")"
			}
		}
	}
	if slices.Contains(names, "slowdown") {
		return "slowdown"
	}
	if last := names[len(names)-1]; last == "drops" || last == "marks" {
		return last + " (packets)"
	}
	return strings.ReplaceAll(names[len(names)-1], "_", " ")
}

// barName returns the name of one metric among those of a figure.
func barName(path string, all []string) string {
	names := strings.Split(path, ".")
	last := names[len(names)-1]
	for _, n := range []struct{ of, word string }{{"sd", "SD"}, {"p99", "99 %"}, {"p90", "90 %"}, {"p50", "median"}, {"throughput_mbps", "throughput"}} {
		if last == n.of {
			last = n.word
		}
	}
	last = strings.ReplaceAll(last, "_", " ")
	for _, other := range all {
		if group(strings.Split(other, ".")) != group(names) {
			return group(names) + " " + last
		}
	}
	return last
}

// group returns the group or port of a path, with its window.
func group(names []string) string {
	of := names[:len(names)-1]
	if n := len(of); n > 1 && (strings.HasSuffix(of[n-1], "_ms") || strings.HasSuffix(of[n-1], "_mbps")) {
		of = of[:n-1]
	}
	if of[0] == result.AllPorts {
		return "all ports'"
	}
	return strings.Join(of, " ")
}

// bar is one bar of a figure: a median, with the smallest and largest value.
type bar struct{ x, width, y, low, high float64 }
