package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
	"weir/law"
)

// A long time is drawn in pieces: their minimum and maximum as a band, and, in longer pieces so that the line is
// readable, their mean.
const (
	envelopeColumns = 160
	meanColumns     = 50
)

// queuePicture draws a port's queue over the whole run: the mean of each short piece of time as a line, between
// its minimum and maximum as a band; further seeds as thin lines.
func queuePicture(doc *result.Document, b *block, port string, style func(*cell) look) *picture {
	p := &picture{
		name: fileName("queue", port, b.title), title: at("Queue of "+port, b),
		x: axis{label: "time (s)"}, y: axis{label: "queue (KB)"},
	}
	length := 0.0
	for _, c := range b.cells {
		cv := curve{label: c.label(worldNames(doc)), look: style(c)}
		for i, r := range detailed(c) {
			steps := r.Detail.Queues[port]
			if len(steps) == 0 {
				continue
			}
			length = max(length, r.Detail.DurationMs)
			mean, _, _ := envelope(steps, 0, r.Detail.DurationMs, meanColumns)
			if i > 0 {
				cv.thin = append(cv.thin, mean)
				continue
			}
			_, low, high := envelope(steps, 0, r.Detail.DurationMs, envelopeColumns)
			slices.Reverse(high)
			cv.line, cv.band = mean, slices.Concat(low, high)
		}
		if len(cv.line) > 0 {
			p.curves = append(p.curves, cv)
		}
	}
	p.x.max = length / 1e3
	p.lines = portLines(b, port)
	p.fitQueue()
	p.caption = fmt.Sprintf("Backlog of %s. Line: mean over %s ms; band: minimum to maximum within %s ms.%s", port,
		number(length/meanColumns), number(length/envelopeColumns), seedsText(doc, " First seed; the means of the other seeds as thin lines."))
	return p
}

func (p *picture) fitQueue() {
	most := 0.0
	for _, c := range p.curves {
		for _, points := range append([]plotter.XYs{c.line, c.band}, c.thin...) {
			for _, xy := range points {
				most = max(most, xy.Y)
			}
		}
	}
	for _, l := range p.lines {
		most = max(most, l.y)
	}
	p.y.max = roundUp(most)
}

// closeUpPicture draws a part of the queue sample by sample, so that the control loop is visible.
func closeUpPicture(doc *result.Document, b *block, port string, style func(*cell) look) *picture {
	p := &picture{
		name: fileName("queue", port, "close-up", b.title), title: at("Queue of "+port+", close up", b),
		x: axis{label: "time (s)"}, y: axis{label: "queue (KB)"},
	}
	var drawn []*cell
	var queues [][]result.QueueStep
	length := 0.0
	for _, c := range b.cells {
		if runs := detailed(c); len(runs) > 0 && len(runs[0].Detail.Queues[port]) > 0 {
			drawn, queues = append(drawn, c), append(queues, runs[0].Detail.Queues[port])
			length = max(length, runs[0].Detail.DurationMs)
		}
	}
	from, to := closeUp(queues, length)
	p.x.min, p.x.max = from/1e3, to/1e3
	for i, c := range drawn {
		mean, _, _ := envelope(queues[i], from, to, 400)
		p.curves = append(p.curves, curve{label: c.label(worldNames(doc)), look: style(c), line: mean, steps: true})
	}
	p.lines = portLines(b, port)
	p.fitQueue()
	p.caption = fmt.Sprintf("The same queue for %s ms after the middle of the run%s.", number((p.x.max-p.x.min)*1e3),
		seedsText(doc, ", first seed"))
	return p
}

// closeUp selects the part: a twentieth of the run and at most half a second, from the middle of the run. If no queue has bytes in the
// first tenth of that part, it begins a tenth before the next one that has.
func closeUp(queues [][]result.QueueStep, durationMs float64) (from, to float64) {
	from = durationMs / 2
	width := min(500, durationMs/20)
	next := math.Inf(1)
	for _, steps := range queues {
		for _, q := range steps {
			if q.Bytes > 0 && q.ToMs > from {
				next = min(next, max(q.FromMs, from))
				break
			}
		}
	}
	if !math.IsInf(next, 0) && next > from+width/10 {
		from = min(next-width/10, durationMs-width)
	}
	return from, from + width
}

