package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report for people: what Weir can do here, then the findings by area, each with what to
// do about it below.
func (r *Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "weir %s on %s: Linux %s, %s, %s\n\n", clean(r.Weir), r.Host.Name, r.Host.Release, r.Host.Arch, plural(r.Host.CPUs, "CPU"))
	for _, c := range r.Summary {
		fmt.Fprintf(&b, "%-8s %-8s %s\n", c.What, c.Can, c.Why)
	}
	count := map[Level]int{}
	for _, area := range areas {
		first := true
		for i := range r.Findings {
			n := &r.Findings[i]
			if n.Area != area {
				continue
			}
			if first {
				fmt.Fprintf(&b, "\n%s\n", area)
				first = false
			}
			count[n.Level]++
			text := n.Text
			if n.Subject != "" {
				text = n.Subject + ": " + text
			}
			fmt.Fprintf(&b, "  %-8s %s\n", n.Level, text)
			if n.Remedy != "" {
				fmt.Fprintf(&b, "           -> %s\n", n.Remedy)
			}
		}
	}
	fmt.Fprintf(&b, "\n%d blocked, %s, %s, %d ok\n", count[Blocked], plural(count[Problem], "problem"), plural(count[Note], "note"), count[OK])
	_, err := io.WriteString(w, b.String())
	return err
}
