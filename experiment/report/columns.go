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

// column is one metric of a group or port, with its heading in two lines: name over unit.
type column struct {
	name, unit string
	path       []string // below the subject
	times      float64  // the shown value is the metric times this; 0 means 1
}

func col(name, unit, path string, times float64) column {
	return column{name, unit, strings.Split(path, "."), times}
}

// names returns the words that distinguish the column in the name of a file.
func (c column) names() []string {
	if len(c.path) < 2 {
		return []string{c.path[0], c.path[0]}
	}
	return c.path
}

// label returns the column's name in running text.
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
		col("fair after", "ms max", "settling.reached_ms.max", 1),
		col("never fair", "", "settling.unreached", 1),
		col("stays fair", "% of time", "settling.held", 100),
	}
	lossColumns = []column{
		col("timeouts", "", "timeouts", 1),
		col("FLoss-TO", "", "timeouts_floss", 1),
		col("LAck-TO", "", "timeouts_lack", 1),
		col("out of order", "segments", "out_of_order", 1),
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

// portColumns are those of a port, laws' metrics after the others.
func portColumns(doc *result.Document) []column {
	out := slices.Clone(plainPortColumns)
	for _, m := range doc.Laws.Metrics() {
		if m.Heading != "" {
			out = append(out, col(m.Heading, m.Unit, m.Path(), cmp.Or(m.Scale, 1)))
		}
	}
	return out
}

// classColumns are those of groups with flows of several size classes.
func classColumns() []column {
	out := []column{col("all sizes", "slowdown p50", "slowdown.p50", 1), col("all sizes", "slowdown p99", "slowdown.p99", 1)}
	for _, c := range result.SizeClasses() {
		path := "by_size." + c[0] + ".slowdown."
		out = append(out, col(c[1], "slowdown p50", path+"p50", 1), col(c[1], "slowdown p99", path+"p99", 1))
	}
	return out
}

// subject is a group or port, in a window or in the whole run, with the columns that are shown.
type subject struct {
	path    []string // [window,] name
	columns []column
	more    []string // names of further groups in the same table
}

// members returns the subjects that have rows in the table.
func (s subject) members() []subject {
	out := []subject{s}
	for _, name := range s.more {
		path := slices.Clone(s.path)
		path[len(path)-1] = name
		out = append(out, subject{path: path})
	}
	return out
}

// rowLabel returns the name of a cell's row, with the member's name if there are several.
func (s subject) rowLabel(cell string, member subject) string {
	if len(s.more) == 0 {
		return cell
	}
	return cell + " " + member.path[len(member.path)-1]
}

// oneFlow reports whether a group is one flow in every run.
func oneFlow(doc *result.Document, name string) bool {
	return !anyRun(doc, func(r *result.Run) bool { g := r.Groups[name]; return g == nil || g.Flows > 1 })
}

// leastJoined is the number of groups of one flow from which they share a table.
const leastJoined = 3

// joinedGroups puts groups of one flow each, with the same columns, into one table.
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

// subjects lists the tables. The whole run comes first. A window has only rates and queues, because a table is an
// overview and the JSON has the rest.
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

// lawShows reports whether a total of a law has a column, and a number in this run.
func lawShows(doc *result.Document, r *result.Run) bool {
	return slices.ContainsFunc(doc.Laws.Metrics(), func(m law.Metric) bool {
		_, has := r.Metric(append([]string{result.AllPorts}, strings.Split(m.Path(), ".")...))
		return has && m.Kind == law.Total && m.Heading != ""
	})
}

// onlyPort reports whether a table of all ports would add nothing: packets were dropped only at this port, and no
// law has a total to show.
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
	if !never { // every flow connected
		out = slices.DeleteFunc(out, neverOpened.is)
	}
	return append(out, lossColumns...)
}

// is reports whether two columns show the same metric.
func (c column) is(other column) bool { return slices.Equal(c.path, other.path) }

// hasRates reports whether a group is better described by rates than by completion times: some of its flows have
// no completion time although they did not fail.
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

// shown returns the subject without the columns that no run has a value for.
func (s subject) shown(doc *result.Document) subject {
	s.columns = slices.DeleteFunc(slices.Clone(s.columns), func(c column) bool {
		return !anyRun(doc, func(r *result.Run) bool {
			return slices.ContainsFunc(s.members(), func(m subject) bool { _, ok := r.Metric(m.metric(c)); return ok })
		})
	})
	return s
}

func (s subject) metric(c column) []string { return append(slices.Clone(s.path), c.path...) }

// values returns a cell's values of a column, one for each seed that has one.
func (s subject) values(c column, of *cell) []float64 {
	return of.values(s.metric(c), cmp.Or(c.times, 1))
}

// spread returns the median over seeds and, if they differ as written, smallest..largest.
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

// median returns the median of sorted values; for an even number, the mean of the middle two.
func median(x []float64) float64 {
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

// number returns a value with three significant digits; whole numbers and those of 100 and more have no fraction.
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
