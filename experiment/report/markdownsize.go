package report

import (
	"bytes"
	"fmt"
	"strings"

	"weir/experiment/result"
)

// writeSizes writes a table of slowdowns by the size of flows, for each group with several size classes.
func writeSizes(b *bytes.Buffer, doc *result.Document) {
	for _, g := range groupNames(doc) {
		if !anyRun(doc, func(r *result.Run) bool { return r.Groups[g] != nil && r.Groups[g].BySize != nil }) {
			continue
		}
		classes := append([][2]string{{"", "all sizes"}}, result.SizeClasses()...)
		fmt.Fprintf(b, "\nSlowdown of %s by size, p50 / p99:\n\n| scheme |", g)
		for _, c := range classes {
			b.WriteString(" " + c[1] + " |")
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(classes)) + "\n")
		for _, v := range variants(doc, styles(doc)) {
			b.WriteString("| " + v.label + " |")
			for _, c := range classes {
				path := []string{g, "slowdown"}
				if c[0] != "" {
					path = []string{g, "by_size", c[0], "slowdown"}
				}
				p50, _ := spread(v.values(append(path[:len(path):len(path)], "p50"), 1))
				p99, _ := spread(v.values(append(path[:len(path):len(path)], "p99"), 1))
				b.WriteString(" " + p50 + " / " + p99 + " |")
			}
			b.WriteString("\n")
		}
	}
}
