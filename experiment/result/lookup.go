package result

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"weir/law"
)

// Metric returns one number of the run by its path in the document, the names as separate elements:
//
//	mice fct_ms p99                      a group, over the whole run
//	loaded elephants throughput_mbps     a group, in a window
//	bottleneck queue_bytes mean          a port; "all drops" has those of every port
//
// If a window has the name of a group or port, the path means the group or port. The result is false when the
// metric is absent or the name does not exist.
func (r *Run) Metric(path []string) (float64, bool) {
	if r.Figures != nil {
		v, ok := r.Figures[strings.Join(path, ".")]
		return v, ok
	}
	subject, rest := r.subject(path)
	if subject == nil {
		return 0, false
	}
	return number(reflect.ValueOf(subject), rest)
}

// Values returns the values of a distribution, in no particular order: one for each flow (fct_ms, goodput_mbps),
// each mouse (by_mouse.*), each step (series_mbps), each sample (queue_bytes). The path is Metric's without the
// statistic: mice fct_ms. The result is false when the distribution is absent, and for a document that was read
// from JSON: it has no values, apart from a few in a Summary. The caller must not change the slice.
func (r *Run) Values(path []string) ([]float64, bool) {
	if v, ok := r.Behind[strings.Join(path, ".")]; ok {
		return v, true
	}
	subject, rest := r.subject(path)
	switch s := subject.(type) {
	case *Group:
		v, ok := s.values[strings.Join(rest, ".")]
		return v, ok
	case *PortResult:
		if len(rest) == 1 && rest[0] == "queue_bytes" && len(s.levels) > 0 {
			return expand(s.levels), true
		}
		v, ok := s.values[strings.Join(rest, ".")]
		return v, ok && len(v) > 0
	}
	return nil, false
}

// subject finds the group or port that a path begins with, and returns the rest of the path.
func (r *Run) subject(path []string) (any, []string) {
	if len(path) < 2 {
		return nil, nil
	}
	if s := find(r.Groups, r.Ports, path[0]); s != nil {
		return s, path[1:]
	}
	if w, ok := r.Windows[path[0]]; ok {
		if s := find(w.Groups, w.Ports, path[1]); s != nil {
			return s, path[2:]
		}
	}
	return nil, nil
}

func find(groups map[string]*Group, ports map[string]*PortResult, name string) any {
	if g := groups[name]; g != nil {
		return g
	}
	if p := ports[name]; p != nil {
		return p
	}
	return nil
}

// number follows the JSON names of path into v.
func number(v reflect.Value, path []string) (float64, bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0, false
		}
		v = v.Elem()
	}
	if l, ok := v.Interface().(LawResult); ok {
		m := l.metric(path)
		if m == nil {
			return 0, false
		}
		return number(reflect.ValueOf(m), path[1:])
	}
	switch {
	case len(path) == 0 && v.CanInt():
		return float64(v.Int()), true
	case len(path) == 0 && v.CanFloat():
		return v.Float(), true
	case len(path) == 0 || v.Kind() != reflect.Struct:
		return 0, false
	}
	if i := fieldNamed(v.Type(), path[0]); i >= 0 {
		return number(v.Field(i), path[1:])
	}
	return 0, false
}

// fieldNamed returns the index of the exported field with this JSON name, or -1.
func fieldNamed(t reflect.Type, name string) int {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name && name != "" && name != "-" {
			return i
		}
	}
	return -1
}

// GroupMetrics lists every path below a group that has a number: "fct_ms.p99", "drops".
func GroupMetrics() []string { return numbers(reflect.TypeFor[Group](), "") }

// PortMetrics lists every path below a port that has a number: "queue_bytes.mean", "drops", and those of laws'
// metrics.
func PortMetrics(laws []law.Metric) []string {
	return append(numbers(reflect.TypeFor[PortResult](), ""), lawPaths(laws, law.OverTime)...)
}

// AllPortsMetrics lists every path below the pseudo-port of all ports.
func AllPortsMetrics(laws []law.Metric) []string {
	return append([]string{"drops"}, lawPaths(laws, law.Total)...)
}

// Metrics lists every path below this port that has a number, and those that Run.Values takes: the metrics of any
// port, and those of the laws at this one.
func (p *PortResult) Metrics() (numbers, distributions []string) {
	of, over := p.Law.paths()
	all := PortMetrics(nil)
	return append(all, of...), append(PortDistributions(nil), over...)
}

