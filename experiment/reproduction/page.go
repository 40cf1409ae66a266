// Package reproduction makes docs/REPRODUCTION.md: every claim of the experiment files with its verdict on the committed
// results. The same files give the same bytes.
//
//	page.go        the page
//	results.go     the committed results, and whether they are still of today's files
//	table.go       the claims of one experiment
//	blocks.go      docs/tables: the tables of measurements
//	comparison.go  docs/tables: the lab and the simulator, bridges and Open vSwitches
//	credits.go     docs/tables: with and without promises and credits
//	papers.go      the table of claims by paper
package reproduction

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"weir/experiment"
)

// Paths below the root of the repository.
const (
	filesDir   = "experiments"
	resultsDir = "results"
	tablesDir  = "docs/tables"
	// PagePath is the page of all claims.
	PagePath = "docs/REPRODUCTION.md"
)

// labEnding ends the names of pages with tables of runs in the lab whose measurements are not stored, between the
// marks of report.Into.
const labEnding = "-experiments.md"

const head = `# Reproduction

This page holds every claim of the experiments that were run so far: what was measured for it, what became of it, and the
command that measures it again. The last section names the experiments without results. The page is made by
` + "`make reproduction`" + ` from ` + "[results/](../results)" + ` and ` + "[experiments/](../experiments)" + `; do not edit it. A test compares it with
these files. A summary by paper: [what-reproduces.md](what-reproduces.md).

How to read a table:

* **claim**: its words, its place in the paper, and the figure that shows it. The command stands above the table.
* **paper**: the paper's value for the left side of the comparison. **asked**: the right side. Where two worlds have different
  right sides, each stands with what that world measured.
* A measured value is the median over the seeds, with smallest..largest behind it.
* A claim is decided on the median over the seeds of left minus right ([experiment-file.md](experiment-file.md#claims)). It is
  decided in each world and at each value of the axes that it leaves open (*where*).
* Each verdict has the conditions of its runs: the number of seeds, and any difference from the file on a quiet machine.
  *shortened*: ` + "`--set`" + ` cut the time or the requests. *5x slower*: a fifth of the rates in five times the time (time_scale).
  *busy machine*: in a tenth of the seconds or more, less than 5 % of the processors' time was idle.
`

// Page returns the page, made from the files below the root of the repository.
func Page(root string, laws *experiment.Laws) ([]byte, error) {
	files, err := laws.Tree(filepath.Join(root, filesDir))
	if err != nil {
		return nil, err
	}
	var sections []*section
	var without []string
	for i := range files {
		s, err := newSection(root, laws, &files[i])
		if err != nil {
			return nil, err
		}
		if len(s.columns) == 0 && s.labPage == "" {
			without = append(without, fmt.Sprintf("%s ([file](%s))", s.file.ID, s.link))
			continue
		}
		sections = append(sections, s)
	}
	var b bytes.Buffer
	b.WriteString(head)
	writeContents(&b, sections)
	for _, part := range laws.Parts() {
		heading := "\n## " + part + "\n"
		for _, s := range sections {
			if s.part == part {
				b.WriteString(heading)
				heading = ""
				s.write(&b)
			}
		}
	}
	if len(without) > 0 {
		fmt.Fprintf(&b, "\n## Without results\n\nNo results are committed yet of:\n\n* %s\n", strings.Join(without, "\n* "))
	}
	return b.Bytes(), nil
}

// writeContents lists the experiments with the verdicts on their claims.
func writeContents(b *bytes.Buffer, sections []*section) {
	marked := false
	b.WriteString("\n| experiment | of | simulator: confirmed / refuted / undecided | lab |\n|---|---|---|---|\n")
	for _, s := range sections {
		lab := s.counts(experiment.WorldLab)
		if lab == "" && s.labPage != "" {
			lab = "[tables](" + s.labPage + ")"
		}
		sim := s.counts(experiment.WorldSim)
		marked = marked || strings.HasSuffix(sim, atLabScale)
		fmt.Fprintf(b, "| [%s](#%s) | %s | %s | %s |\n", s.file.ID, strings.ToLower(s.file.ID), cell(s.file.Paper), sim, lab)
	}
	if marked {
		b.WriteString("\n(1) The simulator at the lab's scale, with the lab's lines, round trip and starts of flows.\n")
	}
}

// write writes one experiment.
func (s *section) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s\n\n%s. [File](%s).\n", s.file.ID, strings.TrimSuffix(s.file.Paper, "."), s.link)
	for i := range s.columns {
		c := &s.columns[i]
		fmt.Fprintf(b, "\n* %s: `%s` (%s, weir %s)", c.title(), c.command, c.runs(), strings.Join(c.doc.Versions(), " and "))
		if c.stale != "" {
			b.WriteString("; **" + c.stale + "**")
		}
	}
	if s.labPage != "" && s.counts(experiment.WorldLab) != "" {
		fmt.Fprintf(b, "\n* lab, an earlier weir with more seeds: tables without verdicts in [%s](%s)", strings.Split(s.labPage, "#")[0], s.labPage)
	}
	if s.labPage != "" && s.counts(experiment.WorldLab) == "" {
		fmt.Fprintf(b, "\n* lab: measured earlier, tables in [%s](%s): `weir figures %s --world lab`",
			strings.Split(s.labPage, "#")[0], s.labPage, s.file.ID)
	}
	b.WriteString("\n")
	s.writeFigures(b)
	s.writeClaims(b)
}

// writeFigures shows the figures as the paper draws them.
func (s *section) writeFigures(b *bytes.Buffer) {
	var shown []string
	for i := range s.columns {
		for _, f := range s.columns[i].figures {
			shown = append(shown, fmt.Sprintf(`<a href="%s"><img src="%s" width="290" alt="%s, %s"></a>`, f.link, f.link, f.name, s.columns[i].title()))
		}
	}
	if len(shown) > 0 {
		fmt.Fprintf(b, "\n%s\n", strings.Join(shown, "\n"))
	}
}

// labTables returns the place of the tables of an experiment's runs in the lab, as a link from docs, or "".
func labTables(root, id string) (string, error) {
	names, err := pagesNamed(root, labEnding)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", fmt.Errorf("look for tables of the lab: %w", err)
		}
		page := path.Base(tablesDir) + "/" + path.Base(name)
		switch {
		case !bytes.Contains(text, []byte("<!-- results of "+id+" -->")):
		case !bytes.Contains(text, []byte("\n## "+id+"\n")):
			return page, nil
		default:
			return page + "#" + strings.ToLower(id), nil
		}
	}
	return "", nil
}

// cell escapes a text for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "\n", " ")
}
