package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"weir/experiment/result"
)

// maxPoints limits how many values of open axes one claim is decided for.
const maxPoints = 10_000

// Decide decides every claim in each world of the document, for each value of every axis that the claim leaves
// open, on the median over seeds of LEFT - RIGHT. An absent metric or a division by 0 leaves Holds nil.
//
// A claim is Undecided if it is about a scheme that was skipped or was not asked for (requested; none means all),
// or about a value of an axis that was not run. spread and first_below are about all values of their axis. It is
// also Undecided if one of its runs, with any seed, was cut short, or if an unmet setting is fatal to it.
func Decide(claims []Statement, doc *result.Document, requested []string) []result.Claim {
	var out []result.Claim
	for _, s := range claims {
		c, err := Parse(s.Claim)
		for _, w := range worlds(doc) {
			decided := []result.Claim{{Claim: s.Claim, World: w, For: map[string]string{}}}
			if err != nil {
				decided[0].Why = err.Error()
			} else {
				decided = c.decide(newRuns(doc, w), requested)
			}
			for i := range decided {
				decided[i].Paper, decided[i].Ours, decided[i].Because = s.Paper, s.Ours, s.Because
				decided[i].Source, decided[i].Value, decided[i].Figure = s.Source, s.Value, s.Figure
			}
			out = append(out, decided...)
		}
	}
	return out
}

func worlds(doc *result.Document) []string {
	var out []string
	for _, r := range doc.Runs {
		if !slices.Contains(out, r.World) {
			out = append(out, r.World)
		}
	}
	return out
}

func (c *Claim) decide(rs *runs, requested []string) []result.Claim {
	empty := result.Claim{Claim: c.Text, World: rs.world, For: map[string]string{}}
	if why := c.notRun(rs, requested); why != "" {
		empty.Undecided, empty.Why = true, why
		return []result.Claim{empty}
	}
	open, points := c.openAxes(rs)
	if points > maxPoints {
		empty.Why = fmt.Sprintf("the claim leaves %d points open; fix an axis with [axis=value]", points)
		return []result.Claim{empty}
	}
	seeds := rs.seeds(c)
	var out []result.Claim
	for n := range points {
		at := map[string]string{}
		for i := len(open) - 1; i >= 0; i-- {
			at[open[i].name] = open[i].values[n%len(open[i].values)]
			n /= len(open[i].values)
		}
		out = append(out, c.at(rs, at, seeds))
	}
	return out
}

// at decides the claim at one point.
func (c *Claim) at(rs *runs, at map[string]string, seeds []int64) result.Claim {
	out := decision{result.Claim{Claim: c.Text, World: rs.world, For: at, Seeds: seeds}}
	var differences []float64
	for _, seed := range seeds {
		e := &env{runs: rs, seed: seed, at: at}
		l, r := out.side(c.left, e), out.side(c.right, e)
		out.Left, out.Right = append(out.Left, l), append(out.Right, r)
		differences = append(differences, l-r)
	}
	switch {
	case out.Why != "":
	case len(seeds) == 0:
		out.Why = "there is no run of it"
	case slices.ContainsFunc(differences, math.IsNaN):
		out.Why = "neither side is reached at any value of the axis" // Inf - Inf
	default:
		holds := compare(median(differences), c.Op)
		out.Holds = &holds
	}
	return out.Claim
}

// decision is a claim while it is decided.
type decision struct{ result.Claim }

// side evaluates one side of the claim. NaN means that it has no value; Why then has the reason. A fatal unmet
// setting has precedence over an absent metric: the second may follow from the first.
func (d *decision) side(x expr, e *env) float64 {
	v, err := x.eval(e)
	if err == nil {
		return v
	}
	var fatal *fatalError
	if is := errors.As(err, &fatal); is || !d.Undecided {
		d.Undecided = d.Undecided || is
		d.Why = err.Error()
	}
	return math.NaN()
}

func compare(difference float64, op string) bool {
	switch op {
	case "<=":
		return difference <= 0
	case ">=":
		return difference >= 0
	case "<":
		return difference < 0
	case ">":
		return difference > 0
	case "==":
		return difference == 0
	}
	return difference != 0
}

// median returns the median of at least one number; for an even count, the mean of the middle two.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if m := len(v) / 2; len(v)%2 == 0 && v[m-1] != v[m] { // equal ones may be infinite
		return (v[m-1] + v[m]) / 2
	}
	return v[len(v)/2]
}

// runs are the runs of one world.
type runs struct {
	world    string
	byScheme map[string][]*result.Run
	axes     map[string][]string // values that the file declares
	found    map[string][]string // values of any run, of any scheme and world
	skipped  map[string]string
}

func newRuns(doc *result.Document, world string) *runs {
	rs := &runs{world: world, byScheme: map[string][]*result.Run{}, axes: declaredAxes(doc.File), found: map[string][]string{}, skipped: map[string]string{}}
	for _, r := range doc.Runs {
		for axis, v := range r.Axes {
			if !slices.Contains(rs.found[axis], v) {
				rs.found[axis] = append(rs.found[axis], v)
			}
		}
		if r.World == world {
			rs.byScheme[r.Scheme] = append(rs.byScheme[r.Scheme], r)
		}
	}
	for _, s := range doc.Skipped {
		if s.World == world {
			rs.skipped[s.Scheme] = s.Reason
		}
	}
	return rs
}

// declaredAxes reads the axes, each with the names of its values, from the file in a document.
func declaredAxes(file json.RawMessage) map[string][]string {
	var f struct {
		Vary []struct {
			As, Key string
			Values  []json.RawMessage
			Cases   map[string]any
		}
	}
	out := map[string][]string{}
	if json.Unmarshal(file, &f) == nil {
		for _, a := range f.Vary {
			name := a.As
			if name == "" {
				name = a.Key[strings.LastIndexByte(a.Key, '.')+1:]
			}
			out[name] = slices.Sorted(maps.Keys(a.Cases))
			for i, v := range a.Values {
				out[name] = append(out[name], valueName(v, i))
			}
		}
	}
	return out
}

