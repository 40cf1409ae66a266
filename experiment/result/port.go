package result

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// port calculates the statistics of one port in a span. Queue, marks and utilisation cover the part of the span
// that was sampled. Without samples they are absent. If records were lost everything is absent: the recorder's
// figures are then too small.
func (b *builder) port(p *Port, s span) *PortResult {
	out := &PortResult{}
	if p.RateBps > 0 {
		out.RateMbps = new(float64(p.RateBps) / 1e6 * b.Scale)
	}
	if p.Buffer > 0 {
		out.BufferBytes = new(p.Buffer)
	}
	if b.counted {
		out.Drops = new(countIn(b.portDrops[p.Name], s))
		out.levels = levelsIn(p.Samples, s)
		out.Queue = distributeTime(out.levels)
		b.counters(out, p, s)
	}
	b.laws(out, p, s)
	return out
}

// levelsIn returns the samples in the span. A sample lasts from its point of the grid to the next, and counts if
// its point lies in the span.
func levelsIn(samples []Sample, s span) []level {
	var out []level
	for i := range samples {
		m := &samples[i]
		length := time.Duration(m.Count) * m.Step
		lo, hi := max(m.At, s.from), min(m.At+length, s.to)
		if hi <= lo {
			continue
		}
		first := ceilDiv(lo-m.At, m.Step)
		last := ceilDiv(hi-m.At, m.Step)
		out = append(out, level{float64(m.Backlog), hi - lo, last - first})
	}
	return out
}

func ceilDiv(a, b time.Duration) int64 { return int64((a + b - 1) / b) }

// counters fills in the differences of counters between the ends of the span.
func (b *builder) counters(out *PortResult, p *Port, s span) {
	if len(p.Samples) == 0 {
		return
	}
	last := &p.Samples[len(p.Samples)-1]
	from := max(s.from, p.Samples[0].At)
	to := min(s.to, last.At+time.Duration(last.Count)*last.Step)
	if to <= from {
		return
	}
	marks := counterAt(p.Samples, to, marksOf) - counterAt(p.Samples, from, marksOf)
	sent := counterAt(p.Samples, to, sentOf) - counterAt(p.Samples, from, sentOf)
	if marks < 0 || sent < 0 { // the counters were reset: the device was replaced
		return
	}
	out.Marks = new(int64(math.Round(marks)))
	if p.RateBps > 0 {
		out.Utilisation = new(sent * 8 / (to - from).Seconds() / float64(p.RateBps))
	}
}

func marksOf(s *Sample) uint64 { return s.Marks }
func sentOf(s *Sample) uint64  { return s.Sent }

// counterAt returns a counter at time t, not before the first sample. A counter is constant over the points of one
// sample, and is assumed to rise linearly from the last of them to the next sample.
func counterAt(samples []Sample, t time.Duration, of func(*Sample) uint64) float64 {
	i, found := slices.BinarySearchFunc(samples, t, func(s Sample, t time.Duration) int { return cmp.Compare(s.At, t) })
	if !found {
		i--
	}
	a := &samples[i]
	stood := a.At + time.Duration(a.Count-1)*a.Step
	if t <= stood || i+1 == len(samples) {
		return float64(of(a))
	}
	b := &samples[i+1]
	share := float64(t-stood) / float64(b.At-stood)
	return float64(of(a)) + share*(float64(of(b))-float64(of(a)))
}
