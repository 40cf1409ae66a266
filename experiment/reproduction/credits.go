package reproduction

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/experiment"
	"weir/experiment/claim"
	"weir/experiment/report"
	"weir/experiment/result"
)

// creditsPath is the page that compares runs with and without promises and credits.
const creditsPath = tablesDir + "/credits.md"

// credits is the name of the scheme with credits, in every file.
const credits = "credits"

// bursts are the experiments whose axis `count` is the number of answers of each of burstSenders hosts.
var bursts = []string{"burst", "burst-long"}

const (
	burstSenders = 8
	burstPayload = 11500 // bytes of an answer
	burstOnLine  = 12200 // with headers
)

const creditsHead = `# Promises and credits: tables

Made by ` + "`make reproduction`" + ` from the summaries in [results/sim](../../results/sim); do not edit. Meaning of the figures:
[credits.md](../credits.md#what-the-simulator-shows). Each value is the median over the seeds.

## Bursts

One client asks 8 hosts for n answers of 11.5 KB at once, 12 times: 150 Mbit/s, 85.3 KB. Times in ms. *least*: n x 12.2 KB / C.
*Mbit/s*: n x 11.5 KB over the p99, which is about the time of a whole burst.
`

// creditsPage makes the page: bursts, claims that credits decide otherwise, figures of all schemes, slowdowns by size.
func creditsPage(root string, laws *experiment.Laws) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(creditsHead)
	files, err := laws.Tree(filepath.Join(root, filesDir))
	if err != nil {
		return nil, err
	}
	var pairs, figures, sizes bytes.Buffer
	for i := range files {
		s, err := newSection(root, laws, &files[i])
		if err != nil {
			return nil, err
		}
		doc := s.withCredits()
		switch {
		case doc == nil:
		case slices.Contains(bursts, s.file.ID):
			writeBursts(&b, doc)
		case isOverSizes(doc):
			writeSizes(&sizes, doc)
		case doc.IsTable():
			writePairs(&pairs, s.file, doc)
			writeOver(&figures, s.file, doc)
		default:
			writePairs(&pairs, s.file, doc)
			writeComparison(&figures, doc)
		}
	}
	b.WriteString("\n## Claims\n\nClaims that credits decide otherwise than the same law without them.\n\n| experiment | claim | where | without | | with credits | |\n|---|---|---|---|---|---|---|\n")
	b.Write(pairs.Bytes())
	b.WriteString("\n## Slowdown by flow size\n\np50 / p99 of the slowdown, one seed.\n")
	b.Write(sizes.Bytes())
	b.Write(figures.Bytes())
	return b.Bytes(), nil
}

// withCredits returns the simulator's results if they have runs with credits, or nil.
func (s *section) withCredits() *result.Document {
	for i := range s.columns {
		if c := &s.columns[i]; c.world == experiment.WorldSim && !c.beside && len(schemeRuns(c.doc, credits)) > 0 {
			return c.doc
		}
	}
	return nil
}

func schemeRuns(doc *result.Document, scheme string) (out []*result.Run) {
	for _, r := range doc.Runs {
		if r.Scheme == scheme {
			out = append(out, r)
		}
	}
	return out
}

// points returns the runs of a scheme by point, in the order of the runs.
func points(runs []*result.Run) (at []string, by map[string][]*result.Run) {
	by = map[string][]*result.Run{}
	for _, r := range runs {
		point := where(&result.Claim{For: r.Axes})
		if by[point] == nil {
			at = append(at, point)
		}
		by[point] = append(by[point], r)
	}
	return at, by
}

// schemesOf returns the schemes of a document, in the order of the runs.
func schemesOf(doc *result.Document) (out []string) {
	for _, r := range doc.Runs {
		if !slices.Contains(out, r.Scheme) {
			out = append(out, r.Scheme)
		}
	}
	return out
}

