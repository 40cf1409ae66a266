package report

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"weir/experiment/compare"
)

// shortRows is how many metrics of a pair the short form of a comparison shows.
const shortRows = 10

// mostDifferent chooses the metrics of the short form, by their index: all that differ if they are few or all are asked
// for, else those that say most. These are first the main ones (see secondary), then those whose interval leaves 0 out,
// then those with the largest difference relative to the larger of both values.
func mostDifferent(metrics []compare.Difference, all bool) map[int]bool {
	var differ []int
	for i, d := range metrics {
		if !d.Same() {
			differ = append(differ, i)
		}
	}
	if !all && len(differ) > shortRows {
		whole := map[string]bool{} // metrics of the whole run, beside which a window says the same again
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

// secondary tells metrics that say in another way what a main one says: of a window where there is the whole run, other
// statistics of a distribution than mean, p50 and p99, timeouts by cause, and bytes beside throughput.
func secondary(metric string, whole map[string]bool) bool {
	if _, rest, found := strings.Cut(metric, "."); found && whole[rest] {
		return true
	}
	last := metric[strings.LastIndexByte(metric, '.')+1:]
	return slices.Contains([]string{"sd", "min", "max", "p10", "p25", "p75", "p90", "bytes", "timeouts_floss", "timeouts_lack"}, last)
}

// relative is the difference as a share of the larger value, 0 to 2.
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
