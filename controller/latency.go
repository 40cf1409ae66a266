package controller

import "time"

// latencyBounds are the upper bounds of the buckets of a histogram, in seconds.
var latencyBounds = [...]float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.1, 1}

// latencies is a histogram of times, without allocation.
type latencies struct {
	n   [len(latencyBounds)]uint64
	all uint64
	sum time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.all++
	l.sum += d
	for i, bound := range latencyBounds {
		if d.Seconds() <= bound {
			l.n[i]++
			return
		}
	}
}

// Latencies is a histogram of times in seconds. Buckets are cumulative, by their upper bounds.
type Latencies struct {
	Count  uint64             `json:"count"`
	Sum    float64            `json:"sum_seconds"`
	Within map[float64]uint64 `json:"-"`
}

func (l *latencies) status() Latencies {
	s := Latencies{Count: l.all, Sum: l.sum.Seconds(), Within: map[float64]uint64{}}
	n := uint64(0)
	for i, bound := range latencyBounds {
		n += l.n[i]
		s.Within[bound] = n
	}
	return s
}
