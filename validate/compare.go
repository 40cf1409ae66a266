package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"weir/experiment/result"
)

// kind is the part of a metric that is compared.
type kind int

const (
	median kind = iota // over the seeds
	total              // of all seeds together: for counts
	shape              // the distribution of all flows of all seeds
)

// check is one figure that is compared, with its tolerance. It is written before the first run.
type check struct {
	metric string // as in a claim: [window.]group-or-port.metric; for a shape without the statistic
	kind   kind
	// factor is the largest allowed ratio of the larger figure to the smaller, 1 or more. 0: the figure is only
	// shown.
	factor float64
	// slack is a difference that passes with any ratio; for a shape it is a share of the flows, see apart.
	slack   float64
	schemes []string // schemes it applies to; none: all
	why     string   // the accepted difference between the programs
}

// row is a check of one scheme at one point of the axes.
type row struct {
	point string
	check check
	// By seed; for a shape the quantiles of all flows. Empty: a run lacks the figure.
	ns3, sim []float64
	// The figures that are compared. For a shape, sim is the distance of the distributions, and ns3 is 0.
	a, b float64
	// known is set if the figure is outside its tolerance by a known amount, with a proved cause.
	known *known
}

// ok reports whether the figures are within the tolerance. A missing figure is not.
func (r *row) ok() bool {
	switch {
	case r.check.factor == 0:
		return true
	case len(r.ns3) == 0 || len(r.sim) == 0:
		return false
	case r.check.kind == shape:
		return r.b <= r.check.slack
	}
	low, high := min(r.a, r.b), max(r.a, r.b)
	return high-low <= r.check.slack || low > 0 && high <= low*r.check.factor
}

// compare evaluates every check at every scheme and point. Without runs of the simulator no check is ok.
func compare(checks []check, theirs, ours []*result.Run) []row {
	var points []string
	a, b := map[string][]*result.Run{}, map[string][]*result.Run{}
	for _, r := range theirs {
		p := pointName(r)
		if len(a[p]) == 0 {
			points = append(points, p)
		}
		a[p] = append(a[p], r)
	}
	for _, r := range ours {
		b[pointName(r)] = append(b[pointName(r)], r)
	}
	var rows []row
	for _, p := range points {
		for _, c := range checks {
			if len(c.schemes) > 0 && !slices.Contains(c.schemes, a[p][0].Scheme) {
				continue
			}
			rows = append(rows, evaluate(p, c, a[p], b[p]))
		}
	}
	return rows
}

// pointName returns the scheme and the point on the axes.
func pointName(r *result.Run) string {
	parts := []string{r.Scheme}
	for _, axis := range slices.Sorted(maps.Keys(r.Axes)) {
		parts = append(parts, axis+"="+r.Axes[axis])
	}
	return strings.Join(parts, " ")
}

func evaluate(point string, c check, theirs, ours []*result.Run) row {
	r := row{point: point, check: c}
	path := strings.Split(c.metric, ".")
	if c.kind == shape {
		a, b := pooled(theirs, path), pooled(ours, path)
		r.ns3, r.sim = quantiles(a), quantiles(b)
		if len(a) > 0 && len(b) > 0 {
			r.b = apart(a, b, c.factor)
		}
		return r
	}
	r.ns3, r.sim = bySeed(theirs, path), bySeed(ours, path)
	r.a, r.b = together(r.ns3, c.kind), together(r.sim, c.kind)
	return r
}

// bySeed returns a metric of every run; nothing if a run lacks it.
func bySeed(runs []*result.Run, path []string) []float64 {
	var out []float64
	for _, r := range runs {
		v, ok := r.Metric(path)
		if !ok {
			return nil
		}
		out = append(out, v)
	}
	return out
}

// pooled returns the sorted values of all runs together; nothing if a run lacks them.
func pooled(runs []*result.Run, path []string) []float64 {
	var out []float64
	for _, r := range runs {
		v, ok := r.Values(path)
		if !ok {
			return nil
		}
		out = append(out, v...)
	}
	slices.Sort(out)
	return out
}

func together(values []float64, k kind) float64 {
	if len(values) == 0 {
		return 0
	}
	if k == total {
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum
	}
	return result.Quantile(slices.Sorted(slices.Values(values)), 0.5)
}

