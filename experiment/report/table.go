package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/experiment/result"
)

// Width is the number of columns of a table, unless one name and one value need more.
const Width = 120

// Table writes the results for a terminal: a table for each group and port with a row for each scheme at each point on the axes. Then come the claims, the settings that could not be made and the skipped schemes. A value is the
// median over seeds, with smallest..largest if they differ. It writes no colours, so that the text is the same in
// a file.
func Table(w io.Writer, doc *result.Document) error {
	out := &bytes.Buffer{}
	writeHead(out, doc)
	parts := blocks(doc)
	worlds := worldNames(doc)
	for _, s := range subjects(doc) {
		if s = s.shown(doc); len(s.columns) > 0 {
			writeSubject(out, s, parts, worlds)
		}
	}
	writeParams(out, doc)
	writeClaims(out, doc)
	writeTrouble(out, doc)
	_, err := w.Write(out.Bytes())
	return err
}

func writeHead(w *bytes.Buffer, doc *result.Document) {
	writeHeadline(w, doc)
	fmt.Fprintf(w, "%s: %s, weir %s on Linux %s, %s\n", doc.Experiment, count(len(doc.Runs), "run"),
		doc.Weir, doc.Host.Kernel, count(doc.Host.CPUs, "CPU"))
	for _, world := range worldNames(doc) {
		for _, line := range wrap(worldLine(doc, world), Width) {
			fmt.Fprintln(w, line)
		}
	}
}

