package main

import (
	"fmt"
	"slices"
)

// compareSlices compares neighbouring slices, with a subject and without, in Mbit/s. least: the smallest share that
// passes; 0: the row is for information.
//
// In some slices nothing arrives, also without any program of Weir. The kernel drops packets above
// net.core.netdev_max_backlog. A sender that so missed a window update, or its last segments, waits for a timer of 200 ms.
// Or the machine does not run the client. With the subject such a slice counts as a rate of 0. Without it there is no ratio.
// The row is out if there are more of them with the subject than chance explains.
func compareSlices(with, without []float64, least float64) (row, error) {
	var ratios []float64
	for i := range with {
		if without[i] > 0 {
			ratios = append(ratios, with[i]/without[i])
		}
	}
	if 2*len(ratios) < len(with) {
		return row{}, fmt.Errorf("iperf3 sent nothing in %d of %d slices without the program under test: use a quiet machine",
			len(with)-len(ratios), len(with))
	}
	slices.Sort(ratios)
	reference := median(without)
	r := row{
		ours: median(ratios) * reference, reference: reference, unit: "Mbit/s", limit: least, atLeast: least > 0,
		note: fmt.Sprintf("by the median ratio of %d neighbouring slices, half of them %.3f to %.3f; of the medians %.3f",
			len(ratios), ratios[len(ratios)/4], ratios[len(ratios)*3/4], median(with)/reference),
	}
	if more, fewer := silent(with), silent(without); more+fewer > 0 {
		r.note += fmt.Sprintf("; slices in which nothing arrived: %d, without %d", more, fewer)
		r.out = least > 0 && exceedsChance(more, fewer)
	}
	return r, nil
}

// silent counts the slices in which nothing arrived.
func silent(mbps []float64) (n int) {
	for _, rate := range mbps {
		if rate == 0 {
			n++
		}
	}
	return n
}

// exceedsChance reports whether a count is above another by more than two standard deviations of the difference of two
// Poisson variables.
func exceedsChance(count, other int) bool {
	more := count - other
	return more > 0 && more*more > 4*(count+other)
}