func distributionNumbers(path string) []string {
	return numbers(reflect.TypeFor[Distribution](), path+".")
}

// GroupDistributions and PortDistributions list the paths that Run.Values takes.
func GroupDistributions() []string { return distributions(GroupMetrics()) }

// PortDistributions lists the paths below a port that Run.Values takes.
func PortDistributions(laws []law.Metric) []string { return distributions(PortMetrics(laws)) }

func distributions(metrics []string) []string {
	var out []string
	for _, m := range metrics {
		if d, ok := strings.CutSuffix(m, ".p99"); ok {
			out = append(out, d)
		}
	}
	return out
}

func numbers(t reflect.Type, prefix string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Float64:
		return []string{strings.TrimSuffix(prefix, ".")}
	case reflect.Struct:
		var out []string
		for i := range t.NumField() {
			tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if tag != "" && tag != "-" {
				out = append(out, numbers(t.Field(i).Type, prefix+tag+".")...)
			}
		}
		return out
	}
	return nil
}

// The metrics that tables compare, in the order in which they are shown: of a group and of a port.
var (
	mainOfGroup = []string{
		"flows", "unfinished", "never_connected", "bytes", "live.mean",
		"fct_ms.mean", "fct_ms.sd", "fct_ms.p50", "fct_ms.p90", "fct_ms.p99", "fct_ms.max",
		"deadlines.flows", "deadlines.missed", "throughput_mbps", "goodput_mbps.mean", "jain",
		"settling.changes", "settling.reached_ms.p50", "settling.reached_ms.max", "settling.unreached", "settling.held",
		"timeouts", "flows_with_timeout", "timeouts_floss", "timeouts_lack", "out_of_order", "drops",
	}
	mainOfPort = []string{
		"queue_bytes.mean", "queue_bytes.p50", "queue_bytes.p99", "queue_bytes.max", "utilisation", "marks", "drops",
	}
)

// MainMetrics lists the paths, as Run.Metric takes them, of the main metrics that at least one of the runs has. They are those of every group, of every named port, of all ports; then the same in each window. Those of laws come last.
func MainMetrics(runs []*Run, laws []law.Metric) [][]string {
	port := slices.Clone(mainOfPort)
	for i := range laws {
		if laws[i].Main != "" {
			port = append(port, laws[i].Path())
		}
	}
	var out [][]string
	for _, at := range append([]string{""}, names(runs, func(r *Run) []string { return slices.Collect(maps.Keys(r.Windows)) })...) {
		of := func(kind func(*Run) []string, metrics []string) {
			for _, name := range names(runs, kind) {
				for _, m := range metrics {
					path := slices.Concat(strings.Fields(at), []string{name}, strings.Split(m, "."))
					if slices.ContainsFunc(runs, func(r *Run) bool { _, ok := r.Metric(path); return ok }) {
						out = append(out, path)
					}
				}
			}
		}
		of(func(r *Run) []string { return slices.Collect(maps.Keys(r.Groups)) }, mainOfGroup)
		of(func(r *Run) []string { return slices.Collect(maps.Keys(r.Ports)) }, port)
	}
	return out
}

// names collects the names that any run has, sorted; "all" comes last.
func names(runs []*Run, of func(*Run) []string) []string {
	seen := map[string]bool{}
	for _, r := range runs {
		for _, n := range of(r) {
			seen[n] = true
		}
	}
	out := slices.Sorted(maps.Keys(seen))
	if seen[AllPorts] {
		out = append(slices.DeleteFunc(out, func(n string) bool { return n == AllPorts }), AllPorts)
	}
	return out
}

// AxisNumber returns the value of an axis as a number: a plain number, a duration in ms, a rate in Mbit/s, a size
// in bytes, a limit in packets. The result is false for any other value.
func AxisNumber(text string) (float64, bool) {
	v, _, ok := axisNumber(text)
	return v, ok
}

// axisNumber is AxisNumber with the unit; a plain number has none.
func axisNumber(text string) (v float64, unit string, ok bool) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, "", true
	}
	b := []byte(text)
	if d := law.Duration(0); d.UnmarshalText(b) == nil {
		return float64(d) / 1e6, "ms", true
	}
	if r := law.Rate(0); r.UnmarshalText(b) == nil {
		return float64(r) / 1e6, "Mbit/s", true
	}
	l := law.Limit{}
	if l.UnmarshalText(b) != nil {
		return 0, "", false
	}
	if l.Packets {
		return float64(l.N), "pkt", true
	}
	return float64(l.N), "B", true
}
