package result

import (
	"maps"
	"slices"
	"time"
)

// group calculates the statistics of one group in a span.
func (b *builder) group(name string, s span) *Group {
	g := &Group{values: map[string][]float64{}}
	payload := 0.0
	var fct, goodput []float64
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		n := b.bytesIn(f, s)
		payload += n
		if d := overlap(f, s); d > 0 && !f.waited() {
			goodput = append(goodput, b.mbps(n, d))
		}
		if !s.has(f.Start) {
			continue
		}
		g.Flows++
		if !f.Done {
			g.Unfinished++
		} else if !f.Endless {
			fct = append(fct, b.ms(f.FCT()))
		}
	}
	g.Bytes = int64(payload + 0.5)
	if b.counted {
		n := int64(0)
		for _, i := range b.drops[name] {
			if s.has(b.raw.Drops[i].At) {
				n++
			}
		}
		g.Drops = new(n)
	}
	b.neverConnected(g, name, s)
	b.timeouts(g, name, s)
	b.outOfOrder(g, name, s)
	if d := s.to - s.from; d > 0 {
		g.ThroughputMbps = new(b.mbps(payload, d))
	}
	g.FCT = g.distribution("fct_ms", fct)
	g.Goodput = g.distribution("goodput_mbps", goodput)
	g.Jain = jain(goodput)
	g.Series = g.distribution("series_mbps", b.rates(name, s))
	g.Live = b.live(name, s)
	b.settling(g, name, s)
	b.byMouse(g, name, s)
	b.slowdown(g, name, s)
	b.deadlines(g, name, s)
	return g
}

// distribution summarises values and keeps them under the metric's path.
func (g *Group) distribution(path string, values []float64) *Distribution {
	if len(values) > 0 {
		g.values[path] = values
	}
	return distribute(values)
}

// overlap returns how long a flow was active in a span.
func overlap(f *Flow, s span) time.Duration {
	if s.whole {
		return f.End - f.Start
	}
	return min(f.End, s.to) - max(f.Start, s.from)
}

// bytesIn returns the payload of a flow that arrived in a span. It is exact when the flow lies in the span.
// Otherwise it uses the flow's bins; a bin at the edge counts in proportion to the flow's active time.
func (b *builder) bytesIn(f *Flow, s span) float64 {
	if s.whole || f.Start >= s.from && f.End <= s.to {
		return float64(f.Bytes)
	}
	if f.End < s.from || f.Start >= s.to {
		return 0
	}
	sum := 0.0
	b.pieces(f, func(lo, hi time.Duration, n float64) {
		if lo == hi {
			if s.has(lo) {
				sum += n
			}
			return
		}
		if d := min(hi, s.to) - max(lo, s.from); d > 0 {
			sum += n * float64(d) / float64(hi-lo)
		}
	})
	return sum
}

// pieces reports when a flow's bytes arrived: n bytes evenly over [lo, hi], or at lo if both are equal. Without
// bins they are spread over the flow's active time.
func (b *builder) pieces(f *Flow, each func(lo, hi time.Duration, n float64)) {
	if len(f.Delivered) == 0 || b.raw.Bin <= 0 {
		if f.Bytes > 0 {
			each(f.Start, max(f.Start, f.End), float64(f.Bytes))
		}
		return
	}
	for _, d := range f.Delivered {
		from := time.Duration(d.Bin) * b.raw.Bin
		lo, hi := max(from, f.Start), min(from+b.raw.Bin, f.End)
		if hi < lo { // rounding of a clock put the bytes outside the flow's time
			lo, hi = from, from
		}
		each(lo, hi, float64(d.Bytes))
	}
}

// rates returns the group's rate in each full step of measure.series from the start of the span.
func (b *builder) rates(name string, s span) []float64 {
	steps := int((s.to - s.from) / b.Series)
	if steps <= 0 {
		return nil
	}
	end := s.from + time.Duration(steps)*b.Series
	sums := make([]float64, steps)
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.End < s.from || f.Start >= end {
			continue
		}
		b.pieces(f, func(lo, hi time.Duration, n float64) {
			spread(sums, lo-s.from, hi-s.from, n, b.Series)
		})
	}
	for i, n := range sums {
		sums[i] = b.mbps(n, b.Series)
	}
	return sums
}

