package report

import (
	"fmt"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// Conditions returns how the runs behind a decision were made, for display next to the verdict. The text begins with "3 seeds"; then come the differences from the experiment of the file: "shortened" (--set reduced its traffic or its time), "5x
// slower" (time_scale), "busy machine" (see crowded). It is empty if nothing was run.
func Conditions(doc *result.Document, c *result.Claim) string {
	if len(c.Left)+len(c.Right) == 0 {
		return ""
	}
	parsed, err := claim.Parse(c.Claim)
	if err != nil {
		return ""
	}
	var schemes []string
	for _, p := range parsed.Paths() {
		schemes = append(schemes, p.Scheme)
	}
	var runs []*result.Run
	for _, r := range doc.Runs {
		if r.World == c.World && slices.Contains(schemes, r.Scheme) && compatible(r.Axes, c.For) {
			runs = append(runs, r)
		}
	}
	return conditions(doc, runs, max(len(c.Seeds), len(c.Left)))
}

// WorldConditions returns the Conditions of all runs of a world.
func WorldConditions(doc *result.Document, world string) string {
	var runs []*result.Run
	var seeds []int64
	for _, r := range doc.Runs {
		if r.World == world {
			runs = append(runs, r)
			if !slices.Contains(seeds, r.Seed) {
				seeds = append(seeds, r.Seed)
			}
		}
	}
	return conditions(doc, runs, len(seeds))
}

func conditions(doc *result.Document, runs []*result.Run, seeds int) string {
	out := []string{count(seeds, "seed")}
	if shortened(doc.Set) {
		out = append(out, "shortened")
	}
	for _, r := range runs {
		if text := number(r.Scale) + "x slower"; r.Scale != 1 && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if n := countBusy(runs); n > 0 {
		text := "busy machine"
		if n < len(runs) {
			text = fmt.Sprintf("busy machine in %d of %d runs", n, len(runs))
		}
		out = append(out, text)
	}
	if slices.ContainsFunc(runs, func(r *result.Run) bool { return r.Partial }) {
		out = append(out, "cut short")
	}
	return strings.Join(out, ", ")
}

func countBusy(runs []*result.Run) int {
	n := 0
	for _, r := range runs {
		if isCrowded(r) {
			n++
		}
	}
	return n
}

// isCrowded reports whether the processors were almost fully busy for a tenth of the time or more.
func isCrowded(r *result.Run) bool { return r.Busy != nil && r.Busy.P90 > crowded }

// shortening lists the ends of the keys of a file that determine how long it lasts and how much it sends.
var shortening = []string{"duration", "stop", "requests", "epochs"}

// shortened reports whether a change of the file for its runs (Document.Set) affects how much is done.
func shortened(set []string) bool {
	for _, s := range set {
		key, _, _ := strings.Cut(s, "=")
		if slices.Contains(shortening, key[strings.LastIndexByte(key, '.')+1:]) {
			return true
		}
	}
	return false
}

// compatible reports whether no axis has different values in a and b.
func compatible(a, b map[string]string) bool {
	for axis, v := range a {
		if w, ok := b[axis]; ok && w != v {
			return false
		}
	}
	return true
}
