package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/experiment/compare"
)

// Comparison writes the comparison of two results for a terminal. First come the differences of the files, then for each scheme
// at each point on the axes the metrics that differ, with their intervals, those that do not, and the
// distributions. Without all it writes for each pair at most the shortRows metrics that differ most.
func Comparison(w io.Writer, c *compare.Comparison, all bool) error {
	out := &bytes.Buffer{}
	comparisonHead(out, c)
	for _, p := range c.Pairs {
		writePair(out, p, c.Confidence, all)
	}
	for _, only := range []struct {
		side  string
		cells []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(only.cells) > 0 {
			fmt.Fprintf(out, "\nonly in %s\n", only.side)
		}
		for _, name := range only.cells {
			fmt.Fprintln(out, "  "+name)
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func comparisonHead(w *bytes.Buffer, c *compare.Comparison) {
	type side struct {
		name string
		in   compare.Input
	}
	sides := []side{{"A", c.A}, {"B", c.B}}
	if c.A.Name == c.B.Name {
		sides = []side{{"A and B", c.A}}
	}
	for _, side := range sides {
		in := side.in
		text := fmt.Sprintf("%s: %s, %s of %s, weir %s on Linux %s", side.name, in.Name, count(in.Runs, "run"), in.Experiment,
			strings.Join(in.Weir, ", "), strings.Join(in.Kernels, ", "))
		if in.Partial > 0 {
			text += fmt.Sprintf("; %d runs cut short, not compared", in.Partial)
		}
		writeWrapped(w, "", "", text)
		if len(in.Fatal) > 0 {
			more := ""
			if n := len(in.Fatal) - 4; n > 0 {
				more = fmt.Sprintf("; and %d more", n)
			}
			writeWrapped(w, "", "", fmt.Sprintf("%s: metrics are left out, because %s%s", side.name, strings.Join(in.Fatal[:min(len(in.Fatal), 4)], "; "), more))
		}
	}
	if len(c.Files) > 0 {
		var changes []string
		for _, f := range c.Files[:min(len(c.Files), 8)] {
			changes = append(changes, fmt.Sprintf("%s %s, %s", f.Key, fileValue(f.A), fileValue(f.B)))
		}
		if more := len(c.Files) - len(changes); more > 0 {
			changes = append(changes, fmt.Sprintf("and %d more", more))
		}
		writeWrapped(w, "", "", "files differ (A, B): "+strings.Join(changes, "; "))
	}
	level := number(100*c.Confidence) + " %"
	if c.Intervals == 0 {
		writeWrapped(w, "", "", noIntervals(c))
		return
	}
	writeWrapped(w, "", "", fmt.Sprintf("Means over seeds. Intervals: %s of B - A, by Student's t; * where 0 is outside: %d of %d intervals. "+
		"Chance alone would give about %s.", level, c.Significant, c.Intervals, number(float64(c.Intervals)*(1-c.Confidence))))
}

// noIntervals returns the reason why there are no intervals.
func noIntervals(c *compare.Comparison) string {
	single := func(p *compare.Pair) bool { return len(p.SeedsA) < 2 || len(p.SeedsB) < 2 }
	if slices.ContainsFunc(c.Pairs, single) {
		return "Means over seeds. No intervals: they need two seeds or more on both sides. With one, a difference may be " +
			"chance: run both again with --seeds 3 or more."
	}
	return "Means over seeds. No intervals: no metric differs."
}

// fileValue returns a value of a file, "-" if it is not set.
func fileValue(v string) string {
	if v == "" {
		return "-"
	}
	return v
}

func writePair(w *bytes.Buffer, p *compare.Pair, confidence float64, all bool) {
	fmt.Fprintln(w)
	if name := p.A.String(); name == p.B.String() {
		writeWrapped(w, "", "", name+ofSeeds(p))
	} else {
		writeWrapped(w, "", "", fmt.Sprintf("A %s; B %s%s", name, p.B, ofSeeds(p)))
	}
	rows := [][]string{{"", "A", "B", "B - A", "B / A", number(100*confidence) + " % of B - A"}}
	var same []string
	shown := mostDifferent(p.Metrics, all)
	left := 0
	for i, d := range p.Metrics {
		if d.Same() {
			same = append(same, d.Metric+" "+number(d.A))
			continue
		}
		if !shown[i] {
			left++
			continue
		}
		ratio, interval := "-", "-"
		if d.Ratio != nil {
			ratio = number(*d.Ratio)
		}
		if d.Low != nil {
			interval = number(*d.Low) + " .. " + number(*d.High)
			if d.Significant {
				interval += " *"
			}
		}
		if n := note(d, p); n != "" {
			interval += " " + n
		}
		rows = append(rows, []string{d.Metric, number(d.A), number(d.B), number(d.Difference), ratio, interval})
	}
	if len(rows) > 1 {
		writeColumns(w, rows)
	}
	switch {
	case len(rows) == 1:
		fmt.Fprintf(w, "  no difference in %s\n", count(len(same), "metric"))
	case left > 0:
		writeWrapped(w, "  ", "  ", fmt.Sprintf("not shown: %s that differ, %d that do not, %d of one side only; --all shows them",
			count(left, "metric"), len(same), len(p.OnlyA)+len(p.OnlyB)))
	case len(same) > 0:
		writeWrapped(w, "  ", "  ", "the same: "+strings.Join(same, ", "))
	}
	if left == 0 {
		writeOneSided(w, p)
	}
	for _, d := range p.Distributions {
		if d.KS > 0 {
			writeDistribution(w, d)
		}
	}
}

// writeOneSided lists the metrics that one side lacks.
func writeOneSided(w *bytes.Buffer, p *compare.Pair) {
	if len(p.OnlyA) > 0 {
		writeWrapped(w, "  ", "  ", "in A only: "+strings.Join(p.OnlyA, ", "))
	}
	if len(p.OnlyB) > 0 {
		writeWrapped(w, "  ", "  ", "in B only: "+strings.Join(p.OnlyB, ", "))
	}
}

// ofSeeds returns the seeds that are compared, and how many are left out.
func ofSeeds(p *compare.Pair) string {
	text := "; " + seedList(p.SeedsA)
	switch {
	case p.By == compare.Welch:
		text = fmt.Sprintf("; A %s, B %s, not paired", seedList(p.SeedsA), seedList(p.SeedsB))
	case !slices.Equal(p.SeedsA, p.SeedsB):
		text = fmt.Sprintf("; A %s, B %s", seedList(p.SeedsA), seedList(p.SeedsB))
	}
	if left := len(p.A.Seeds) - len(p.SeedsA); left > 0 {
		text += fmt.Sprintf("; %s of A left out", count(left, "seed"))
	}
	if left := len(p.B.Seeds) - len(p.SeedsB); left > 0 {
		text += fmt.Sprintf("; %s of B left out", count(left, "seed"))
	}
	return text
}

// seedList returns seeds with consecutive ones as a range: "seeds 1..3, 7".
func seedList(seeds []int64) string {
	var parts []string
	for i := 0; i < len(seeds); {
		j := i
		for j+1 < len(seeds) && seeds[j+1] == seeds[j]+1 {
			j++
		}
		if j > i+1 {
			parts = append(parts, fmt.Sprintf("%d..%d", seeds[i], seeds[j]))
		} else {
			j = i
			parts = append(parts, fmt.Sprint(seeds[i]))
		}
		i = j + 1
	}
	if len(seeds) == 1 {
		return "seed " + parts[0]
	}
	return "seeds " + strings.Join(parts, ", ")
}

// note returns a remark on a metric if it was compared over fewer seeds, or not paired.
func note(d compare.Difference, p *compare.Pair) string {
	switch {
	case d.NA == len(p.SeedsA) && d.NB == len(p.SeedsB):
		return ""
	case d.By == compare.Welch:
		return fmt.Sprintf("(not paired: %d, %d seeds)", d.NA, d.NB)
	}
	return fmt.Sprintf("(%s)", count(d.NA, "seed"))
}

// writeColumns aligns rows: the first column and the last, a text, to the left.
func writeColumns(w *bytes.Buffer, rows [][]string) {
	last := len(rows[0]) - 1
	for _, row := range rows {
		line := ""
		for i, text := range row {
			n := 0
			for _, r := range rows {
				n = max(n, utf8.RuneCountInString(r[i]))
			}
			switch i {
			case 0:
				line += pad(text, n)
			case last:
				line += "  " + text
			default:
				line += "  " + padLeft(text, n)
			}
		}
		fmt.Fprintln(w, "  "+strings.TrimRight(line, " "))
	}
}

func writeDistribution(w *bytes.Buffer, d compare.Distribution) {
	head := []string{d.Group + " FCT, ms", "flows"}
	for _, p := range d.A.P {
		head = append(head, "p"+number(100*p))
	}
	rows := [][]string{append(head, "max")}
	for _, side := range []struct {
		name string
		of   compare.Shape
	}{{"A", d.A}, {"B", d.B}} {
		row := []string{"  " + side.name, fmt.Sprint(side.of.N)}
		for _, v := range side.of.Quantiles {
			row = append(row, number(v))
		}
		rows = append(rows, append(row, number(side.of.Max)))
	}
	writeColumns(w, rows)
	text := "Kolmogorov-Smirnov distance " + number(d.KS)
	if d.BetweenA != nil && d.BetweenB != nil {
		text += fmt.Sprintf("; from seed to seed up to %s in A, %s in B", number(*d.BetweenA), number(*d.BetweenB))
	}
	writeWrapped(w, "    ", "    ", text)
}
