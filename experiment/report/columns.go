package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/experiment/result"
	"weir/law"
)

// column is one metric of a group or port: its head in two lines, name over unit.
type column struct {
	name, unit string
	path       []string // below the subject
	times      float64  // the shown value is the metric times this; 0 is 1
}

func col(name, unit, path string, times float64) column {
	return column{name, unit, strings.Split(path, "."), times}
}

// names tell the column from others in the name of a file.
func (c column) names() []string {
	if len(c.path) < 2 {
		return []string{c.path[0], c.path[0]}
	}
	return c.path
}

// label names the column in running text.
func (c column) label() string { return strings.TrimSpace(c.name + " " + c.unit) }

var (
	neverOpened = col("never open", "connections", "never_connected", 1)
	timeColumns = []column{
		col("flows", "", "flows", 1),
		col("unfinished", "", "unfinished", 1),
		neverOpened,
		col("at a time", "mean", "live.mean", 1),
		col("FCT mean", "ms", "fct_ms.mean", 1),
		col("FCT SD", "ms", "fct_ms.sd", 1),
		col("FCT p50", "ms", "fct_ms.p50", 1),
		col("FCT p99", "ms", "fct_ms.p99", 1),
		col("FCT max", "ms", "fct_ms.max", 1),
	}
	deadlineColumns = []column{
		col("deadlines", "", "deadlines.flows", 1),
		col("missed", "", "deadlines.missed", 1),
	}
	rateColumns = []column{
		col("throughput", "Mbit/s", "throughput_mbps", 1),
		col("goodput/flow", "Mbit/s", "goodput_mbps.mean", 1),
		col("Jain index", "", "jain", 1),
	}
	settlingColumns = []column{
		col("changes", "", "settling.changes", 1),
		col("fair after", "ms p50", "settling.reached_ms.p50", 1),
		col("at most", "ms", "settling.reached_ms.max", 1),
		col("never", "", "settling.unreached", 1),
		col("stays fair", "% of time", "settling.held", 100),
	}
	lossColumns = []column{
		col("timeouts", "", "timeouts", 1),
		col("FLoss-TO", "", "timeouts_floss", 1),
		col("LAck-TO", "", "timeouts_lack", 1),
		col("drops", "", "drops", 1),
	}
	sizeColumns      = classColumns()
	plainPortColumns = []column{
		col("queue mean", "KB", "queue_bytes.mean", 1e-3),
		col("queue p99", "KB", "queue_bytes.p99", 1e-3),
		col("queue max", "KB", "queue_bytes.max", 1e-3),
		col("used", "% of rate", "utilisation", 100),
		col("marks", "", "marks", 1),
		col("drops", "", "drops", 1),
	}
)

// portColumns are those of a port, laws' metrics behind the others.
func portColumns(doc *result.Document) []column {
	out := slices.Clone(plainPortColumns)
	for _, m := range doc.Laws.Metrics() {
		if m.Heading != "" {
			out = append(out, col(m.Heading, m.Unit, m.Path(), cmp.Or(m.Scale, 1)))
		}
	}
	return out
}

// classColumns are of groups whose flows differ in size.
func classColumns() []column {
	out := []column{col("all sizes", "slowdown p50", "slowdown.p50", 1), col("all sizes", "slowdown p99", "slowdown.p99", 1)}
	for _, c := range result.SizeClasses() {
		path := "by_size." + c[0] + ".slowdown."
		out = append(out, col(c[1], "slowdown p50", path+"p50", 1), col(c[1], "slowdown p99", path+"p99", 1))
	}
	return out
}

// subject is a group or port, in a window or in the whole run, and what is shown of it.
type subject struct {
	path    []string // [window,] name
	columns []column
	more    []string // names of further groups in the same table
}

// members are the subjects that have rows in the table.
func (s subject) members() []subject {
	out := []subject{s}
	for _, name := range s.more {
		path := slices.Clone(s.path)
		path[len(path)-1] = name
		out = append(out, subject{path: path})
	}
	return out
}

// rowLabel names the row of a cell, and of a member where there are several.
func (s subject) rowLabel(cell string, member subject) string {
	if len(s.more) == 0 {
		return cell
	}
	return cell + " " + member.path[len(member.path)-1]
}

// oneFlow tells whether a group is one flow in every run.
func oneFlow(doc *result.Document, name string) bool {
	return !anyRun(doc, func(r *result.Run) bool { g := r.Groups[name]; return g == nil || g.Flows > 1 })
}

// leastJoined is from how many groups of one flow on they have one table.
const leastJoined = 3

// joined puts groups of one flow each, shown by the same columns, into one table.
func joinedGroups(doc *result.Document, groups []subject) []subject {
	var out []subject
	for _, s := range groups {
		name := s.path[len(s.path)-1]
		i := slices.IndexFunc(out, func(o subject) bool {
			return oneFlow(doc, name) && oneFlow(doc, o.path[len(o.path)-1]) && slices.EqualFunc(o.columns, s.columns, column.is)
		})
		if i >= 0 {
			out[i].more = append(out[i].more, name)
			continue
		}
		out = append(out, s)
	}
	if slices.ContainsFunc(out, func(s subject) bool { n := len(s.more); return n > 0 && n+1 < leastJoined }) {
		return groups
	}
	return out
}

func (s subject) title() string {
	n := len(s.path) - 1
	name := s.path[n]
	if name == result.AllPorts {
		name = "all ports"
	}
	if len(s.more) > 0 {
		name = fmt.Sprintf("%d groups of one flow", len(s.more)+1)
	}
	if n == 0 {
		return name
	}
	return name + " in " + s.path[0]
}

