package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// decided returns a decision in words.
func decided(c *result.Claim) string {
	switch {
	case c.Holds == nil:
		return "undecided"
	case *c.Holds:
		return "confirmed"
	}
	return "refuted"
}

// sign returns the symbol of a decision: confirmed, refuted, not decided.
func sign(c *result.Claim) string {
	switch {
	case c.Holds == nil:
		return "?"
	case *c.Holds:
		return "✔"
	}
	return "✘"
}

// sides returns the values that were compared, seed by seed.
func sides(c *result.Claim) string {
	if len(c.Left) == 0 && len(c.Right) == 0 {
		return ""
	}
	text := "left " + perSeed(c.Left) + ", right " + perSeed(c.Right)
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
	fmt.Fprintf(w, "\nclaims (%s)\n", Counts(doc))
	causes := seen{}
	for _, s := range claimSections(doc) {
		if s.title != "" {
			fmt.Fprintf(w, "  %s (%s)\n", strings.ToLower(s.title[:1])+s.title[1:], s.counts())
		}
		said := ""
		for _, q := range s.claims {
			if q.says != "" && q.says != said {
				writeWrapped(w, "  ", "  ", quoted(q))
			}
			said = q.says
			if q.says == "" {
				writeWrapped(w, "  ", "  ", q.words())
			}
			writeWrapped(w, "    ", "    ", q.text)
			for _, c := range q.decisions {
				writeDecision(w, doc, c)
			}
			if q.because != "" {
				writeWrapped(w, "      ", "      ", "because: "+causes.once(q.because))
			}
		}
	}
}

func writeDecision(w *bytes.Buffer, doc *result.Document, c *result.Claim) {
	where := c.World
	if len(c.For) > 0 {
		where += " " + pointTitle(c.For)
	}
	if how := Conditions(doc, c); how != "" {
		where += " (" + how + ")"
	}
	var parts []string
	for _, text := range []string{sides(c), c.Why} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	writeWrapped(w, "    "+sign(c)+" ", "      ", where+": "+strings.Join(parts, "; "))
}

// seen has the texts that were written before: several claims may have one cause.
type seen map[string]bool

// once returns a text in full the first time only.
func (s seen) once(text string) string {
	if s[text] {
		return "as above"
	}
	s[text] = true
	return text
}

// writeWrapped writes a text in lines of at most Width, the first after one prefix and the others after another.
func writeWrapped(w *bytes.Buffer, first, other, text string) {
	for i, line := range wrap(text, Width-utf8.RuneCountInString(first)) {
		if i == 0 {
			fmt.Fprintln(w, first+line)
			continue
		}
		fmt.Fprintln(w, other+line)
	}
}

// claimSection has the claims of one source: the paper, this project, or neither.
type claimSection struct {
	title  string // "" for claims without a source
	claims []claimGroup
}

// claimGroup has the decisions on one claim.
type claimGroup struct {
	text, says, because string
	paper               bool
	decisions           []*result.Claim
}

// words returns the claim without its formula.
func (q *claimGroup) words() string {
	c, err := claim.Parse(q.text)
	if err != nil {
		return q.text
	}
	return c.Words()
}

// quoted returns the statement behind a claim; the paper's in quotation marks.
func quoted(q claimGroup) string {
	if q.paper {
		return "“" + q.says + "”"
	}
	return q.says
}

// claimSections returns the paper's claims first, then this project's, then the others.
func claimSections(doc *result.Document) []claimSection {
	sections := []claimSection{{title: "The paper's claims"}, {title: "What this project asks"}, {title: "Other claims"}}
	last := -1
	for _, c := range claimOrder(doc) {
		at := 2
		switch {
		case c.Ours != "":
			at = 1
		case c.Paper+c.Source != "":
			at = 0
		}
		s := &sections[at]
		n := len(s.claims)
		if at != last || n == 0 || s.claims[n-1].text != c.Claim || s.claims[n-1].says != c.Paper+c.Ours {
			s.claims = append(s.claims, claimGroup{text: c.Claim, says: c.Paper + c.Ours, paper: c.Paper != ""})
			n++
		}
		last = at
		q := &s.claims[n-1]
		q.decisions = append(q.decisions, c)
		if c.Holds != nil && !*c.Holds {
			q.because = c.Because
		}
	}
	sections = slices.DeleteFunc(sections, func(s claimSection) bool { return len(s.claims) == 0 })
	if len(sections) == 1 && sections[0].title == "Other claims" {
		sections[0].title = ""
	}
	return sections
}

// counts returns the numbers of the section's decisions, by verdict.
func (s *claimSection) counts() string {
	var all []*result.Claim
	for _, q := range s.claims {
		all = append(all, q.decisions...)
	}
	return countDecisions(all)
}

// claimOrder puts all decisions on one claim next to each other.
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

// Counts returns how many claims held: "4 confirmed, 1 refuted, 2 undecided".
func Counts(doc *result.Document) string {
	return countDecisions(claimOrder(doc))
}

func countDecisions(claims []*result.Claim) string {
	n := map[string]int{}
	for _, c := range claims {
		n[decided(c)]++
	}
	return fmt.Sprintf("%d confirmed, %d refuted, %d undecided", n["confirmed"], n["refuted"], n["undecided"])
}

// crowded is the share of busy processors above which the machine may limit the results.
const crowded = 0.95

// madeOtherwise returns notes on how a run was made, if it was made under other conditions.
func madeOtherwise(doc *result.Document, r *result.Run) []string {
	var out []string
	if r.By != nil && r.By.Weir != doc.Weir {
		out = append(out, fmt.Sprintf("made earlier, by weir %s", r.By.Weir))
	}
	if r.By != nil && r.By.Kernel != doc.Host.Kernel {
		out = append(out, fmt.Sprintf("made earlier, on Linux %s", r.By.Kernel))
	}
	if isCrowded(r) {
		out = append(out, fmt.Sprintf("the processors were more than %.0f %% busy for at least a tenth of the time: the machine may have limited the results",
			100*crowded))
	}
	return out
}

// runNote is a note with the number of runs that it applies to.
type runNote struct {
	text string
	runs int
}

// runNotes collects the notes on the runs, each once.
func runNotes(doc *result.Document) []runNote {
	runs := map[string]int{}
	for _, r := range doc.Runs {
		for _, u := range r.UnmetTexts() {
			runs[u]++
		}
		for _, note := range madeOtherwise(doc, r) {
			runs[note]++
		}
		if r.Partial {
			runs["the run was cut short: its values cover the part that ran"]++
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