// valueName returns the name of a value of an axis: its text, or for a list or mapping its position.
func valueName(v json.RawMessage, position int) string {
	var text string
	switch {
	case json.Unmarshal(v, &text) == nil:
		return text
	case bytes.ContainsAny(v[:1], "[{"):
		return strconv.Itoa(position)
	}
	return string(v)
}

// values lists the values of an axis that a scheme was run at, in the order of the runs.
func (rs *runs) values(scheme, axis string) []string {
	var out []string
	for _, r := range rs.byScheme[scheme] {
		if v, ok := r.Axes[axis]; ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// seeds lists every seed that a scheme of the claim was run with, in ascending order.
func (rs *runs) seeds(c *Claim) []int64 {
	set := map[int64]bool{}
	for _, p := range c.Paths() {
		for _, r := range rs.byScheme[p.Scheme] {
			set[r.Seed] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// notRun returns why a claim is undecided because something was not run, or "".
func (c *Claim) notRun(rs *runs, requested []string) string {
	for _, p := range c.Paths() {
		if reason, ok := rs.skipped[p.Scheme]; ok {
			return fmt.Sprintf("scheme %s was skipped: %s", p.Scheme, reason)
		}
		if len(requested) > 0 && !slices.Contains(requested, p.Scheme) {
			return fmt.Sprintf("scheme %s was not asked for", p.Scheme)
		}
		for _, b := range p.At {
			values := rs.values(p.Scheme, b.Axis)
			if len(values) == 0 { // the scheme does not use the axis: its runs are those of every value that was run
				values = rs.axes[b.Axis]
			}
			if len(values) == 0 {
				values = rs.found[b.Axis]
			}
			if len(rs.byScheme[p.Scheme]) > 0 && !slices.ContainsFunc(values, b.is) {
				return fmt.Sprintf("%s=%s was not run", b.Axis, b.Value)
			}
		}
		if p.Over == "" || len(rs.byScheme[p.Scheme]) == 0 {
			continue
		}
		switch n := len(rs.values(p.Scheme, p.Over)); {
		case n == 0:
			return fmt.Sprintf("%s was not run over %s", p.Scheme, p.Over)
		case n < len(rs.axes[p.Over]):
			return fmt.Sprintf("%s was run at %d of %d values of %s", p.Scheme, n, len(rs.axes[p.Over]), p.Over)
		}
	}
	return ""
}

// is compares an axis value as a text or as a number: 0.50 equals 0.5.
func (b Binding) is(value string) bool { return SameValue(b.Value, value) }

// SameValue reports whether two texts are the same value of an axis.
func SameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, y := axisNumber(a, -1), axisNumber(b, -1)
	return x == y && x != 0 && unitOf(a) == unitOf(b)
}

// unitOf returns the text after the number.
func unitOf(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil { // 1e6 has none
		return ""
	}
	return strings.TrimLeft(text, "0123456789. ")
}

type openAxis struct {
	name   string
	values []string
}

// openAxes lists the axes that the claim leaves open, by name, and the number of their points.
func (c *Claim) openAxes(rs *runs) ([]openAxis, int) {
	found := map[string][]string{}
	for _, p := range c.Paths() {
		for _, r := range rs.byScheme[p.Scheme] {
			for axis, v := range r.Axes {
				bound := axis == p.Over || slices.ContainsFunc(p.At, func(b Binding) bool { return b.Axis == axis })
				if !bound && !slices.Contains(found[axis], v) {
					found[axis] = append(found[axis], v)
				}
			}
		}
	}
	var out []openAxis
	points := 1
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, openAxis{name, found[name]})
		points *= len(found[name])
	}
	return out, points
}

// fatalError reports why a run decides nothing: an unmet setting, or it was cut short.
type fatalError struct {
	scheme string
	seed   int64
	why    string
}

func (e *fatalError) Error() string {
	return fmt.Sprintf("%s, seed %d: %s", e.scheme, e.seed, e.why)
}

// run finds the run that a path selects here; axis over, if not empty, has the value given. An axis that the
// scheme does not use is ignored.
func (e *env) run(p *Path, over, value string) (*result.Run, error) {
	for _, r := range e.runs.byScheme[p.Scheme] {
		if r.Seed != e.seed || !e.fits(p, r, over, value) {
			continue
		}
		if r.Partial { // counts and times of a part do not compare with those of a whole run
			return nil, &fatalError{p.Scheme, e.seed, "the run was cut short"}
		}
		if u, fatal := r.FatalTo(p.Names); fatal {
			return nil, &fatalError{p.Scheme, e.seed, u.Text}
		}
		return r, nil
	}
	return nil, fmt.Errorf("there is no run of %s with seed %d here", p.Scheme, e.seed)
}

func (e *env) fits(p *Path, r *result.Run, over, value string) bool {
	for axis, v := range r.Axes {
		if axis == over {
			if v != value {
				return false
			}
			continue
		}
		if i := slices.IndexFunc(p.At, func(b Binding) bool { return b.Axis == axis }); i >= 0 {
			if !p.At[i].is(v) {
				return false
			}
		} else if want, open := e.at[axis]; open && want != v {
			return false
		}
	}
	return true
}

func (e *env) metric(p *Path, over, value string) (float64, error) {
	r, err := e.run(p, over, value)
	if err != nil {
		return 0, err
	}
	v, ok := r.Metric(p.Names)
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is absent", p)
	}
	return v, nil
}
