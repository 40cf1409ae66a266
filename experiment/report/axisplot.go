package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
	"weir/law"
)

// axisPictures draws metrics over an axis whose values are numbers, such as the number of senders or a size. The
// axis must be the only one and have at least three values.
func axisPictures(doc *result.Document, style func(*cell) look) []*picture {
	parts := blocks(doc)
	if len(parts) < 3 {
		return nil
	}
	name, ok := numericAxis(parts)
	if !ok {
		return nil
	}
	slices.SortFunc(parts, func(a, b *block) int {
		if axisNumber(a, name) < axisNumber(b, name) {
			return -1
		}
		return 1
	})
	var out []*picture
	for _, s := range subjects(doc) {
		if len(s.path) > 1 {
			continue
		}
		for _, c := range s.shown(doc).columns {
			if name := c.path[len(c.path)-1]; name == "flows" || name == "unfinished" || name == "n" {
				continue
			}
			out = append(out, axisPicture(doc, parts, name, s, c, style))
		}
	}
	return out
}

// numericAxis returns the name of the only axis if all its values are numbers, of one unit if any.
func numericAxis(parts []*block) (string, bool) {
	names := slices.Collect(maps.Keys(parts[0].axes))
	if len(names) != 1 {
		return "", false
	}
	_, unit, _ := quantity(parts[0].axes[names[0]])
	for _, b := range parts {
		if _, u, ok := quantity(b.axes[names[0]]); !ok || u != unit || len(b.axes) != 1 {
			return "", false
		}
	}
	return names[0], true
}

func axisNumber(b *block, name string) float64 {
	v, _, _ := quantity(b.axes[name])
	return v
}

// quantity reads the value of an axis: a number, or one with a unit, which it converts to KB, ms or Mbit/s.
func quantity(text string) (v float64, unit string, ok bool) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, "", true
	}
	var size law.Bytes
	var time law.Duration
	var rate law.Rate
	switch raw := []byte(text); {
	case size.UnmarshalText(raw) == nil:
		return float64(size) / 1e3, "KB", true
	case time.UnmarshalText(raw) == nil:
		return float64(time) / 1e6, "ms", true
	case rate.UnmarshalText(raw) == nil:
		return float64(rate) / 1e6, "Mbit/s", true
	}
	return 0, "", false
}

func axisLabel(parts []*block, name string) string {
	if _, unit, _ := quantity(parts[0].axes[name]); unit != "" {
		return name + " (" + unit + ")"
	}
	return name
}

func axisPicture(doc *result.Document, parts []*block, name string, s subject, c column, style func(*cell) look) *picture {
	label := c.name
	if c.unit != "" {
		label += " (" + c.unit + ")"
	}
	p := &picture{
		name:  fileName(append([]string{"over", name, s.path[0]}, c.names()...)...),
		title: fmt.Sprintf("%s: %s over %s", s.title(), c.name, name),
		x:     axis{label: axisLabel(parts, name)}, y: axis{label: label},
		of:      "over " + name,
		caption: "Over " + name + "." + seedsText(doc, " Line: median over seeds; band: smallest to largest."),
	}
	most := 0.0
	worlds := worldNames(doc)
	byLabel := map[string]*curve{}
	upper := map[string]plotter.XYs{}
	var order []string
	for _, b := range parts {
		for _, of := range b.cells {
			y := slices.Sorted(slices.Values(s.values(c, of)))
			if len(y) == 0 {
				continue
			}
			label := of.label(worlds)
			if byLabel[label] == nil {
				byLabel[label] = &curve{label: label, look: style(of), markers: true}
				order = append(order, label)
			}
			x, cv := axisNumber(b, name), byLabel[label]
			cv.line = append(cv.line, plotter.XY{X: x, Y: median(y)})
			cv.band = append(cv.band, plotter.XY{X: x, Y: y[0]})
			upper[label] = append(upper[label], plotter.XY{X: x, Y: y[len(y)-1]})
			most = max(most, y[len(y)-1])
		}
	}
	for _, label := range order {
		cv := byLabel[label]
		slices.Reverse(upper[label])
		cv.band = append(cv.band, upper[label]...)
		p.curves = append(p.curves, *cv)
	}
	p.x.min, p.x.max = axisNumber(parts[0], name), axisNumber(parts[len(parts)-1], name)
	p.y.max = roundUp(most)
	return p
}
