package claim

import (
	"errors"
	"fmt"
	"math"

	"weir/experiment/result"
)

// expr is a part of a claim.
type expr interface {
	// eval returns the number, or an error with the reason why there is none.
	eval(e *env) (float64, error)
	// paths appends the paths in the expression.
	paths(to []*Path) []*Path
	// words describes the expression in words; within: as a part of a larger one.
	words(within bool) string
}

// env is the environment of an evaluation: one world, one seed, one value for each open axis.
type env struct {
	runs *runs
	seed int64
	at   map[string]string
}

type constant float64

type binary struct {
	op          string
	left, right expr
}

type function struct {
	name string
	args []expr
}

type value struct{ path *Path }

type spread struct{ path *Path }

type fractionBelow struct {
	path *Path
	x    float64
}

type firstBelow struct {
	path     *Path
	fraction float64
}

func (constant) paths(to []*Path) []*Path         { return to }
func (b *binary) paths(to []*Path) []*Path        { return b.right.paths(b.left.paths(to)) }
func (v *value) paths(to []*Path) []*Path         { return append(to, v.path) }
func (s *spread) paths(to []*Path) []*Path        { return append(to, s.path) }
func (f *fractionBelow) paths(to []*Path) []*Path { return append(to, f.path) }
func (f *firstBelow) paths(to []*Path) []*Path    { return append(to, f.path) }
func (f *function) paths(to []*Path) []*Path {
	for _, a := range f.args {
		to = a.paths(to)
	}
	return to
}

func (c constant) eval(*env) (float64, error) { return float64(c), nil }

var errZero = errors.New("division by 0")

func (b *binary) eval(e *env) (float64, error) {
	l, err := b.left.eval(e)
	if err != nil {
		return 0, err
	}
	r, err := b.right.eval(e)
	if err != nil {
		return 0, err
	}
	switch b.op {
	case "+":
		return l + r, nil
	case "-":
		return l - r, nil
	case "*":
		return l * r, nil
	}
	if r == 0 {
		return 0, errZero
	}
	return l / r, nil
}

func (f *function) eval(e *env) (float64, error) {
	out, err := f.args[0].eval(e)
	if err != nil {
		return 0, err
	}
	if f.name == "abs" {
		return math.Abs(out), nil
	}
	for _, a := range f.args[1:] {
		v, err := a.eval(e)
		if err != nil {
			return 0, err
		}
		if f.name == "min" {
			out = math.Min(out, v)
		} else {
			out = math.Max(out, v)
		}
	}
	return out, nil
}

func (v *value) eval(e *env) (float64, error) { return e.metric(v.path, "", "") }

// along returns the metric at every value of the axis, in the axis's order.
func (e *env) along(p *Path) (names []string, values []float64, err error) {
	names = e.runs.values(p.Scheme, p.Over)
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s was not run over %s", p.Scheme, p.Over)
	}
	for _, n := range names {
		v, err := e.metric(p, p.Over, n)
		if err != nil {
			return nil, nil, err
		}
		values = append(values, v)
	}
	return names, values, nil
}

func (s *spread) eval(e *env) (float64, error) {
	_, values, err := e.along(s.path)
	if err != nil {
		return 0, err
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return high - low, nil
}

// eval returns +Inf when no value of the axis is below the limit.
func (f *firstBelow) eval(e *env) (float64, error) {
	names, values, err := e.along(f.path)
	if err != nil {
		return 0, err
	}
	top := values[0]
	for _, v := range values {
		top = max(top, v)
	}
	for i, v := range values {
		if v < f.fraction*top {
			return axisNumber(names[i], i), nil
		}
	}
	return math.Inf(1), nil
}

func (f *fractionBelow) eval(e *env) (float64, error) {
	r, err := e.run(f.path, "", "")
	if err != nil {
		return 0, err
	}
	values, ok := r.Values(f.path.Names)
	if !ok || len(values) == 0 {
		return 0, fmt.Errorf("%s is absent", f.path)
	}
	below := 0
	for _, v := range values {
		if v < f.x {
			below++
		}
	}
	return float64(below) / float64(len(values)), nil
}

// axisNumber returns an axis value as a number. A value that is not a number has its position, from 1.
func axisNumber(text string, position int) float64 {
	if v, ok := result.AxisNumber(text); ok {
		return v
	}
	return float64(position + 1)
}
