package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"weir/experiment/result"
	"weir/internal/replace"
)

// Entry is an experiment whose results are in a directory below that of the index.
type Entry struct {
	Dir  string // its directory, below the index
	Part string // the heading that it is listed under
	Doc  *result.Document
}

// indexView is the input of the index's template.
type indexView struct {
	Style  template.CSS
	Counts string
	Parts  []indexPart
}

type indexPart struct {
	Title   string
	Entries []indexEntry
}

type indexEntry struct {
	Dir, ID, Paper, Counts, Command, Facts string
	Figures                                []indexFigure
	Claims                                 []indexClaim
	Skipped                                string
}

type indexFigure struct{ Name, Title string }

type indexClaim struct {
	Says, Source, Text, Because, Figure string
	Rows                                []indexRow
}

type indexRow struct{ Class, Where, Measured, Asked string }

// WriteIndex writes DIR/index.html: every experiment with small figures, its claims with their verdicts, and the
// command that repeats it. The parts are in the order given. It returns the path of the page.
func WriteIndex(dir string, parts []string, entries []Entry) (string, error) {
	t, err := template.ParseFS(templates, "templates/index.html")
	if err != nil {
		return "", fmt.Errorf("read the template of the index: %w", err)
	}
	style, err := templates.ReadFile("templates/report.css")
	if err != nil {
		return "", fmt.Errorf("read the style of the index: %w", err)
	}
	v := indexView{Style: template.CSS(style)}
	var all []*result.Claim
	for _, title := range parts {
		p := indexPart{Title: title}
		for _, e := range entries {
			if e.Part != title {
				continue
			}
			one, err := newIndexEntry(dir, e)
			if err != nil {
				return "", err
			}
			p.Entries = append(p.Entries, one)
			all = append(all, claimOrder(e.Doc)...)
		}
		if len(p.Entries) > 0 {
			v.Parts = append(v.Parts, p)
		}
	}
	v.Counts = countDecisions(all)
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return "", fmt.Errorf("write the index: %w", err)
	}
	path := filepath.Join(dir, "index.html")
	return path, replace.Bytes(path, 0o644, b.Bytes())
}

func newIndexEntry(dir string, e Entry) (indexEntry, error) {
	var file about
	if json.Unmarshal(e.Doc.File, &file) != nil {
		file = about{} // a file of another form
	}
	out := indexEntry{
		Dir: e.Dir, ID: e.Doc.Experiment, Paper: file.Paper, Counts: Counts(e.Doc), Command: Command(e.Doc),
		Facts: count(len(e.Doc.Runs), "run"),
	}
	for _, world := range worldNames(e.Doc) {
		out.Facts += "; " + worldLine(e.Doc, world)
	}
	var err error
	if out.Figures, err = thumbnails(filepath.Join(dir, e.Dir), e.Doc); err != nil {
		return out, err
	}
	causes := seen{}
	for _, section := range claimSections(e.Doc) {
		for _, q := range section.claims {
			if q.because != "" {
				q.because = causes.once(q.because)
			}
			out.Claims = append(out.Claims, newIndexClaim(q, out.Figures))
		}
	}
	var skipped []string
	for _, s := range e.Doc.Skipped {
		skipped = append(skipped, s.Scheme+": "+s.Reason)
	}
	out.Skipped = strings.Join(skipped, "; ")
	return out, nil
}

func newIndexClaim(q claimGroup, figures []indexFigure) indexClaim {
	first := q.decisions[0]
	c := indexClaim{Text: q.text, Because: q.because, Source: sourceOf(first)}
	if q.says != "" {
		c.Says = quoted(q)
	}
	var names []string
	for _, f := range figures {
		names = append(names, f.Name)
	}
	c.Figure = FigureOf(first.Figure, first.Claim, names)
	for _, d := range q.decisions {
		measured, wanted := Sides(d)
		where := pointValues(d.For)
		if where == "" {
			where = d.World
		}
		c.Rows = append(c.Rows, indexRow{decided(d), where, measured, wanted})
	}
	return c
}

// sourceOf returns the claim's place in the paper, and the paper's value.
func sourceOf(c *result.Claim) string {
	switch {
	case c.Source != "" && c.Value != "":
		return c.Source + ": " + c.Value
	case c.Value != "":
		return "paper: " + c.Value
	}
	return c.Source
}

// thumbnails lists the figures that were drawn as the paper draws them. If a file asks for none, it lists the
// first of each kind.
func thumbnails(dir string, doc *result.Document) ([]indexFigure, error) {
	files, err := filepath.Glob(filepath.Join(dir, figuresDir, "*.svg"))
	if err != nil {
		return nil, fmt.Errorf("look for figures: %w", err)
	}
	var names []string
	for _, path := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".svg"))
	}
	var out []indexFigure
	for _, a := range askedFigures(doc) {
		for _, f := range a.drawn(doc) {
			if slices.Contains(names, f.Name) {
				out = append(out, f)
			}
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, kind := range []string{"over-", "fct-", "shares-", "goodput-", "queue-"} {
		i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, kind) && !strings.Contains(n, "close-up") })
		if i >= 0 {
			out = append(out, indexFigure{names[i], names[i]})
		}
	}
	return out, nil
}

// Command returns the command that repeats the runs of a document.
func Command(doc *result.Document) string {
	text := "weir figures " + doc.Experiment
	worlds := worldNames(doc)
	if slices.Contains(worlds, "lab") {
		text += " --world " + strings.Join(worlds, ",")
	}
	text += seedsFlag(doc, slices.Contains(worlds, "lab"))
	for _, change := range doc.Set {
		text += " --set " + shellWord(change)
	}
	return text
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.,:=/@%+-]*$`)

// shellWord quotes a text for a shell, if it needs that.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// seedsFlag returns the flag for the seeds of a document, if they differ from the file's.
func seedsFlag(doc *result.Document, lab bool) string {
	var file struct {
		Seeds []int64
		Lab   struct{ Seeds []int64 }
	}
	var seeds []int64
	for _, r := range doc.Runs {
		if !slices.Contains(seeds, r.Seed) {
			seeds = append(seeds, r.Seed)
		}
	}
	slices.Sort(seeds)
	if json.Unmarshal(doc.File, &file) == nil {
		asked := file.Seeds
		if lab && len(file.Lab.Seeds) > 0 {
			asked = file.Lab.Seeds
		}
		if slices.Equal(slices.Sorted(slices.Values(asked)), seeds) {
			return ""
		}
	}
	if n := len(seeds); n > 0 && seeds[0] == 1 && seeds[n-1] == int64(n) {
		return fmt.Sprintf(" --seeds %d", n)
	}
	if len(seeds) == 1 {
		return fmt.Sprintf(" --seed %d", seeds[0])
	}
	return ""
}

// ReadDocument reads the results that Write wrote to a directory.
func ReadDocument(dir string) (*result.Document, error) {
	path := filepath.Join(dir, DocumentFile)
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	defer file.Close()
	doc, err := result.ReadJSON(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return doc, nil
}
