package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report for people: what Weir can do here, then the findings by area, each with what to
// do about it below. What is the same of several ports is one line.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "weir %s on %s: Linux %s, %s, %s\n\n", clean(r.Weir), r.Host.Name, r.Host.Release, r.Host.Arch, plural(r.Host.CPUs, "CPU"))
	for _, c := range r.Summary {
		fmt.Fprintf(&b, "%-8s %-8s %s\n", c.What, c.Can, c.Why)
	}
	area := Area("")
	for _, l := range lines(r.Findings) {
		if l.Area != area {
			area = l.Area
			fmt.Fprintf(&b, "\n%s\n", area)
		}
		text := l.Text
		if len(l.subjects) > 0 {
			text = some(l.subjects) + ": " + text
		}
		fmt.Fprintf(&b, "  %-8s %s\n", l.Level, text)
		if l.Remedy != "" {
			fmt.Fprintf(&b, "           -> %s\n", l.Remedy)
		}
	}
	count := map[Level]int{}
	for i := range r.Findings {
		count[r.Findings[i].Level]++
	}
	fmt.Fprintf(&b, "\n%d blocked, %s, %s, %d ok\n", count[Blocked], plural(count[Problem], "problem"), plural(count[Note], "note"), count[OK])
	_, err := io.WriteString(w, b.String())
	return err
}

// line is what is the same of some subjects.
type line struct {
	Finding
	subjects []string
}

// lines puts together findings that differ in their subject only, where the first of them stands. They are
// ordered by area.
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
