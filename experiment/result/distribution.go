package result

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// distribute summarises values; nil when there are none. It does not change their order.
func distribute(values []float64) *Distribution {
	n := len(values)
	if n == 0 {
		return nil
	}
	x := slices.Clone(values)
	slices.Sort(x)
	mean, sd := moments(x)
	q := func(p float64) float64 { return Quantile(x, p) }
	return &Distribution{
		N: n, Mean: mean, SD: sd, Min: x[0], Max: x[n-1],
		P10: q(0.10), P25: q(0.25), P50: q(0.50), P75: q(0.75), P90: q(0.90), P99: q(0.99),
	}
}

// moments returns mean and standard deviation of the population. It takes two passes, so that a small deviation of
// large values is not lost.
func moments(x []float64) (mean, sd float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / float64(len(x)))
}

// Quantile interpolates between order statistics as described at Distribution; x must be sorted and not empty.
func Quantile(x []float64, p float64) float64 {
	h := float64(len(x)-1) * p
	i := int(h)
	if i+1 >= len(x) {
		return x[len(x)-1]
	}
	return x[i] + (h-float64(i))*(x[i+1]-x[i])
}

// level is a value that lasted for a time, with the number of samples that saw it.
type level struct {
	value   float64
	weight  time.Duration
	samples int64
}

// distributeTime summarises a quantity over time; nil when there is no time. It sorts levels.
func distributeTime(levels []level) *Distribution {
	var total, samples int64
	mean := 0.0
	for _, l := range levels {
		total += int64(l.weight)
		samples += l.samples
		mean += l.value * float64(l.weight)
	}
	if total == 0 {
		return nil
	}
	mean /= float64(total)
	slices.SortFunc(levels, func(a, b level) int { return cmp.Compare(a.value, b.value) })
	variance := 0.0
	for _, l := range levels {
		variance += (l.value - mean) * (l.value - mean) * float64(l.weight)
	}
	d := &Distribution{
		N: int(samples), Mean: mean, SD: math.Sqrt(variance / float64(total)),
		Min: levels[0].value, Max: levels[len(levels)-1].value,
	}
	var sum int64
	next := 0
	marks := []struct {
		p  float64
		at *float64
	}{{0.10, &d.P10}, {0.25, &d.P25}, {0.50, &d.P50}, {0.75, &d.P75}, {0.90, &d.P90}, {0.99, &d.P99}}
	for _, l := range levels {
		sum += int64(l.weight)
		for next < len(marks) && float64(sum) >= marks[next].p*float64(total) {
			*marks[next].at = l.value
			next++
		}
	}
	return d
}

// expand returns every sample of the levels.
func expand(levels []level) []float64 {
	n := int64(0)
	for _, l := range levels {
		n += l.samples
	}
	out := make([]float64, 0, n)
	for _, l := range levels {
		for range l.samples {
			out = append(out, l.value)
		}
	}
	return out
}

// jain returns Jain's fairness index; nil when it is not defined (no values, or all 0).
func jain(x []float64) *float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return nil
	}
	return new(sum * sum / (float64(len(x)) * squares))
}
