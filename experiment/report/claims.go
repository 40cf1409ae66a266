package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/experiment/result"
)

// sign is how a decision is shown: held, refuted, not decided.
func sign(c *result.Claim) string {
	switch {
	case c.Holds == nil:
		return "?"
	case *c.Holds:
		return "✔"
	}
	return "✘"
}

// sides tells what was compared, seed by seed.
func sides(c *result.Claim) string {
	if len(c.Left) == 0 && len(c.Right) == 0 {
		return ""
	}
	text := "left " + perSeed(c.Left) + ", right " + perSeed(c.Right)
	if len(c.Seeds) > 1 {
		text += " (seeds " + strings.Trim(fmt.Sprint(c.Seeds), "[]") + ")"
	}
	return text
}

func perSeed(values result.PerSeed) string {
	var out []string
	for _, v := range values {
		out = append(out, number(v))
	}
	if len(out) > 1 && len(slices.Compact(slices.Clone(out))) == 1 {
		return out[0]
	}
	return strings.Join(out, " ")
}

func writeClaims(w *bytes.Buffer, doc *result.Document) {
	if len(doc.Claims) == 0 {
		return
	}
	fmt.Fprintf(w, "\nclaims (%s)\n", claimCounts(doc))
	last := ""
	for _, c := range claimOrder(doc) {
		if c.Claim != last {
			for _, line := range wrap(c.Claim, Width-2) {
				fmt.Fprintln(w, "  "+line)
			}
			last = c.Claim
		}
		where := c.World
		if len(c.For) > 0 {
			where += " " + pointTitle(c.For)
		}
		parts := []string{}
		for _, text := range []string{sides(c), c.Why} {
			if text != "" {
				parts = append(parts, text)
			}
		}
		for j, line := range wrap(where+": "+strings.Join(parts, "; "), Width-6) {
			lead := "      "
			if j == 0 {
				lead = "    " + sign(c) + " "
			}
			fmt.Fprintln(w, lead+line)
		}
	}
}

// claimOrder brings together what was decided of one claim.
func claimOrder(doc *result.Document) []*result.Claim {
	var texts []string
	out := make([]*result.Claim, len(doc.Claims))
	for i := range doc.Claims {
		out[i] = &doc.Claims[i]
		texts = append(texts, out[i].Claim)
	}
	slices.SortStableFunc(out, func(a, b *result.Claim) int {
		return slices.Index(texts, a.Claim) - slices.Index(texts, b.Claim)
	})
	return out
}

// claimCounts says how many claims held: "4 held, 1 refuted, 2 undecided".
func claimCounts(doc *result.Document) string {
	held, refuted, open := 0, 0, 0
	for i := range doc.Claims {
		switch h := doc.Claims[i].Holds; {
		case h == nil:
			open++
		case *h:
			held++
		default:
			refuted++
		}
	}
	return fmt.Sprintf("%d held, %d refuted, %d undecided", held, refuted, open)
}

// runNote is something said of a number of runs.
type runNote struct {
	text string
	runs int
}

// runNotes collects what the runs did not get, each thing once.
func runNotes(doc *result.Document) []runNote {
	runs := map[string]int{}
	for _, r := range doc.Runs {
		for _, u := range slices.Compact(slices.Sorted(slices.Values(r.Unmet))) {
			runs[u]++
		}
		if r.Partial {
			runs["the run was cut short: its values are of the part that was run"]++
		}
	}
	var out []runNote
	for _, text := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, runNote{text, runs[text]})
	}
	return out
}

func writeTrouble(w *bytes.Buffer, doc *result.Document) {
	if notes := runNotes(doc); len(notes) > 0 {
		fmt.Fprintln(w, "\nnot as asked for")
		for _, n := range notes {
			for _, line := range wrap(fmt.Sprintf("%s (%d of %s)", n.text, n.runs, count(len(doc.Runs), "run")), Width-2) {
				fmt.Fprintln(w, "  "+line)
			}
		}
	}
	if len(doc.Skipped) > 0 {
		fmt.Fprintln(w, "\nskipped")
		for _, s := range doc.Skipped {
			for _, line := range wrap(s.Scheme+" in "+s.World+": "+s.Reason, Width-2) {
				fmt.Fprintln(w, "  "+line)
			}
		}
	}
}