// envelope divides [from, to) ms into columns and returns for each its time-weighted mean, minimum and maximum, in
// KB over s. Columns without samples are left out.
func envelope(steps []result.QueueStep, from, to float64, columns int) (mean, low, high plotter.XYs) {
	width := (to - from) / float64(columns)
	i := 0
	for k := range columns {
		start, end := from+float64(k)*width, from+float64(k+1)*width
		for i < len(steps) && steps[i].ToMs <= start {
			i++
		}
		sum, time, least, most := 0.0, 0.0, math.Inf(1), 0.0
		for j := i; j < len(steps) && steps[j].FromMs < end; j++ {
			v := float64(steps[j].Bytes) / 1e3
			d := min(steps[j].ToMs, end) - max(steps[j].FromMs, start)
			sum, time = sum+v*d, time+d
			least, most = min(least, v), max(most, v)
		}
		if time > 0 {
			x := (start + end) / 2e3
			mean = append(mean, plotter.XY{X: x, Y: sum / time})
			low = append(low, plotter.XY{X: x, Y: least})
			high = append(high, plotter.XY{X: x, Y: most})
		}
	}
	return mean, low, high
}

// portLines returns the levels that are marked at a port: its buffer, and the laws' thresholds.
func portLines(b *block, port string) []refLine {
	var out []refLine
	add := func(l refLine) {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	for _, c := range b.cells {
		r := c.runs[0]
		result := r.Ports[port]
		if result == nil {
			continue
		}
		if result.BufferBytes != nil {
			add(refLine{"buffer", float64(*result.BufferBytes) / 1e3})
		}
		text, _ := r.Params["threshold"].(string)
		var limit law.Limit
		if text != "" && limit.UnmarshalText([]byte(text)) == nil {
			add(refLine{c.scheme + " " + limit.String(), float64(limit.Bytes()) / 1e3})
		}
		// A law's target is a fraction of the buffer. Schemes with the same target share a line.
		if share, ok := r.Params["target_fraction"].(float64); ok && result.BufferBytes != nil {
			add(refLine{"target", share * float64(*result.BufferBytes) / 1e3})
		}
	}
	slices.SortFunc(out, func(a, b refLine) int { return cmp.Compare(a.y, b.y) })
	return out
}

// ratePicture draws the rate of a group over time, in pieces long enough to be readable.
func ratePicture(doc *result.Document, b *block, group string, style func(*cell) look) *picture {
	p := &picture{
		name: fileName("rate", group, b.title), title: at("Rate of "+group, b),
		x: axis{label: "time (s)"}, y: axis{label: "payload (Mbit/s)"},
	}
	most, width := 0.0, 0.0
	for _, c := range b.cells {
		cv := curve{label: c.label(worldNames(doc)), look: style(c)}
		for i, r := range detailed(c) {
			points, step := coarse(r.Detail.Rates[group], r.Detail.StepMs)
			if len(points) == 0 {
				continue
			}
			width = step
			p.x.max = max(p.x.max, r.Detail.DurationMs/1e3)
			for _, xy := range points {
				most = max(most, xy.Y)
			}
			if i > 0 {
				cv.thin = append(cv.thin, points)
			} else {
				cv.line = points
			}
		}
		if len(cv.line) > 0 {
			p.curves = append(p.curves, cv)
		}
	}
	p.y.max = roundUp(most)
	p.caption = fmt.Sprintf("Payload of all flows of %s together, mean over %s ms.%s", group, number(width),
		seedsText(doc, " First seed; the other seeds as thin lines."))
	return p
}

// coarse joins neighbouring steps until there are few enough to draw.
func coarse(rates []float64, stepMs float64) (points plotter.XYs, joinedMs float64) {
	join := (len(rates) + 2*meanColumns - 1) / (2 * meanColumns)
	return joined(rates, stepMs, join), float64(join) * stepMs
}

// joined joins groups of this many steps to their mean.
func joined(rates []float64, stepMs float64, join int) plotter.XYs {
	var out plotter.XYs
	for i := 0; join > 0 && i+join <= len(rates); i += join {
		sum := 0.0
		for _, v := range rates[i : i+join] {
			sum += v
		}
		out = append(out, plotter.XY{X: (float64(i) + float64(join)/2) * stepMs / 1e3, Y: sum / float64(join)})
	}
	return out
}