// spread adds n, evenly spread over [lo, hi], to the sums of steps that begin at 0.
func spread(sums []float64, lo, hi time.Duration, n float64, step time.Duration) {
	if lo == hi {
		if i := int(lo / step); lo >= 0 && i < len(sums) {
			sums[i] += n
		}
		return
	}
	for i := max(0, int(lo/step)); i < len(sums); i++ {
		from := time.Duration(i) * step
		if from >= hi {
			return
		}
		if d := min(hi, from+step) - max(lo, from); d > 0 {
			sums[i] += n * float64(d) / float64(hi-lo)
		}
	}
}

// neverConnected counts the flows that start in the span and whose connection never opened.
func (b *builder) neverConnected(g *Group, name string, s span) {
	n, known := 0, false
	for _, i := range b.flows[name] {
		switch f := &b.raw.Flows[i]; {
		case !s.has(f.Start):
		case f.Opening == OpeningUnknown:
			return
		default:
			known = true
			n += btoi(f.Opening == NeverOpened)
		}
	}
	if known {
		g.NeverConnected = &n
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

const udp = 17

// timeouts counts RTO events of the group's TCP flows that start in the span. The count is known only if it is
// known for every such flow: a flow's events have no time of their own.
func (b *builder) timeouts(g *Group, name string, s span) {
	events, with, tcp := int64(0), int64(0), false
	floss, lack, known := int64(0), int64(0), true
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.Key.Proto == udp || !s.has(f.Start) {
			continue
		}
		if f.Timeouts < 0 {
			return
		}
		tcp = true
		events += int64(f.Timeouts)
		floss, lack, known = floss+int64(f.Causes.FLoss), lack+int64(f.Causes.LAck), known && f.Causes.Known
		if f.Timeouts > 0 {
			with++
		}
	}
	if !tcp {
		return
	}
	g.Timeouts, g.FlowsWithTimeout = &events, &with
	if known {
		g.FLoss, g.LAck = &floss, &lack
	}
}

// outOfOrder counts the segments that arrived before their predecessors, of the group's TCP flows that start in the span.
func (b *builder) outOfOrder(g *Group, name string, s span) {
	segments, tcp := int64(0), false
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.Key.Proto == udp || !s.has(f.Start) {
			continue
		}
		if !f.OutOfOrder.Known {
			return
		}
		tcp = true
		segments += f.OutOfOrder.Segments
	}
	if tcp {
		g.OutOfOrder = &segments
	}
}

// byMouse summarises, over the mice, figures that each mouse has over its epochs.
func (b *builder) byMouse(g *Group, name string, s span) {
	fct := map[int][]float64{}
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.Endless || !s.has(f.Start) {
			continue
		}
		score := float64(UnfinishedScoreMs)
		if f.Done {
			score = b.ms(f.FCT())
		}
		fct[f.Mouse] = append(fct[f.Mouse], score)
	}
	if len(fct) == 0 {
		return
	}
	dropped := map[int]float64{}
	for _, i := range b.drops[name] {
		if f := &b.raw.Flows[b.dropFlow[i]]; !f.Endless && s.has(b.raw.Drops[i].At) {
			dropped[f.Mouse]++
		}
	}
	var mean, sd, p99, most, drops []float64
	for _, mouse := range slices.Sorted(maps.Keys(fct)) {
		x := fct[mouse]
		slices.Sort(x)
		m, d := moments(x)
		mean, sd = append(mean, m), append(sd, d)
		p99, most = append(p99, Quantile(x, 0.99)), append(most, x[len(x)-1])
		drops = append(drops, dropped[mouse])
	}
	g.ByMouse = &ByMouse{
		Mean: g.distribution("by_mouse.mean_ms", mean),
		SD:   g.distribution("by_mouse.sd_ms", sd),
		P99:  g.distribution("by_mouse.p99_ms", p99),
		Max:  g.distribution("by_mouse.max_ms", most),
	}
	if b.counted {
		g.ByMouse.Drops = g.distribution("by_mouse.drops", drops)
	}
}

// missed reports whether a flow with a deadline missed it.
func missed(f *Flow) bool { return !f.Done || f.FCT() > f.Deadline }

// deadlines counts the flows that start in the span and have a deadline.
func (b *builder) deadlines(g *Group, name string, s span) {
	d := &Deadlines{MissedIDs: []int{}}
	for _, i := range b.flows[name] {
		f := &b.raw.Flows[i]
		if f.Deadline <= 0 || !s.has(f.Start) {
			continue
		}
		d.Flows++
		if missed(f) {
			d.Missed++
			d.MissedIDs = append(d.MissedIDs, f.Epoch*b.mice[name]+f.Mouse)
		}
	}
	if d.Flows > 0 {
		slices.Sort(d.MissedIDs)
		g.Deadlines = d
	}
}