// medianOf returns the median of a metric over runs.
func medianOf(runs []*result.Run, path ...string) (float64, bool) {
	var values []float64
	for _, r := range runs {
		if v, ok := r.Metric(path); ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	return result.Quantile(values, 0.5), true
}

// shown words the median of a metric over runs to so many digits behind the point.
func shown(runs []*result.Run, digits int, path ...string) string {
	v, ok := medianOf(runs, path...)
	if !ok {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// writeBursts writes the table of an experiment of bursts.
func writeBursts(b *bytes.Buffer, doc *result.Document) {
	_, long := doc.Runs[0].Metric([]string{"elephants", "throughput_mbps"})
	fmt.Fprintf(b, "\n### %s\n\n`%s`\n\n| n | | least | scheme | p50 | p99 | max | max / least | drops | timeouts | Mbit/s |", doc.Experiment, report.Command(doc))
	if long {
		b.WriteString(" long flows, Mbit/s | their Jain's index |")
	}
	b.WriteString("\n|---:|---|---:|---|" + strings.Repeat("---:|", 7))
	if long {
		b.WriteString("---:|---:|")
	}
	b.WriteString("\n")
	all := map[string]map[string][]*result.Run{}
	var at []string
	for _, scheme := range schemesOf(doc) {
		here, by := points(schemeRuns(doc, scheme))
		for _, point := range here {
			if !slices.Contains(at, point) {
				at = append(at, point)
			}
		}
		all[scheme] = by
	}
	for _, point := range at {
		for _, scheme := range schemesOf(doc) {
			runs := all[scheme][point]
			if len(runs) == 0 {
				continue
			}
			count, _ := strconv.Atoi(runs[0].Axes["count"])
			n := float64(count * burstSenders)
			rate, _ := doc.Runs[0].Metric([]string{"bottleneck", "rate_mbps"})
			least := n * burstOnLine * 8 / rate / 1000
			most, _ := medianOf(runs, "mice", "fct_ms", "max")
			p99, _ := medianOf(runs, "mice", "fct_ms", "p99")
			fmt.Fprintf(b, "| %.0f | %s | %.0f | %s | %s | %.0f | %.0f | %.2f | %s | %s | %.0f |", n, runs[0].Axes["connection"], least, scheme,
				shown(runs, 0, "mice", "fct_ms", "p50"), p99, most, most/least, shown(runs, 0, "bottleneck", "drops"),
				shown(runs, 0, "mice", "timeouts"), n*burstPayload*8/p99/1000)
			if long {
				fmt.Fprintf(b, " %s | %s |", shown(runs, 1, "elephants", "throughput_mbps"), shown(runs, 3, "elephants", "jain"))
			}
			b.WriteString("\n")
		}
	}
}

// writePairs writes the claims on credits whose verdict differs from that of the same claim on a scheme without them.
func writePairs(b *bytes.Buffer, file *experiment.File, doc *result.Document) {
	for i := range file.Claims {
		with := file.Claims[i]
		if without := twin(file, with.Claim); without != nil {
			before := claim.Decide([]claim.Statement{*without}, doc, nil)
			after := claim.Decide([]claim.Statement{with}, doc, nil)
			for k := range after {
				j := slices.IndexFunc(before, func(c result.Claim) bool { return where(&c) == where(&after[k]) })
				if j < 0 || verdict(&before[j]) == verdict(&after[k]) {
					continue
				}
				left, asked := report.Sides(&before[j])
				right, askedWith := report.Sides(&after[k])
				fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", file.ID, cell("`"+without.Claim+"`"), cell(where(&after[k])),
					cell(left+", asked "+asked), verdict(&before[j]), cell(right+", asked "+askedWith), verdict(&after[k]))
			}
		}
	}
}

// twin returns the claim of a file that has another scheme in the place of credits, or nil.
func twin(file *experiment.File, text string) *claim.Statement {
	if !strings.Contains(text, credits) {
		return nil
	}
	for _, scheme := range slices.Backward(file.Schemes) {
		name := regexp.MustCompile(`\b` + regexp.QuoteMeta(scheme.Name) + `([.\[])`)
		for i := range file.Claims {
			if file.Claims[i].Claim != text && name.ReplaceAllString(file.Claims[i].Claim, credits+"$1") == text {
				return &file.Claims[i]
			}
		}
	}
	return nil
}

// sizeClasses are the columns of slowdown by size.
var sizeClasses = []struct{ key, title string }{
	{"to_1kb", "to 1 KB"}, {"to_10kb", "1 to 10 KB"}, {"to_100kb", "10 to 100 KB"}, {"to_1mb", "100 KB to 1 MB"}, {"to_10mb", "1 to 10 MB"},
	{"above_10mb", "above 10 MB"},
}

// isOverSizes reports whether the flows of an experiment have sizes of a distribution.
func isOverSizes(doc *result.Document) bool {
	_, ok := doc.Runs[0].Metric([]string{"flows", "by_size", "to_10kb", "slowdown", "p50"})
	return ok
}

// writeSizes writes the slowdown of each scheme by size and load.
func writeSizes(b *bytes.Buffer, doc *result.Document) {
	fmt.Fprintf(b, "\n### %s\n\n`%s`\n\n| load | scheme |", doc.Experiment, report.Command(doc))
	for _, c := range sizeClasses {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString(" drops |\n|---|---|" + strings.Repeat("---:|", len(sizeClasses)+1) + "\n")
	at, _ := points(doc.Runs)
	for _, point := range at {
		for _, scheme := range schemesOf(doc) {
			_, by := points(schemeRuns(doc, scheme))
			fmt.Fprintf(b, "| %s | %s |", point, scheme)
			for _, c := range sizeClasses {
				fmt.Fprintf(b, " %s / %s |", shown(by[point], 2, "flows", "by_size", c.key, "slowdown", "p50"), shown(by[point], 2, "flows", "by_size", c.key, "slowdown", "p99"))
			}
			fmt.Fprintf(b, " %s |\n", shown(by[point], 0, result.AllPorts, "drops"))
		}
	}
}

// writeOver writes the metrics of the file's line figures over their axis, for the schemes with the laws of the scheme with credits.
// An experiment of many points has no table of all figures: it would have a thousand rows.
func writeOver(b *bytes.Buffer, file *experiment.File, doc *result.Document) {
	var schemes []string
	laws := schemeRuns(doc, credits)[0].Laws
	for _, scheme := range schemesOf(doc) {
		if slices.Equal(schemeRuns(doc, scheme)[0].Laws, laws) {
			schemes = append(schemes, scheme)
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n`%s`\n", doc.Experiment, report.Command(doc))
	for _, figure := range file.Figures {
		for _, path := range figure.Line {
			var over []string // values on the axis
			var rows []string // other axes
			runs := map[[3]string][]*result.Run{}
			for _, r := range doc.Runs {
				at := maps.Clone(r.Axes)
				delete(at, figure.Over)
				row, value := where(&result.Claim{For: at}), r.Axes[figure.Over]
				if !slices.Contains(over, value) {
					over = append(over, value)
				}
				if !slices.Contains(rows, row) {
					rows = append(rows, row)
				}
				key := [3]string{r.Scheme, row, value}
				runs[key] = append(runs[key], r)
			}
			fmt.Fprintf(b, "\n`%s` over %s\n\n| | scheme | %s |\n|---|---|%s\n", path, figure.Over, strings.Join(over, " | "), strings.Repeat("---:|", len(over)))
			for _, row := range rows {
				for _, scheme := range schemes {
					fmt.Fprintf(b, "| %s | %s |", row, scheme)
					for _, value := range over {
						fmt.Fprintf(b, " %s |", shown(runs[[3]string{scheme, row, value}], 0, strings.Split(path, ".")...))
					}
					b.WriteString("\n")
				}
			}
		}
	}
}
