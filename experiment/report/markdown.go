package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// Markdown writes the part of a documentation page about an experiment: a table of the main metrics, and the
// claims with the measured values. A value is the median over seeds, followed by smallest..largest.
func Markdown(w io.Writer, doc *result.Document) error {
	return markdown(w, doc, writeVerdicts)
}

// Measured is Markdown without the claims, for a page that refers to another page for them.
func Measured(w io.Writer, doc *result.Document) error {
	return markdown(w, doc, func(*bytes.Buffer, *result.Document) {})
}

func markdown(w io.Writer, doc *result.Document, verdicts func(*bytes.Buffer, *result.Document)) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, weir %s, Linux %s, %s.", count(len(doc.Runs), "run"), doc.Weir, doc.Host.Kernel, count(doc.Host.CPUs, "CPU"))
	for _, world := range worldNames(doc) {
		for _, part := range strings.Split(worldLine(doc, world), "; ") {
			fmt.Fprintf(&b, " %s.", strings.ToUpper(part[:1])+part[1:])
		}
	}
	b.WriteString("\n\n")
	writeOverview(&b, doc)
	writeSizes(&b, doc)
	verdicts(&b, doc)
	for _, n := range runNotes(doc) {
		if !strings.HasPrefix(n.text, "network.rtt ") { // every run in the lab has this one
			fmt.Fprintf(&b, "\n* %s (%d of %s)", n.text, n.runs, count(len(doc.Runs), "run"))
		}
	}
	text := strings.TrimRight(b.String(), "\n") + "\n"
	_, err := io.WriteString(w, text)
	return err
}

// overview is one column of the table.
type overview struct {
	head   string
	values func(v variant) []float64
}

func overviews(doc *result.Document) []overview {
	metric := func(times float64, path ...string) func(variant) []float64 {
		return func(v variant) []float64 { return v.values(path, times) }
	}
	share := func(group string) func(variant) []float64 {
		return func(v variant) []float64 {
			var out []float64
			for _, r := range v.runs {
				waited, ok := r.Metric([]string{group, "flows_with_timeout"})
				all, _ := r.Metric([]string{group, "flows"})
				if ok && all > 0 {
					out = append(out, 100*waited/all)
				}
			}
			return out
		}
	}
	var out []overview
	for _, g := range groupNames(doc) {
		if hasRates(doc, g) {
			continue
		}
		for _, m := range []struct{ head, of string }{{"mean FCT", "mean"}, {"SD", "sd"}, {"p99", "p99"}, {"max", "max"}} {
			out = append(out, overview{g + ": " + m.head + ", ms", metric(1, g, "fct_ms", m.of)})
		}
		out = append(out, overview{g + ": at a time", metric(1, g, "live", "mean")})
		out = append(out, overview{g + ": waited for a timeout, %", share(g)}, overview{g + ": unfinished", metric(1, g, "unfinished")})
	}
	for _, g := range groupNames(doc) {
		if hasRates(doc, g) {
			out = append(out, overview{g + ": Mbit/s each", metric(1, g, "goodput_mbps", "mean")})
		}
	}
	out = append(out, overview{"drops", metric(1, result.AllPorts, "drops")})
	for _, p := range portNames(doc) {
		out = append(out, overview{p + ": queue, KB", metric(1e-3, p, "queue_bytes", "mean")}, overview{"used, %", metric(100, p, "utilisation")},
			overview{"flows counted", metric(1, p, "law", "flows", "mean")}, overview{"granted each, B", metric(1, p, "law", "grant_bytes", "p50")})
	}
	return out
}

func writeOverview(b *bytes.Buffer, doc *result.Document) {
	columns := overviews(doc)
	all := variants(doc, styles(doc))
	columns = slices.DeleteFunc(columns, func(c overview) bool { // a column without values, or with zeros only
		return !slices.ContainsFunc(all, func(v variant) bool {
			return slices.ContainsFunc(c.values(v), func(x float64) bool { return x != 0 })
		})
	})
	b.WriteString("| scheme |")
	for _, c := range columns {
		b.WriteString(" " + c.head + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(columns)) + "\n")
	for _, v := range all {
		b.WriteString("| " + v.label + " |")
		for _, c := range columns {
			b.WriteString(" " + withSpread(c.values(v)) + " |")
		}
		b.WriteString("\n")
	}
}

func withSpread(values []float64) string {
	middle, span := spread(values)
	if span != "" {
		return middle + " (" + span + ")"
	}
	return middle
}

// writeVerdicts writes the claims with the measured values.
func writeVerdicts(b *bytes.Buffer, doc *result.Document) {
	var causes []string
	for _, s := range claimSections(doc) {
		title := s.title
		if title == "" {
			title = "Claims"
		}
		fmt.Fprintf(b, "\n**%s**: %s.\n\n| | where | measured | asked | |\n|---|---|---|---|---|\n", title, s.counts())
		for _, q := range s.claims {
			says := "`" + q.text + "`"
			if q.says != "" {
				says = quoted(q) + ": " + says
			}
			note := ""
			if q.because != "" {
				if i := slices.Index(causes, q.because); i >= 0 {
					note = fmt.Sprintf(" [%d]", i+1)
				} else {
					causes = append(causes, q.because)
					note = fmt.Sprintf(" [%d]", len(causes))
				}
			}
			for i, c := range q.decisions {
				if i > 0 {
					says = ""
				}
				writeVerdict(b, doc, says, note, c)
			}
		}
	}
	for i, text := range causes {
		if i == 0 {
			b.WriteString("\nCauses:\n")
		}
		fmt.Fprintf(b, "\n%d. %s", i+1, text)
	}
	if len(causes) > 0 {
		b.WriteString("\n")
	}
}

func writeVerdict(b *bytes.Buffer, doc *result.Document, says, note string, c *result.Claim) {
	measured, wanted := Sides(c)
	verdict := decided(c)
	if c.Holds != nil && !*c.Holds {
		verdict = "**" + verdict + "**" + note
	}
	if how := Conditions(doc, c); how != "" && c.Holds != nil {
		verdict += " (" + how + ")"
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", cellText(says), pointValues(c.For), cellText(measured), cellText(wanted), verdict)
}

// Sides returns the measured value of a claim and the asked one: medians over seeds, with smallest..largest if
// they differ. For an undecided claim the first is the reason.
func Sides(c *result.Claim) (measured, asked string) {
	if c.Holds == nil {
		return c.Why, ""
	}
	op := ""
	if parsed, err := claim.Parse(c.Claim); err == nil {
		op = parsed.Op + " "
	}
	return withSpread(c.Left), op + withSpread(c.Right)
}

// cellText escapes a text for a cell of a table.
func cellText(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ")
}

// The marks on a page around the results of an experiment.
const (
	beginMark = "<!-- results of %s -->\n"
	endMark   = "<!-- end of results -->"
)

// Into replaces the results of an experiment on a page with a text.
func Into(page []byte, experiment string, text []byte) ([]byte, error) {
	begin := fmt.Sprintf(beginMark, experiment)
	before, rest, ok := strings.Cut(string(page), begin)
	if !ok {
		return nil, fmt.Errorf("the page has no place for the results of %s: add %q and %q, on lines of their own",
			experiment, strings.TrimSpace(begin), endMark)
	}
	former, after, ok := strings.Cut(rest, endMark)
	if !ok || strings.Contains(former, "<!-- results of ") { // the end is another experiment's
		return nil, fmt.Errorf("the results of %s have no end on the page: add %q, on a line of its own", experiment, endMark)
	}
	return []byte(before + begin + "\n" + string(text) + "\n" + endMark + after), nil
}
