package compare

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// The kinds of interval.
const (
	Paired = "paired" // Student's t of the differences, seed by seed
	Welch  = "welch"  // Welch's t of two independent sets of seeds
)

// Difference is the comparison of one metric of a pair.
type Difference struct {
	Metric string `json:"metric"`
	// A and B are means over NA and NB seeds.
	A          float64  `json:"mean_a"`
	B          float64  `json:"mean_b"`
	NA         int      `json:"n_a"`
	NB         int      `json:"n_b"`
	Difference float64  `json:"difference"`      // B - A
	Ratio      *float64 `json:"ratio,omitempty"` // B / A; absent when A is 0
	// Low and High bound the difference; absent when there are too few seeds.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	By   string   `json:"interval,omitempty"` // Paired or Welch
	// Significant is true if the interval does not include 0.
	Significant bool `json:"significant"`
}

// chosen returns the seeds of each side that are compared, among those with the metric, and the kind of interval.
//
// If the sides have two or more seeds in common, these are compared seed by seed: the same seed is the same
// traffic, so its effect on both sides cancels. Seeds without a partner are then left out. Otherwise all seeds
// count and the sides are treated as independent. With one seed on a side there is no interval.
func chosen(a, b map[int64]float64) (seedsA, seedsB []int64, by string) {
	seedsA, seedsB = slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))
	common := slices.DeleteFunc(slices.Clone(seedsA), func(s int64) bool { _, has := b[s]; return !has })
	few := len(seedsA) < 2 || len(seedsB) < 2
	switch {
	case len(common) >= 2:
		return common, common, Paired
	case few && len(common) > 0:
		return common, common, ""
	case few:
		return seedsA, seedsB, ""
	}
	return seedsA, seedsB, Welch
}

// difference compares the values of a metric by seed.
func difference(metric string, a, b map[int64]float64, confidence float64) Difference {
	seedsA, seedsB, by := chosen(a, b)
	x, y := at(a, seedsA), at(b, seedsB)
	out := Difference{Metric: metric, A: stat.Mean(x, nil), B: stat.Mean(y, nil), NA: len(x), NB: len(y), By: by}
	out.Difference = out.B - out.A
	if out.A != 0 {
		out.Ratio = new(out.B / out.A)
	}
	var low, high float64
	switch by {
	case Paired:
		low, high = paired(x, y, confidence)
	case Welch:
		low, high = welch(x, y, confidence)
	default:
		return out
	}
	out.Low, out.High = &low, &high
	out.Significant = low > 0 || high < 0
	return out
}

func at(values map[int64]float64, seeds []int64) []float64 {
	var out []float64
	for _, s := range seeds {
		out = append(out, values[s])
	}
	return out
}

// Same reports whether all seeds have the same values.
func (d *Difference) Same() bool {
	return d.Difference == 0 && (d.Low == nil || *d.Low == *d.High)
}

// paired returns the confidence interval of the mean of y - x.
func paired(x, y []float64, confidence float64) (low, high float64) {
	d := make([]float64, len(x))
	for i := range x {
		d[i] = y[i] - x[i]
	}
	mean, variance := stat.MeanVariance(d, nil)
	n := float64(len(d))
	return around(mean, math.Sqrt(variance/n), n-1, confidence)
}

// welch returns the confidence interval of the difference of the means of y and x (B. L. Welch, Biometrika 34,
// 1947).
func welch(x, y []float64, confidence float64) (low, high float64) {
	meanX, varX := stat.MeanVariance(x, nil)
	meanY, varY := stat.MeanVariance(y, nil)
	n, m := float64(len(x)), float64(len(y))
	u, v := varX/n, varY/m
	if u+v == 0 {
		return meanY - meanX, meanY - meanX
	}
	freedom := (u + v) * (u + v) / (u*u/(n-1) + v*v/(m-1))
	return around(meanY-meanX, math.Sqrt(u+v), freedom, confidence)
}

// around returns the interval of Student's t around a mean with this standard error.
func around(mean, standardError, freedom, confidence float64) (low, high float64) {
	if standardError == 0 {
		return mean, mean
	}
	t := distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile((1 + confidence) / 2)
	return mean - t*standardError, mean + t*standardError
}
