package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
)

// Rates are drawn in pieces as long as those that settling uses; longer for a long run, which would have too many.
const (
	sharePieceSteps = 10
	sharePieces     = 250
)

// longFlow is a flow without a size, and its name.
type longFlow struct {
	*result.FlowDetail
	name string
}

// sharesPictures draws, if a few long flows join and leave one another, the rate of each over the queue of the
// first named port: one picture for each cell, of its first seed.
func sharesPictures(doc *result.Document, b *block) []*picture {
	var out []*picture
	most := 0.0
	for _, c := range b.cells {
		runs := detailed(c)
		if len(runs) == 0 {
			continue
		}
		flows := longFlows(runs[0].Detail)
		if len(flows) == 0 {
			continue
		}
		p := sharesPicture(doc, b, c, runs[0], flows)
		most = max(most, p.top())
		if ports := portNames(doc); len(ports) > 0 {
			p.below = queueOfOne(c, runs[0], ports[0])
		}
		if p.below != nil {
			p.x.label = ""
			p.caption += fmt.Sprintf(" Below: backlog of %s; line: mean, band: minimum to maximum.", portNames(doc)[0])
		}
		out = append(out, p)
	}
	for _, p := range out { // one scale, so that schemes can be compared
		p.y.max = roundUp(most)
	}
	return out
}

// longFlows returns the flows without a size, in order of their start, if at least one joins or leaves while
// others continue, and if there are colours for all.
func longFlows(d *result.Detail) []longFlow {
	var flows []longFlow
	for i := range d.Flows {
		if f := &d.Flows[i]; f.Endless && len(f.Rates) > 0 {
			flows = append(flows, longFlow{f, ""})
		}
	}
	if len(flows) < 2 || len(flows) > len(palette) {
		return nil
	}
	slices.SortStableFunc(flows, func(a, b longFlow) int { return cmp.Compare(a.StartMs, b.StartMs) })
	comes, goes := flows[0].StartMs, flows[0].EndMs
	same, margin := true, d.DurationMs/100
	for _, f := range flows {
		same = same && math.Abs(f.StartMs-comes) <= margin && math.Abs(f.EndMs-goes) <= margin
	}
	if same {
		return nil
	}
	nameFlows(flows)
	return flows
}

// nameFlows names each flow by its item, its sender, or both with a number: the first of these that distinguishes
// all of them.
func nameFlows(flows []longFlow) {
	for _, name := range []func(f *result.FlowDetail) string{
		func(f *result.FlowDetail) string { return f.Item },
		func(f *result.FlowDetail) string { return f.Src },
		func(f *result.FlowDetail) string { return fmt.Sprintf("%s %s.%d", f.Item, f.Src, f.Mouse) },
	} {
		seen := map[string]bool{}
		for i := range flows {
			flows[i].name = name(flows[i].FlowDetail)
			seen[flows[i].name] = true
		}
		if len(seen) == len(flows) && !seen[""] {
			return
		}
	}
}

func sharesPicture(doc *result.Document, b *block, c *cell, r *result.Run, flows []longFlow) *picture {
	label := c.label(worldNames(doc))
	d := r.Detail
	p := &picture{
		name: fileName("shares", label, b.title), title: at("Rate of each flow under "+label, b),
		x: axis{label: "time (s)", max: d.DurationMs / 1e3}, y: axis{label: "payload (Mbit/s)"},
	}
	join := max(sharePieceSteps, (len(flows[0].Rates)+sharePieces-1)/sharePieces)
	for i, f := range flows {
		l := nthLook(i)
		p.curves = append(p.curves, curve{label: f.name, look: l, line: ratesWhileActive(f.FlowDetail, d.StepMs, join)})
		p.events = append(p.events, event{f.StartMs / 1e3, "+" + f.name, l})
		if f.EndMs < d.DurationMs*0.99 {
			p.events = append(p.events, event{f.EndMs / 1e3, "\u2212" + f.name, l})
		}
	}
	slices.SortStableFunc(p.events, func(a, b event) int { return cmp.Compare(a.x, b.x) })
	p.guide = guide{"fair share", fairShare(flows)}
	p.caption = fmt.Sprintf("Payload of each flow, mean over %s ms; + and \u2212: it joins, it leaves. Dashed: the flows' total median rate, divided by their number.%s",
		number(float64(join)*d.StepMs), seedsText(doc, " First seed."))
	return p
}

// ratesWhileActive joins steps to pieces, and returns the pieces in which the flow was active.
func ratesWhileActive(f *result.FlowDetail, stepMs float64, join int) plotter.XYs {
	var out plotter.XYs
	for i := 0; i+join <= len(f.Rates); i += join {
		from, to := float64(i)*stepMs, float64(i+join)*stepMs
		if to <= f.StartMs || from >= f.EndMs {
			continue
		}
		sum := 0.0
		for _, v := range f.Rates[i : i+join] {
			sum += v
		}
		// A flow that joined or left in the piece sent these bytes in less time.
		active := min(to, f.EndMs) - max(from, f.StartMs)
		if active < (to-from)/2 {
			continue
		}
		x := (max(from, f.StartMs) + min(to, f.EndMs)) / 2e3
		out = append(out, plotter.XY{X: x, Y: sum / float64(join) * (to - from) / active})
	}
	return out
}

// fairShare returns the flows' total median rate, divided by the number of flows at each time.
func fairShare(flows []longFlow) plotter.XYs {
	var total, instants []float64
	for i := 0; i+sharePieceSteps <= len(flows[0].Rates); i += sharePieceSteps {
		sum := 0.0
		for _, f := range flows {
			for _, v := range f.Rates[i : i+sharePieceSteps] {
				sum += v / sharePieceSteps
			}
		}
		total = append(total, sum)
	}
	if len(total) == 0 {
		return nil
	}
	slices.Sort(total)
	for _, f := range flows {
		instants = append(instants, f.StartMs, f.EndMs)
	}
	slices.Sort(instants)
	var out plotter.XYs
	for _, t := range slices.Compact(instants) {
		n := 0
		for _, f := range flows {
			if f.StartMs <= t && f.EndMs > t {
				n++
			}
		}
		if n == 0 { // the last one has left
			out = append(out, plotter.XY{X: t / 1e3, Y: out[len(out)-1].Y})
			break
		}
		out = append(out, plotter.XY{X: t / 1e3, Y: median(total) / float64(n)})
	}
	return out
}

// top returns the largest value of the curves, their bands and the guide.
func (p *picture) top() float64 {
	most := 0.0
	for _, c := range p.curves {
		for _, xy := range slices.Concat(c.line, c.band) {
			most = max(most, xy.Y)
		}
	}
	for _, xy := range p.guide.steps {
		most = max(most, xy.Y)
	}
	return most
}

// queueOfOne draws a port's queue in one run as queuePicture does; nil if it was not sampled.
func queueOfOne(c *cell, r *result.Run, port string) *picture {
	steps, length := r.Detail.Queues[port], r.Detail.DurationMs
	if len(steps) == 0 {
		return nil
	}
	mean, low, high := envelope(steps, 0, length, envelopeColumns)
	slices.Reverse(high)
	p := &picture{
		x: axis{label: "time (s)", max: length / 1e3}, y: axis{label: "queue (KB)"},
		curves: []curve{{look: plainLook, line: mean, band: slices.Concat(low, high)}},
		lines:  portLines(&block{cells: []*cell{c}}, port),
	}
	p.fitQueue()
	return p
}
