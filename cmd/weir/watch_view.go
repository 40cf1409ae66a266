package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"weir/agent/switchd"
)

// Colours of a terminal, by number; the terminal's palette defines them.
const (
	green  = "32"
	yellow = "33"
	red    = "31"
	dim    = "2"
	strong = "1"
	marked = "7"
)

func paint(style, text string) string { return "\x1b[" + style + "m" + text + "\x1b[0m" }

// column is a column of the table.
type column struct {
	title   string
	width   int
	left    bool // words are aligned left, numbers right
	text    func(r row) string
	compare func(a, b row) int
}

// most orders the larger number first.
func most[T cmp.Ordered](of func(r row) T) func(a, b row) int {
	return func(a, b row) int { return cmp.Compare(of(b), of(a)) }
}

func stateRank(r row) int {
	switch {
	case r.Idle():
		return 3
	case r.State == switchd.Off:
		return 0
	case r.State == switchd.Degraded:
		return 1
	}
	return 2
}

func rate(r row, of func(*switchd.Rates) float64) float64 {
	if r.Rates == nil {
		return 0
	}
	return of(r.Rates)
}

// columns in addition to the sparkline, which comes after lineAfter.
var columns = []column{
	{"PORT", portMost, true, func(r row) string { return printable(r.Port.Port) }, func(a, b row) int { return naturally(a.Port.Port, b.Port.Port) }},
	{"STATE", 8, true, func(r row) string { return stateText(r.Port) }, func(a, b row) int { return cmp.Compare(stateRank(a), stateRank(b)) }},
	{"FLOWS", 5, false, func(r row) string { return shortNumber(float64(r.Flows)) }, most(func(r row) uint32 { return r.Flows })},
	{"WINDOW", 6, false, func(r row) string { return windowText(r.Port) }, most(func(r row) uint64 { return r.GrantBytes })},
	{"TARGET", 6, false, func(r row) string { return shortBytes(uint64(r.TargetBytes)) }, most(func(r row) uint32 { return r.TargetBytes })},
	{"QUEUE", 6, false, func(r row) string { return shortBytes(queueNow(r.Port)) }, most(func(r row) uint64 { return queueNow(r.Port) })},
	{"REWR/S", 6, false, func(r row) string { t, _ := rateTexts(r.Port); return t }, most(func(r row) float64 {
		return rate(r, func(r *switchd.Rates) float64 { return r.Rewritten })
	})},
	{"DROP/S", 6, false, func(r row) string { _, t := rateTexts(r.Port); return t }, most(func(r row) float64 {
		return rate(r, func(r *switchd.Rates) float64 { return r.Drops })
	})},
}

const (
	portLeast = 5 // columns of a port's name, also if all names are shorter
	portMost  = 10
	portWide  = 26 // in a terminal of more than 120
	lineAfter = 5  // the sparkline comes after this column
	lineLeast = 8  // a shorter one is useless
)

// narrow lists the columns that are left out on a narrow terminal, in this order. Port, state and drops always stay.
var narrow = []string{"TARGET", "REWR/S", "WINDOW", "FLOWS", "QUEUE"}

func stateStyle(r row) string {
	switch {
	case r.Idle():
		return dim
	case r.State == switchd.Off:
		return red
	case r.State == switchd.Degraded:
		return yellow
	}
	return green
}

// View draws the screen.
func (m *watchModel) View() tea.View {
	lines := m.header()
	lines = append(lines, m.table()...)
	foot := m.footer()
	for len(lines) < m.height-len(foot) {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, min(len(lines), m.height-len(foot)))], foot...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	lines = lines[:min(len(lines), max(m.height, 1))]
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "weir status"
	return v
}

// header has a line for each switch; with many, only for those that are not enforced.
func (m *watchModel) header() (lines []string) {
	switch {
	case m.report == nil:
		return []string{"reading the kernel"}
	case len(m.report.Switches) == 0:
		return []string{noSwitch}
	}
	const most = 4
	for i := range m.report.Switches {
		s := &m.report.Switches[i]
		if len(m.report.Switches) > most && s.State == switchd.Enforced {
			continue
		}
		if len(lines) == most {
			lines = append(lines, fmt.Sprintf("... and more: %d switches", len(m.report.Switches)))
			break
		}
		line := fmt.Sprintf("switch %s: %s", s.Name, paint(stateStyle(row{Port: &switchd.Port{State: s.State, Word: s.Word}}), switchStateText(s)))
		if about := processText(s); about != "" {
			line += "; " + about
		}
		lines = append(lines, line)
		if s.Reason != "" && len(m.report.Switches) <= most {
			lines = append(lines, "  "+s.Reason)
		}
	}
	return append(lines, "")
}

const footerLines = 7

// tableRows returns how many ports fit on the screen.
func (m *watchModel) tableRows() int { return max(1, m.height-len(m.header())-1-footerLines) }

func (m *watchModel) table() (lines []string) {
	rows := m.sorted()
	if len(rows) == 0 {
		return nil
	}
	g := m.grid(rows)
	lines = append(lines, m.titles(g))
	at := m.index(rows)
	for i := m.top; i < min(len(rows), m.top+m.tableRows()); i++ {
		lines = append(lines, m.line(rows[i], i == at, g))
	}
	return lines
}

