package result

import (
	"math"
	"slices"
	"time"
)

// Settling measures how soon long flows have their fair shares after one of them joined or left. A flow has its
// share when its rate over settleSteps steps of measure.series is within settleWithin of it. The fair share is the
// group's median rate divided by the number of flows, so flows that leave a link idle have not settled. Times are
// in steps from the change: 0 means that no rate over settleSteps was outside.
type Settling struct {
	Changes   int `json:"changes"`   // a flow joined or left while others continued
	Unreached int `json:"unreached"` // of these: before the next change, the flows never all had their shares at once
	Unsettled int `json:"unsettled"` // of these: at the next change, not all had them
	// Reached is the time until all had their shares for the first time, Ms until they had them for good.
	Reached *Distribution `json:"reached_ms,omitempty"`
	Ms      *Distribution `json:"ms,omitempty"`
	// FairShare is the share of the time, from the first change on, in which all had them.
	FairShare *float64 `json:"held,omitempty"`
}

// A rate is taken over 10 steps, 100 ms if series is not set. At a fair share of 10 Mbit/s that is 86 segments;
// one burst more or less is a tenth of them. A shorter time would measure the bursts.
const (
	settleSteps  = 10
	settleWithin = 0.10
)

// history is the bytes that one flow had received by the end of each step.
type history struct {
	flow *Flow
	step time.Duration
	sums []float64
}

func (b *builder) history(f *Flow) history {
	steps := int((b.raw.Duration+b.Series-1)/b.Series) + 1
	h := history{flow: f, step: b.Series, sums: make([]float64, steps)}
	b.pieces(f, func(lo, hi time.Duration, n float64) { spread(h.sums, lo, hi, n, h.step) })
	for i := 1; i < steps; i++ {
		h.sums[i] += h.sums[i-1]
	}
	return h
}

// at returns the bytes received by time t, linear in a step.
func (h *history) at(t time.Duration) float64 {
	i := int(t / h.step)
	if t <= 0 {
		return 0
	}
	if i >= len(h.sums) {
		return h.sums[len(h.sums)-1]
	}
	before := 0.0
	if i > 0 {
		before = h.sums[i-1]
	}
	return before + (h.sums[i]-before)*float64(t%h.step)/float64(h.step)
}

func (h *history) active(t time.Duration) bool { return h.flow.Start <= t && h.flow.End > t }

// settling measures the changes in the span. It adds nothing when there are none.
func (b *builder) settling(g *Group, name string, s span) {
	var flows []history
	var events []time.Duration
	for _, i := range b.flows[name] {
		if f := &b.raw.Flows[i]; f.Endless && f.End > f.Start {
			flows = append(flows, history{flow: f})
			events = append(events, f.Start, f.End)
		}
	}
	changes := changesAmong(flows, events, 2*settleSteps*b.Series)
	if len(changes) == 0 {
		return
	}
	for i := range flows {
		flows[i] = b.history(flows[i].flow)
	}
	total := b.medianRate(flows, slices.Min(events), slices.Max(events))
	out := &Settling{}
	var reached, settled []float64
	fair, of := 0, 0
	for _, c := range changes {
		if !s.has(c.at) {
			continue
		}
		out.Changes++
		ok := b.shared(flows, c, total)
		of += len(ok)
		for _, v := range ok {
			if v {
				fair++
			}
		}
		first, last := slices.Index(ok, true), lastIndex(ok, false)
		if first < 0 {
			out.Unreached++
			out.Unsettled++
			continue
		}
		reached = append(reached, b.ms(time.Duration(first)*b.Series))
		if last < len(ok)-1 {
			settled = append(settled, b.ms(time.Duration(last+1)*b.Series))
		} else {
			out.Unsettled++
		}
	}
	if out.Changes == 0 {
		return
	}
	if of > 0 {
		out.FairShare = new(float64(fair) / float64(of))
	}
	out.Reached, out.Ms = g.distribution("settling.reached_ms", reached), g.distribution("settling.ms", settled)
	g.Settling = out
}

func lastIndex(list []bool, v bool) int {
	for i, w := range slices.Backward(list) {
		if w == v {
			return i
		}
	}
	return -1
}

// change is an instant at which the number of flows changes, and the instant of the next change.
type change struct{ at, next time.Duration }

// changesAmong finds the changes that have flows before and after. Changes that follow each other more closely
// than apart count as one, at the time of the last.
func changesAmong(flows []history, events []time.Duration, apart time.Duration) []change {
	slices.Sort(events)
	var at []time.Duration
	for _, t := range events {
		if n := len(at); n > 0 && t-at[n-1] < apart {
			at[n-1] = t
			continue
		}
		at = append(at, t)
	}
	var out []change
	for i := 1; i < len(at)-1; i++ { // the first begins the run, the last ends it
		if slices.ContainsFunc(flows, func(h history) bool { return h.active(at[i]) }) {
			out = append(out, change{at[i], at[i+1]})
		}
	}
	return out
}

// medianRate returns the flows' total rate, in bytes a second: the median over pieces as long as those used for
// shares.
func (b *builder) medianRate(flows []history, from, to time.Duration) float64 {
	width := settleSteps * b.Series
	var rates []float64
	for t := from; t+width <= to; t += width {
		sum := 0.0
		for i := range flows {
			sum += flows[i].at(t+width) - flows[i].at(t)
		}
		rates = append(rates, sum/width.Seconds())
	}
	slices.Sort(rates)
	return Quantile(rates, 0.5)
}

// shared reports, for the rates from each step after the change on, whether every flow had its share.
func (b *builder) shared(flows []history, c change, total float64) []bool {
	width := settleSteps * b.Series
	var active []*history
	for i := range flows {
		if flows[i].active(c.at) {
			active = append(active, &flows[i])
		}
	}
	share := total / float64(len(active)) * width.Seconds()
	var out []bool
	for from := c.at; from+width <= c.next; from += b.Series {
		out = append(out, !slices.ContainsFunc(active, func(h *history) bool {
			return math.Abs(h.at(from+width)-h.at(from)-share) > settleWithin*share
		}))
	}
	return out
}
