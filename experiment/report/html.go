package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"regexp"
	"strconv"
	"strings"

	"weir/experiment/result"
)

//go:embed templates
var templates embed.FS

// HTML writes the report: one page that needs no other files and no network. figures are those that Figures
// returned; nil omits them.
func HTML(w io.Writer, doc *result.Document, figures []Figure) error {
	t, err := template.ParseFS(templates, "templates/report.html")
	if err != nil {
		return fmt.Errorf("read the report's template: %w", err)
	}
	style, err := templates.ReadFile("templates/report.css")
	if err != nil {
		return fmt.Errorf("read the report's style: %w", err)
	}
	p := newPage(doc, figures)
	p.Style = template.CSS(style)
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("write the report of %s: %w", doc.Experiment, err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// page is the input of the template.
type page struct {
	Doc         *result.Document
	About       about
	Style       template.CSS
	Trouble     bool
	Notes       []noteView
	Facts       []fact
	ClaimCounts string
	Headline    string
	Claims      []claimSectionView
	Tables      []tableView
	Figures     []figureBlock
	Statistics  []string
	Runs        []runView
	File        string
}

// about has the keys of the experiment file that the page shows.
type about struct {
	Paper    string   `json:"paper"`
	Notes    []string `json:"notes"`
	Duration string   `json:"duration"`
}

type fact struct{ Name, Text string }

type noteView struct {
	Text     string
	Runs, Of int
}

// claimSectionView has the claims of one source.
type claimSectionView struct {
	Title, Counts string
	Claims        []claimView
}

type claimView struct {
	Says, Words, Text, Because string
	Rows                       []claimRow
}

type claimRow struct{ Class, Sign, How, Where, Left, Right, Why string }

type tableView struct {
	Title, Same string
	Columns     []fact // name and unit
	Span        int
	Rows        []tableRow
}

type tableRow struct {
	Label  string
	Head   bool
	Colour string // number of the scheme's colour
	Cells  []tableCell
}

type tableCell struct{ Middle, Span string }

// figureBlock has the figures of one point on the axes.
type figureBlock struct {
	Title   string
	Figures []figureView
}

type figureView struct {
	Name, Caption string
	SVG           template.HTML
}

func newPage(doc *result.Document, figures []Figure) *page {
	p := &page{Doc: doc, Headline: Headline(doc), ClaimCounts: Counts(doc), Claims: claimViews(doc), Tables: tableViews(doc), Statistics: statistics}
	if json.Unmarshal(doc.File, &p.About) != nil {
		p.About = about{} // a file of another form is still shown below
	}
	for _, n := range runNotes(doc) {
		p.Notes = append(p.Notes, noteView{n.text, n.runs, len(doc.Runs)})
	}
	p.Trouble = len(p.Notes)+len(doc.Skipped) > 0
	p.Facts = facts(doc, p.About)
	for _, f := range figures {
		if n := len(p.Figures); n == 0 || p.Figures[n-1].Title != f.Of {
			p.Figures = append(p.Figures, figureBlock{Title: f.Of})
		}
		last := &p.Figures[len(p.Figures)-1]
		last.Figures = append(last.Figures, figureView{f.Name, f.Caption, inline(f)})
	}
	for _, r := range doc.Runs {
		p.Runs = append(p.Runs, newRunView(r))
	}
	var file bytes.Buffer
	if len(doc.File) > 0 && json.Indent(&file, doc.File, "", "  ") == nil {
		p.File = file.String()
	}
	return p
}

func facts(doc *result.Document, a about) []fact {
	out := []fact{
		{"Runs", fmt.Sprintf("%d: %s", len(doc.Runs), strings.Join(schemeNames(doc), ", "))},
	}
	if a.Duration != "" {
		out = append(out, fact{"Duration", a.Duration})
	}
	for _, b := range []struct{ name, world string }{{"Lab", "lab"}, {"Simulator", "sim"}} {
		for _, world := range worldNames(doc) {
			if world == b.world {
				_, text, _ := strings.Cut(worldLine(doc, world), ": ")
				out = append(out, fact{b.name, text})
			}
		}
	}
	return append(out,
		fact{"Host", fmt.Sprintf("Linux %s, %s", doc.Host.Kernel, count(doc.Host.CPUs, "CPU"))},
		fact{"Weir", doc.Weir})
}

func claimViews(doc *result.Document) []claimSectionView {
	var out []claimSectionView
	causes := seen{}
	for _, section := range claimSections(doc) {
		v := claimSectionView{Title: section.title, Counts: section.counts()}
		said := ""
		for _, q := range section.claims {
			c := claimView{Text: q.text}
			if q.because != "" {
				c.Because = causes.once(q.because)
			}
			if q.says != said {
				c.Says = quoted(q)
			}
			said = q.says
			if q.says == "" {
				c.Words = q.words()
			}
			for _, d := range q.decisions {
				c.Rows = append(c.Rows, newClaimRow(doc, d))
			}
			v.Claims = append(v.Claims, c)
		}
		out = append(out, v)
	}
	return out
}

func newClaimRow(doc *result.Document, c *result.Claim) claimRow {
	row := claimRow{How: Conditions(doc, c), Class: decided(c), Sign: sign(c), Where: c.World, Left: perSeed(c.Left), Right: perSeed(c.Right), Why: c.Why}
	if len(c.For) > 0 {
		row.Where += ", " + pointTitle(c.For)
	}
	return row
}

func tableViews(doc *result.Document) []tableView {
	var out []tableView
	parts, worlds, style := blocks(doc), worldNames(doc), styles(doc)
	for _, s := range subjects(doc) {
		if s = s.shown(doc); len(s.columns) == 0 {
			continue
		}
		columns, _, same := s.grid(parts, worlds)
		t := tableView{Title: s.title(), Same: strings.Join(same, ", "), Span: len(columns) + 1}
		for _, c := range columns {
			t.Columns = append(t.Columns, fact{c.name, c.unit})
		}
		at := 0
		for _, b := range parts {
			if b.title != "" {
				t.Rows = append(t.Rows, tableRow{Label: b.title, Head: true})
				at++
			}
			for _, c := range b.cells {
				for _, m := range s.members() {
					row := tableRow{Label: s.rowLabel(c.label(worlds), m), Colour: strconv.Itoa(style(c).colour)}
					for _, column := range columns {
						row.Cells = append(row.Cells, tableCell{column.middle[at], column.span[at]})
					}
					t.Rows = append(t.Rows, row)
					at++
				}
			}
		}
		out = append(out, t)
	}
	return out
}

var (
	hexColour = regexp.MustCompile(`#[0-9A-F]{6}`)
	svgHead   = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
)

// inline makes a figure part of the page. The figure gets the page's width and the page's colours, so that it is
// readable on a dark screen too.
func inline(f Figure) template.HTML {
	head := fmt.Sprintf(`<svg viewBox="0 0 %v %v" role="img" aria-label="%s">`, float64(figureWidth), f.Height,
		template.HTMLEscapeString(f.Title))
	body := svgHead.ReplaceAllLiteralString(string(f.SVG), head)
	return template.HTML(hexColour.ReplaceAllStringFunc(body, pageColour))
}

// pageColour returns the page's name for a colour of the figures. Translucent colours are rounded in the SVG, so
// it takes the nearest.
func pageColour(hex string) string {
	var c color.NRGBA
	if _, err := fmt.Sscanf(hex, "#%02X%02X%02X", &c.R, &c.G, &c.B); err != nil {
		return hex
	}
	near := func(d color.NRGBA) bool {
		return distance(c.R, d.R) <= 4 && distance(c.G, d.G) <= 4 && distance(c.B, d.B) <= 4
	}
	for name, d := range map[string]color.NRGBA{"ink": inkColor, "grid": gridColor, "ref": refColor, "paper": paper} {
		if near(d) {
			return "var(--" + name + ")"
		}
	}
	for i, d := range palette {
		if near(d) {
			return fmt.Sprintf("var(--s%d)", i)
		}
	}
	return hex
}

func distance(a, b uint8) int { return max(int(a)-int(b), int(b)-int(a)) }
