package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Print writes the report for people: what Weir can do here, then the findings, each with its remedy below. Blocked features and
// problems of all areas come first, then notes by area. Findings that are OK are counted, and listed only if all is true. Equal
// findings of several ports share one line.
func (r *Report) Print(w io.Writer, all bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "weir %s on %s: Linux %s, %s, %s\n\n", clean(r.Weir), r.Host.Name, r.Host.Release, r.Host.Arch, plural(r.Host.CPUs, "CPU"))
	for _, c := range r.Summary {
		fmt.Fprintf(&b, "%-8s %-8s %s\n", c.What, c.Can, c.Why)
	}
	found := lines(r.Findings)
	if wrong := atLevels(found, Blocked, Problem); len(wrong) > 0 {
		fmt.Fprintf(&b, "\nmend first\n")
		for _, l := range wrong {
			l.print(&b)
		}
	}
	rest := atLevels(found, Note)
	if all {
		rest = atLevels(found, Note, OK)
	}
	area := Area("")
	for _, l := range rest {
		if l.Area != area {
			area = l.Area
			fmt.Fprintf(&b, "\n%s\n", area)
		}
		l.print(&b)
	}
	count := map[Level]int{}
	for i := range r.Findings {
		count[r.Findings[i].Level]++
	}
	fmt.Fprintf(&b, "\n%d blocked, %s, %s, %d ok", count[Blocked], plural(count[Problem], "problem"), plural(count[Note], "note"), count[OK])
	if !all && count[OK] > 0 {
		b.WriteString(" (-v lists them)")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// atLevels returns the lines of some levels. Blocked lines come before problems.
func atLevels(found []line, levels ...Level) (out []line) {
	for _, l := range found {
		if slices.Contains(levels, l.Level) {
			out = append(out, l)
		}
	}
	if levels[0] == Blocked {
		slices.SortStableFunc(out, func(a, b line) int { return ranks[b.Level] - ranks[a.Level] })
	}
	return out
}

func (l *line) print(b *strings.Builder) {
	text := l.Text
	if len(l.subjects) > 0 {
		text = some(l.subjects) + ": " + text
	}
	fmt.Fprintf(b, "  %-8s %s\n", l.Level, text)
	if l.Remedy != "" {
		fmt.Fprintf(b, "           -> %s\n", l.Remedy)
	}
}

// line is a finding that several subjects share.
type line struct {
	Finding
	subjects []string
}

// lines joins findings that differ only in their subject, at the place of the first one. The result is ordered by area.
func lines(findings []Finding) (out []line) {
	type same struct {
		area         Area
		level        Level
		check        string
		text, remedy string
	}
	at := map[same]int{}
	for i := range findings {
		n := &findings[i]
		key := same{n.Area, n.Level, n.Check, n.Text, n.Remedy}
		k, known := at[key]
		if !known {
			k = len(out)
			at[key] = k
			out = append(out, line{Finding: *n})
		}
		if n.Subject != "" {
			out[k].subjects = append(out[k].subjects, n.Subject)
		}
	}
	return out
}