// shown are the quantiles of a shape in the table.
var shown = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1}

func quantiles(sorted []float64) []float64 {
	if len(sorted) == 0 {
		return nil
	}
	out := make([]float64, len(shown))
	for i, p := range shown {
		out[i] = result.Quantile(sorted, p)
	}
	return out
}

// apart is the distance of two distributions: the smallest share d such that for every time x,
//
//	A(x/stretch) - d <= B(x) <= A(x*stretch) + d
//
// where A and B are the shares of flows that took at most that time. It is Lévy's distance with the logarithm of
// time, at a given width. With stretch 1 it is that of Kolmogorov and Smirnov. Quantiles alone are not sufficient. If a quarter of the flows wait 200 ms for a timeout, the 74th percentile of one and the 76th of the other differ 20-fold without an error. a and b are sorted and not empty.
func apart(a, b []float64, stretch float64) float64 {
	d := 0.0
	for i, x := range a { // A(x/stretch) - B(x) is largest where A rises
		d = max(d, float64(i+1)/float64(len(a))-share(b, x*stretch))
	}
	for i, x := range b { // B(x) - A(x*stretch) is largest where B rises
		d = max(d, float64(i+1)/float64(len(b))-share(a, x*stretch))
	}
	return d
}

// share returns the share of the values that are at most x.
func share(sorted []float64, x float64) float64 {
	n, _ := slices.BinarySearchFunc(sorted, x, func(v, x float64) int {
		if v <= x {
			return -1
		}
		return 1
	})
	return float64(n) / float64(len(sorted))
}

// show prints the figures of both programs; alone: only ns-3's.
func show(w io.Writer, id string, rows []row, alone bool) {
	last := ""
	for i := range rows {
		r := &rows[i]
		if r.point != last {
			fmt.Fprintf(w, "\n%s, %s\n", id, r.point)
			last = r.point
		}
		fmt.Fprintf(w, "  %-36s ns-3 %s\n", r.check.metric, r.values(r.ns3, r.a))
		if alone {
			continue
		}
		fmt.Fprintf(w, "  %-36s sim  %s   %s\n", "", r.values(r.sim, r.b), r.verdict())
		switch {
		case r.known != nil:
			fmt.Fprintf(w, "  %-36s known difference: %s\n", "", r.known.cause)
		case !r.ok():
			fmt.Fprintf(w, "  %-36s allowed because: %s\n", "", r.check.why)
		}
	}
}

// values returns the figures of one world as text: those of each seed and the combined one, or the quantiles.
func (r *row) values(v []float64, one float64) string {
	if len(v) == 0 {
		return "absent"
	}
	var b strings.Builder
	for i, x := range v {
		if r.check.kind == shape {
			fmt.Fprintf(&b, " p%.0f %.5g", 100*shown[i], x)
		} else {
			fmt.Fprintf(&b, " %9.5g", x)
		}
	}
	switch r.check.kind {
	case median:
		fmt.Fprintf(&b, " | median %9.5g", one)
	case total:
		fmt.Fprintf(&b, " | all    %9.5g", one)
	}
	return b.String()
}

func (r *row) verdict() string {
	sign := "ok "
	switch {
	case r.known != nil:
		sign = "known"
	case !r.ok():
		sign = "OUT"
	}
	ratio := "-" // both are 0
	if r.a != 0 || r.b != 0 {
		ratio = fmt.Sprintf("%.3f", r.b/r.a)
	}
	switch {
	case len(r.ns3) == 0 || len(r.sim) == 0:
		return sign + " not measured"
	case r.check.factor == 0:
		return "ratio " + ratio
	case r.check.kind == shape:
		return fmt.Sprintf("%s distance %.3f of the flows at a factor of %g; allowed %g", sign, r.b, r.check.factor, r.check.slack)
	case r.check.slack > 0:
		return fmt.Sprintf("%s ratio %s; allowed a factor of %g, or a difference of %g", sign, ratio, r.check.factor, r.check.slack)
	}
	return fmt.Sprintf("%s ratio %s; allowed a factor of %g", sign, ratio, r.check.factor)
}