// grid has the width of each column on this screen; 0: left out.
type grid struct {
	columns []int
	line    int // of the sparkline; 0: left out
}

// grid gives names the width that they need, leaves out what does not fit, and gives the sparkline the rest.
func (m *watchModel) grid(rows []row) grid {
	g := grid{columns: make([]int, len(columns))}
	total := -1 // one space between columns
	for i := range columns {
		g.columns[i] = columns[i].width
		total += columns[i].width + 1
	}
	most := portMost
	if m.width > 120 {
		most = portWide
	}
	need := portLeast
	for _, r := range rows {
		need = max(need, ansi.StringWidth(m.nameOf(r)))
	}
	total += min(need, most) - g.columns[0]
	g.columns[0] = min(need, most)
	for _, title := range narrow {
		if total <= m.width {
			break
		}
		i := slices.IndexFunc(columns, func(c column) bool { return c.title == title })
		total -= g.columns[i] + 1
		g.columns[i] = 0
	}
	if rest := m.width - total - 1; rest >= lineLeast {
		g.line = min(rest, historyCells)
	}
	return g
}

// nameOf returns a port's name, with that of its switch if there are several.
func (m *watchModel) nameOf(r row) string {
	if m.report != nil && len(m.report.Switches) > 1 {
		return r.key.String()
	}
	return printable(r.Port.Port)
}

// layout joins the cells of a row.
func (g *grid) layout(cell func(i int) string, line func(width int) string) string {
	var cells []string
	for i := range columns {
		if g.columns[i] > 0 {
			cells = append(cells, fit(cell(i), g.columns[i], columns[i].left))
		}
		if i == lineAfter && g.line > 0 {
			cells = append(cells, line(g.line))
		}
	}
	return strings.Join(cells, " ")
}

// fit pads or cuts text to a width.
func fit(text string, width int, left bool) string {
	text = ansi.Truncate(text, width, "…")
	space := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if left {
		return text + space
	}
	return space + text
}

func (m *watchModel) titles(g grid) string {
	title := func(i int) string {
		if i != m.sortBy {
			return columns[i].title
		}
		arrow := "▾"
		if m.reversed {
			arrow = "▴"
		}
		return ansi.Truncate(columns[i].title, g.columns[i]-1, "") + arrow
	}
	return paint(strong, g.layout(title, func(width int) string {
		if width < len("# IS THE TARGET") {
			return fit("▄ TARGET", width, true)
		}
		return fit("▄ IS THE TARGET", width, true)
	}))
}

func (m *watchModel) line(r row, selected bool, g grid) string {
	cell := func(i int) string {
		switch {
		case i == 1:
			return paint(stateStyle(r), columns[i].text(r))
		case i == 0 && selected:
			return paint(marked, m.nameOf(r))
		case i == 0:
			return m.nameOf(r)
		}
		return columns[i].text(r)
	}
	return g.layout(cell, func(width int) string { return sparkline(m.history[r.key], uint64(r.TargetBytes), width) })
}

var bars = []rune(" ▁▂▃▄▅▆▇█")

// sparkline draws the last samples of a queue, the newest at the right. The target is half the height; twice the target
// or more is the full height.
func sparkline(samples []uint32, target uint64, width int) string {
	samples = samples[max(0, len(samples)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(samples)))
	half := uint64(len(bars) / 2)
	last := ""
	for _, q := range samples {
		level := uint64(len(bars) - 1)
		if target > 0 {
			level = min((uint64(q)*half+target-1)/target, level)
		} else if q == 0 {
			level = 0
		}
		style := green
		switch {
		case uint64(q) > 2*target:
			style = red
		case 2*uint64(q) > 3*target: // near the target is normal
			style = yellow
		}
		if style != last {
			b.WriteString("\x1b[0;" + style + "m")
			last = style
		}
		b.WriteRune(bars[level])
	}
	if last != "" {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// footer describes the selected port, and the keys.
func (m *watchModel) footer() []string {
	keys := paint(dim, "q quit  ↑↓ port  ←→ sort by  r reverse")
	if m.err != nil {
		keys = paint(red, "cannot read: "+m.err.Error())
	}
	rows := m.sorted()
	if len(rows) == 0 {
		return []string{"", keys}
	}
	r := rows[m.index(rows)]
	about := []string{""}
	for _, f := range r.Findings {
		text := fmt.Sprintf("%s: %s: %s", printable(r.Port.Port), findingLabel(&f), f.Reason)
		if f.Remedy != "" {
			text += "; to do: " + f.Remedy
		}
		about = append(about, strings.Split(ansi.Wrap(text, m.width, " "), "\n")...)
	}
	about = append(about, strings.Split(ansi.Wrap(fmt.Sprintf("%s: %d packets, %d rewritten; longest queue %s; passed: %s",
		printable(r.Port.Port), r.Packets, r.Rewritten, shortBytes(uint64(r.QueueMax)), r.PassedText()), m.width, " "), "\n")...)
	if len(about) > footerLines-1 {
		about = append(about[:footerLines-2], "…")
	}
	for len(about) < footerLines-1 {
		about = append(about, "")
	}
	return append(about, keys)
}
