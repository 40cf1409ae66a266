package report

import (
	"fmt"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// Conditions says how the runs were made that a decision rests on, as it stands beside the verdict: "3 seeds", then what
// keeps it from being the experiment of the file: "shortened" (--set took a part of its traffic or its time away), "5x
// slower" (time_scale), "busy machine" (see crowded). It is empty where nothing was run.
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

// WorldConditions is Conditions of all runs of a world.
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

// isCrowded tells whether for a tenth of the time or more the processors had next to nothing to spare.
func isCrowded(r *result.Run) bool { return r.Busy != nil && r.Busy.P90 > crowded }

// shortening are the ends of keys of a file that say how long it lasts and how much it sends.
var shortening = []string{"duration", "stop", "requests", "epochs"}

// shortened tells whether some of what was changed in a file for its runs (Document.Set) says how much is done.
func shortened(set []string) bool {
	for _, s := range set {
		key, _, _ := strings.Cut(s, "=")
		if slices.Contains(shortening, key[strings.LastIndexByte(key, '.')+1:]) {
			return true
		}
	}
	return false
}

// compatible tells whether no axis has one value here and another there.
func compatible(a, b map[string]string) bool {
	for axis, v := range a {
		if w, ok := b[axis]; ok && w != v {
			return false
		}
	}
	return true
}
