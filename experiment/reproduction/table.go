package reproduction

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/experiment"
	"weir/experiment/claim"
	"weir/experiment/report"
	"weir/experiment/result"
)

// title returns the name of a column.
func (c *column) title() string {
	switch {
	case c.world == experiment.WorldLab && c.ovs:
		return "lab, Open vSwitch"
	case c.world == experiment.WorldLab:
		return "lab"
	case c.beside:
		return "simulator at the lab's scale"
	}
	return "simulator"
}

// runs returns the number of runs and their seeds.
func (c *column) runs() string {
	var seeds []string
	for _, r := range c.doc.Runs {
		if s := fmt.Sprint(r.Seed); !slices.Contains(seeds, s) {
			seeds = append(seeds, s)
		}
	}
	text := fmt.Sprintf("%d runs, seeds %s", len(c.doc.Runs), strings.Join(seeds, ", "))
	if len(seeds) == 1 {
		text = fmt.Sprintf("%d runs, seed %s", len(c.doc.Runs), seeds[0])
	}
	return text
}

// atLabScale marks counts of a simulator that ran at the lab's scale.
const atLabScale = " (1)"

// counts returns the numbers of an experiment's claims by verdict in a world, or "" without results.
func (s *section) counts(world string) string {
	for i := range s.columns {
		if c := &s.columns[i]; c.world == world {
			n := map[string]int{}
			for _, d := range claim.Decide(s.file.Claims, c.doc, nil) {
				n[verdict(&d)]++
			}
			text := fmt.Sprintf("%d / %d / %d, %s", n["confirmed"], n["refuted"], n["undecided"], report.WorldConditions(c.doc, world))
			if c.beside && world == experiment.WorldSim {
				text += atLabScale
			}
			return text
		}
	}
	return ""
}

func verdict(c *result.Claim) string {
	switch {
	case c.Holds == nil:
		return "undecided"
	case *c.Holds:
		return "confirmed"
	}
	return "refuted"
}

// row is a claim at one point, with the decision of each column.
type row struct {
	where     string
	decisions []*result.Claim // by column; nil: the column does not have this point
}

// rows decides a claim in every column.
func (s *section) rows(statement claim.Statement) []row {
	var out []row
	for i := range s.columns {
		decided := claim.Decide([]claim.Statement{statement}, s.columns[i].doc, nil)
		for k := range decided {
			d := &decided[k]
			at := where(d)
			j := slices.IndexFunc(out, func(r row) bool { return r.where == at })
			if j < 0 {
				j = len(out)
				out = append(out, row{at, make([]*result.Claim, len(s.columns))})
			}
			out[j].decisions[i] = d
		}
	}
	return out
}

// asked returns the right side of a claim if it is the same in all columns.
func (r *row) asked() (text string, together bool) {
	for _, d := range r.decisions {
		if d == nil {
			continue
		}
		_, wanted := report.Sides(d)
		if wanted != "" && text != "" && wanted != text {
			return "", false
		}
		if wanted != "" {
			text = wanted
		}
	}
	return text, true
}

// where returns the point that a claim was decided at.
func where(c *result.Claim) string {
	var out []string
	for _, axis := range slices.Sorted(maps.Keys(c.For)) {
		out = append(out, c.For[axis])
	}
	return strings.Join(out, " ")
}

// undecided returns the reason why no column could decide a claim, or "" where one did.
func undecided(rows []row) string {
	why := ""
	for _, r := range rows {
		for _, d := range r.decisions {
			if d != nil && d.Holds != nil {
				return ""
			}
			if d != nil && why == "" {
				why = d.Why
			}
		}
	}
	return why
}

// writeClaims writes the table of the claims: the paper's, this project's, then the others.
func (s *section) writeClaims(b *bytes.Buffer) {
	if len(s.columns) == 0 {
		return
	}
	head := "\n| claim | where | paper | asked |"
	for i := range s.columns {
		head += " " + s.columns[i].title() + " | |"
	}
	head += "\n|---|---|---|---|" + strings.Repeat("---|---|", len(s.columns)) + "\n"
	statements := slices.Clone(s.file.Claims)
	slices.SortStableFunc(statements, func(a, b claim.Statement) int { return rank(a) - rank(b) })
	var causes []string
	var open undecidedClaims
	for _, statement := range statements {
		rows := s.rows(statement)
		if why := undecided(rows); why != "" {
			open.add(why, says(statement))
			continue
		}
		b.WriteString(head)
		head = ""
		text := says(statement) + s.figureLink(statement)
		for _, r := range rows {
			asked, together := r.asked()
			results := ""
			for i, d := range r.decisions {
				measured, decision := "", ""
				if d != nil {
					var wanted string
					if measured, wanted = report.Sides(d); wanted != "" && !together {
						measured += ", asked " + wanted
					}
					if decision = verdict(d); decision == "refuted" {
						decision = "**refuted**" + note(statement.Because, &causes)
					}
					if how := report.Conditions(s.columns[i].doc, d); how != "" && d.Holds != nil {
						decision += " (" + how + ")"
					}
				}
				results += fmt.Sprintf(" %s | %s |", cell(measured), decision)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |%s\n", cell(text), cell(r.where), cell(statement.Value), cell(asked), results)
			text, statement.Value = "", ""
		}
	}
	for i, cause := range causes {
		if i == 0 {
			b.WriteString("\nCauses:\n\n")
		}
		fmt.Fprintf(b, "%d. %s\n", i+1, strings.Join(strings.Fields(cause), " "))
	}
	open.write(b)
}

// undecidedClaims are the claims that no column could decide, by reason.
type undecidedClaims struct {
	whys   []string
	claims [][]string
}

func (u *undecidedClaims) add(why, claim string) {
	i := slices.Index(u.whys, why)
	if i < 0 {
		i = len(u.whys)
		u.whys, u.claims = append(u.whys, why), append(u.claims, nil)
	}
	u.claims[i] = append(u.claims[i], claim)
}

func (u *undecidedClaims) write(b *bytes.Buffer) {
	for i, why := range u.whys {
		fmt.Fprintf(b, "\nUndecided, because %s:\n\n", why)
		for _, c := range u.claims[i] {
			fmt.Fprintf(b, "* %s\n", c)
		}
	}
}

// rank orders the paper's claims first and the others last.
func rank(s claim.Statement) int {
	switch {
	case s.Ours != "":
		return 1
	case s.Paper+s.Source != "":
		return 0
	}
	return 2
}

// says returns a claim with its place in the paper.
func says(s claim.Statement) string {
	text := "`" + s.Claim + "`"
	switch {
	case s.Paper != "":
		text = "“" + s.Paper + "” " + text
	case s.Ours != "":
		text = s.Ours + " " + text
	}
	if s.Source != "" {
		text = s.Source + ": " + text
	}
	return text
}

// figureLink returns a link to the figure that shows a claim.
func (s *section) figureLink(statement claim.Statement) string {
	for i := range s.columns {
		var names []string
		for _, f := range s.columns[i].figures {
			names = append(names, f.name)
		}
		if name := report.FigureOf(statement.Figure, statement.Claim, names); name != "" {
			return fmt.Sprintf(" [%s](%s)", name, s.columns[i].figures[slices.Index(names, name)].link)
		}
	}
	return ""
}

// note returns the number of a cause.
func note(cause string, causes *[]string) string {
	if cause == "" {
		return ""
	}
	i := slices.Index(*causes, cause)
	if i < 0 {
		i = len(*causes)
		*causes = append(*causes, cause)
	}
	return fmt.Sprintf(" [%d]", i+1)
}
