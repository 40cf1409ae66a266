package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"weir/experiment/compare"
)

// shortRows is the number of metrics of a pair in the short form of a comparison.
const shortRows = 10

// mostDifferent selects the metrics of the short form, by their index. It selects all that differ if they are few
// or all is true. Otherwise it selects first the main metrics (see secondary), then those whose interval does not
// include 0, then those with the largest difference relative to the larger value.
func mostDifferent(metrics []compare.Difference, all bool) map[int]bool {
	var differ []int
	for i, d := range metrics {
		if !d.Same() {
			differ = append(differ, i)
		}
	}
	if !all && len(differ) > shortRows {
		whole := map[string]bool{} // metrics of the whole run; those of a window repeat them
		for _, d := range metrics {
			whole[d.Metric] = true
		}
		slices.SortStableFunc(differ, func(i, j int) int {
			a, b := metrics[i], metrics[j]
			return cmp.Or(
				falseFirst(secondary(a.Metric, whole), secondary(b.Metric, whole)),
				falseFirst(!a.Significant, !b.Significant),
				cmp.Compare(relative(b), relative(a)),
			)
		})
		differ = differ[:shortRows]
	}
	out := map[int]bool{}
	for _, i := range differ {
		out[i] = true
	}
	return out
}

// secondary reports whether a metric repeats a main one in another form. Examples: a window's metric that the whole run has, other statistics of a distribution than mean, p50 and p99, timeouts by cause, and bytes if there is throughput.
func secondary(metric string, whole map[string]bool) bool {
	if _, rest, found := strings.Cut(metric, "."); found && whole[rest] {
		return true
	}
	last := metric[strings.LastIndexByte(metric, '.')+1:]
	return slices.Contains([]string{"sd", "min", "max", "p10", "p25", "p75", "p90", "bytes", "timeouts_floss", "timeouts_lack"}, last)
}

// relative returns the difference as a share of the larger value, 0 to 2.
func relative(d compare.Difference) float64 {
	larger := max(math.Abs(d.A), math.Abs(d.B))
	if larger == 0 {
		return 0
	}
	return math.Abs(d.Difference) / larger
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