// subjects lists what there is to show. The whole run comes first; of a window only what is a
// rate or a queue is shown, because a table is for a first look and the JSON has the rest.
func subjects(doc *result.Document) []subject {
	var out []subject
	for _, name := range groupNames(doc) {
		out = append(out, subject{path: []string{name}, columns: groupColumns(doc, name)})
	}
	out = joinedGroups(doc, out)
	ports := portNames(doc)
	for _, name := range ports {
		out = append(out, subject{path: []string{name}, columns: portColumns(doc)})
	}
	if len(ports) != 1 || !onlyPort(doc, ports[0]) {
		out = append(out, subject{path: []string{result.AllPorts}, columns: portColumns(doc)})
	}
	for _, window := range windowNames(doc) {
		var groups []subject
		for _, name := range groupNames(doc) {
			if hasRates(doc, name) {
				groups = append(groups, subject{path: []string{window, name}, columns: rateColumns})
			}
		}
		out = append(out, joinedGroups(doc, groups)...)
		for _, name := range ports {
			out = append(out, subject{path: []string{window, name}, columns: portColumns(doc)})
		}
	}
	return out
}

// lawShows tells whether a total of a law has a column, and a number in this run.
func lawShows(doc *result.Document, r *result.Run) bool {
	return slices.ContainsFunc(doc.Laws.Metrics(), func(m law.Metric) bool {
		_, has := r.Metric(append([]string{result.AllPorts}, strings.Split(m.Path(), ".")...))
		return has && m.Kind == law.Total && m.Heading != ""
	})
}

// onlyPort says whether there is nothing to say of all ports together: nothing was dropped anywhere else
// than at this one, and no law has a total to show.
func onlyPort(doc *result.Document, name string) bool {
	for _, r := range doc.Runs {
		one, ok := r.Metric([]string{name, "drops"})
		all, known := r.Metric([]string{result.AllPorts, "drops"})
		if ok != known || one != all || lawShows(doc, r) {
			return false
		}
	}
	return true
}

func groupColumns(doc *result.Document, name string) []column {
	var out []column
	never := anyRun(doc, func(r *result.Run) bool {
		n, ok := r.Metric([]string{name, "never_connected"})
		return ok && n > 0
	})
	sized := anyRun(doc, func(r *result.Run) bool { return r.Groups[name] != nil && r.Groups[name].FCT != nil })
	if sized || !hasRates(doc, name) {
		out = append(out, timeColumns...)
	}
	if anyRun(doc, func(r *result.Run) bool { return r.Groups[name] != nil && r.Groups[name].Deadlines != nil }) {
		out = append(out, deadlineColumns...)
	}
	if hasRates(doc, name) {
		out = append(out, rateColumns...)
	}
	if anyRun(doc, func(r *result.Run) bool { return r.Groups[name] != nil && r.Groups[name].Settling != nil }) {
		out = append(out, settlingColumns...)
	}
	if anyRun(doc, func(r *result.Run) bool { return r.Groups[name] != nil && r.Groups[name].BySize != nil }) {
		out = append(out, sizeColumns...)
	}
	if never && !slices.ContainsFunc(out, neverOpened.is) {
		out = append(out, neverOpened)
	}
	if !never { // nothing to say
		out = slices.DeleteFunc(out, neverOpened.is)
	}
	return append(out, lossColumns...)
}

// is tells whether two columns are of the same metric.
func (c column) is(other column) bool { return slices.Equal(c.path, other.path) }

// hasRates says whether a group is better described by rates than by completion times: some of
// its flows have none although they did not fail.
func hasRates(doc *result.Document, name string) bool {
	return anyRun(doc, func(r *result.Run) bool {
		g := r.Groups[name]
		if g == nil {
			return false
		}
		finished := 0
		if g.FCT != nil {
			finished = g.FCT.N
		}
		return finished+g.Unfinished < g.Flows
	})
}

func anyRun(doc *result.Document, is func(*result.Run) bool) bool {
	return slices.ContainsFunc(doc.Runs, is)
}

// shown drops the columns that no run has a value for.
func (s subject) shown(doc *result.Document) subject {
	s.columns = slices.DeleteFunc(slices.Clone(s.columns), func(c column) bool {
		return !anyRun(doc, func(r *result.Run) bool {
			return slices.ContainsFunc(s.members(), func(m subject) bool { _, ok := r.Metric(m.metric(c)); return ok })
		})
	})
	return s
}

func (s subject) metric(c column) []string { return append(slices.Clone(s.path), c.path...) }

// values gives a cell's values of a column, one for each seed that has one.
func (s subject) values(c column, of *cell) []float64 {
	return of.values(s.metric(c), cmp.Or(c.times, 1))
}

// spread writes the median over seeds and, where they differ as written, smallest..largest.
func spread(values []float64) (middle, span string) {
	if len(values) == 0 {
		return "-", ""
	}
	x := slices.Sorted(slices.Values(values))
	low, high := number(x[0]), number(x[len(x)-1])
	if low != high {
		span = low + ".." + high
	}
	return number(median(x)), span
}

// median of sorted values; the mean of the middle two of an even number.
func median(x []float64) float64 {
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// number writes a value with three significant digits, whole numbers and those of 100 and more
// without a fraction.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v == math.Trunc(v) || a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.9995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a >= 0.09995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