// writeHeadline writes the verdict, before everything else.
func writeHeadline(w *bytes.Buffer, doc *result.Document) {
	text := Headline(doc)
	if text == "" {
		return
	}
	for _, line := range wrap(text, Width) {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
}

// worldLine returns the conditions of a world: scale, round trip, payload share.
func worldLine(doc *result.Document, world string) string {
	var rtt []float64
	var seeds []string
	scale := 1.0
	var shares []float64
	for _, r := range doc.Runs {
		if r.World != world {
			continue
		}
		scale, shares = r.Scale, append(shares, 100*r.PayloadShare)
		if r.RTTus != nil {
			rtt = append(rtt, *r.RTTus)
		}
		if s := fmt.Sprint(r.Seed); !slices.Contains(seeds, s) {
			seeds = append(seeds, s)
		}
	}
	text := fmt.Sprintf("%s: seeds %s", world, strings.Join(seeds, ", "))
	if len(seeds) > 1 {
		text += " (shown: median, smallest..largest)"
	}
	if scale != 1 {
		text += fmt.Sprintf("; ran %s times slower at 1/%s of the rates, values are scaled back", number(scale), number(scale))
	}
	if len(rtt) > 0 {
		middle, span := spread(rtt)
		text += strings.TrimRight("; idle RTT "+middle+" us "+span, " ")
	}
	if low := slices.Min(shares); low > 0 {
		text += "; a full link carries " + fmt.Sprintf("%.1f", low)
		if high := slices.Max(shares); high > low {
			text += fmt.Sprintf(" to %.1f", high)
		}
		text += " % payload"
	}
	return text + busyText(doc, world)
}

// busyText returns how busy the machine was.
func busyText(doc *result.Document, world string) string {
	var mean []float64
	most := 0.0
	for _, r := range doc.Runs {
		if r.World == world && r.Busy != nil {
			mean = append(mean, 100*r.Busy.Mean)
			most = max(most, 100*r.Busy.Max)
		}
	}
	if len(mean) == 0 {
		return ""
	}
	middle, span := spread(mean)
	return strings.TrimRight("; processors busy "+middle+" % "+span, " ") + fmt.Sprintf(" of the time, %.0f %% in the busiest second", most)
}

// writeParams writes the configuration of each scheme's laws.
func writeParams(w *bytes.Buffer, doc *result.Document) {
	head := "\nlaws\n"
	for _, scheme := range schemeNames(doc) {
		text := params(doc, scheme)
		if text == "" {
			continue
		}
		fmt.Fprint(w, head)
		head = ""
		for _, line := range wrap(scheme+": "+text, Width-2) {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

// params lists a scheme's parameters: "not_ect pass, threshold 25KB or 50KB". Values of an axis are shown with the
// runs.
func params(doc *result.Document, scheme string) string {
	values := map[string][]string{}
	for _, r := range doc.Runs {
		for name, v := range r.Params {
			if _, isAxis := r.Axes[name]; isAxis || r.Scheme != scheme {
				continue
			}
			if text := plain(v); !slices.Contains(values[name], text) {
				values[name] = append(values[name], text)
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+" "+strings.Join(values[name], " or "))
	}
	return strings.Join(out, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeSubject writes one table, in several pieces if its columns do not fit next to each other. A column with the
// same value in every row is written once, below.
func writeSubject(w *bytes.Buffer, s subject, parts []*block, worlds []string) {
	columns, rows, same := s.grid(parts, worlds)
	first := utf8.RuneCountInString(s.title())
	for _, r := range rows {
		first = max(first, utf8.RuneCountInString(r))
	}
	for from := 0; from < len(columns); {
		to, width := from, first
		for to < len(columns) && (to == from || width+2+columns[to].width() <= Width) {
			width += 2 + columns[to].width()
			to++
		}
		fmt.Fprintln(w)
		writeRow(w, s.title(), first, columns[from:to], func(c *textColumn) string { return c.name })
		writeRow(w, "", first, columns[from:to], func(c *textColumn) string { return c.unit })
		for row, label := range rows {
			writeRow(w, label, first, columns[from:to], func(c *textColumn) string { return c.text(row) })
		}
		from = to
	}
	if len(columns) == 0 {
		fmt.Fprintf(w, "\n%s\n", s.title())
	}
	if len(same) > 0 {
		for _, line := range wrap("every row: "+strings.Join(same, ", "), Width-2) {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

// grid returns the texts of a subject: its columns, the labels of their rows, and the values that are the same in
// every row. The title of a block is a row of its own, without values.
func (s subject) grid(parts []*block, worlds []string) (columns []*textColumn, rows, same []string) {
	for _, b := range parts {
		indent := ""
		if b.title != "" {
			rows, indent = append(rows, b.title), "  "
		}
		for _, c := range b.cells {
			for _, m := range s.members() {
				rows = append(rows, indent+s.rowLabel(c.label(worlds), m))
			}
		}
	}
	for _, c := range s.columns {
		t := &textColumn{column: c}
		for _, b := range parts {
			if b.title != "" {
				t.add("", "")
			}
			for _, of := range b.cells {
				for _, m := range s.members() {
					t.add(spread(m.values(c, of)))
				}
			}
		}
		if text, ok := t.constant(); ok && len(rows) > 1 {
			same = append(same, strings.TrimSpace(c.label()+" "+text))
			continue
		}
		columns = append(columns, t)
	}
	return columns, rows, same
}

// textColumn is a column as written: medians, flush right, and their ranges, flush left.
type textColumn struct {
	column
	middle, span []string
}

func (t *textColumn) add(middle, span string) {
	t.middle, t.span = append(t.middle, middle), append(t.span, span)
}

// constant returns the value that every row has.
func (t *textColumn) constant() (string, bool) {
	value := ""
	for i, v := range t.middle {
		if v == "" {
			continue
		}
		if t.span[i] != "" || value != "" && v != value {
			return "", false
		}
		value = v
	}
	return value, true
}

func (t *textColumn) text(row int) string {
	text := padLeft(t.middle[row], longest(t.middle))
	if n := longest(t.span); n > 0 {
		text += " " + pad(t.span[row], n)
	}
	return text
}

func (t *textColumn) width() int {
	return max(utf8.RuneCountInString(t.name), utf8.RuneCountInString(t.unit), utf8.RuneCountInString(t.text(0)))
}

func longest(texts []string) int {
	n := 0
	for _, t := range texts {
		n = max(n, utf8.RuneCountInString(t))
	}
	return n
}

func writeRow(w *bytes.Buffer, label string, first int, columns []*textColumn, text func(*textColumn) string) {
	line := pad(label, first)
	for _, c := range columns {
		line += "  " + padLeft(text(c), c.width())
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }

func padLeft(s string, n int) string {
	return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) + s
}

// wrap breaks a text at spaces into lines of at most width; later lines are indented.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = "   "
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
