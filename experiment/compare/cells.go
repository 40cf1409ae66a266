package compare

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"weir/experiment/claim"
	"weir/experiment/result"
)

// maxCells limits the number of cells that are compared: each cell of A is searched for in B.
const maxCells = 2000

// cell has the runs of one side that differ only by their seed.
type cell struct {
	world, scheme string
	axes          map[string]string
	runs          []*result.Run
	index         []int // of the runs, in the document
}

func (c *cell) name() CellName {
	return CellName{World: c.world, Scheme: c.scheme, Axes: c.axes, Seeds: slices.Sorted(maps.Keys(c.seeds()))}
}

// seeds returns the cell's seeds, each with the value 0.
func (c *cell) seeds() map[int64]float64 {
	out := map[int64]float64{}
	for _, r := range c.runs {
		out[r.Seed] = 0
	}
	return out
}

// values returns a metric by seed, for the runs that have it and whose unmet settings are not fatal to it.
func (c *cell) values(path []string) map[int64]float64 {
	out := map[int64]float64{}
	for _, r := range c.runs {
		if _, fatal := r.FatalTo(path); fatal {
			continue
		}
		if v, ok := r.Metric(path); ok && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[r.Seed] = v
		}
	}
	return out
}

// cells lists the cells of a side that were asked for. Runs that were cut short are not included.
func cells(s Side, side int, o Options) ([]*cell, error) {
	var out []*cell
	at := map[string]*cell{}
	for i, r := range s.Doc.Runs {
		if r.Partial || !o.wants(side, r) {
			continue
		}
		key := strings.Join([]string{r.World, r.Scheme, result.AxesText(r.Axes)}, "\n")
		c := at[key]
		if c == nil {
			c = &cell{world: r.World, scheme: r.Scheme, axes: r.Axes}
			if c.axes == nil {
				c.axes = map[string]string{}
			}
			at[key], out = c, append(out, c)
		}
		if slices.ContainsFunc(c.runs, func(other *result.Run) bool { return other.Seed == r.Seed }) {
			return nil, fmt.Errorf("%s holds two runs of %s with seed %d", s.Name, c.name(), r.Seed)
		}
		c.runs, c.index = append(c.runs, r), append(c.index, i)
	}
	if len(out) > maxCells {
		return nil, fmt.Errorf("%s has %d schemes at points of axes, but at most %d are compared: choose with --scheme, --world or --at", s.Name, len(out), maxCells)
	}
	return out, nil
}

// wants reports whether a run was asked for.
func (o Options) wants(side int, r *result.Run) bool {
	if s := o.Schemes[side]; s != "" && r.Scheme != s {
		return false
	}
	if w := o.Worlds[side]; w != "" && r.World != w {
		return false
	}
	for axis, values := range o.At {
		if v, has := r.Axes[axis]; has && !claim.SameValue(v, values[side]) {
			return false
		}
	}
	return true
}

// matched has the pairs of cells that are compared, and the cells without a partner.
type matched struct {
	pairs        [][2]*cell
	onlyA, onlyB []string
}

// match finds for each cell of A the cells of B that it is compared with.
func match(a, b Side, o Options) (*matched, error) {
	left, err := cells(a, 0, o)
	if err != nil {
		return nil, err
	}
	right, err := cells(b, 1, o)
	if err != nil {
		return nil, err
	}
	if err := o.axesAreThere(a.Doc, b.Doc); err != nil {
		return nil, err
	}
	// If each side has one scheme or one world only, the choice is clear.
	anyWorld := o.Worlds[0] != "" || one(left, world) && one(right, world)
	anyScheme := o.Schemes[0] != "" || one(left, scheme) && one(right, scheme)
	axesA, axesB := axesOf(a.Doc), axesOf(b.Doc)
	out := &matched{onlyA: []string{}, onlyB: []string{}}
	met := map[*cell]bool{}
	for _, x := range left {
		for _, y := range right {
			if x.runs[0] == y.runs[0] { // a result compared with itself
				continue
			}
			if (anyWorld || x.world == y.world) && (anyScheme || x.scheme == y.scheme) && o.samePoint(x, y, axesA, axesB) {
				out.pairs = append(out.pairs, [2]*cell{x, y})
				met[x], met[y] = true, true
			}
		}
		if !met[x] {
			out.onlyA = append(out.onlyA, x.name().String())
		}
	}
	for _, y := range right {
		if !met[y] {
			out.onlyB = append(out.onlyB, y.name().String())
		}
	}
	if len(out.pairs) == 0 {
		return nil, o.nothingInCommon(a, b, out)
	}
	if len(out.pairs) > maxCells {
		return nil, fmt.Errorf("%d cells of %s match cells of %s, but at most %d are compared: choose with --scheme, --world or --at",
			len(out.pairs), a.Name, b.Name, maxCells)
	}
	return out, nil
}

func world(c *cell) string  { return c.world }
func scheme(c *cell) string { return c.scheme }

// one reports whether all cells have the same value.
func one(list []*cell, of func(*cell) string) bool {
	return !slices.ContainsFunc(list, func(c *cell) bool { return of(c) != of(list[0]) })
}

// samePoint reports whether two cells lie at the same point of the axes that were not chosen. An axis that a
// scheme does not use is ignored for its cells; an axis that the other result does not have at all is not ignored.
func (o Options) samePoint(x, y *cell, axesA, axesB map[string]bool) bool {
	for axis, v := range x.axes {
		if _, chosen := o.At[axis]; chosen {
			continue
		}
		w, has := y.axes[axis]
		if has && !claim.SameValue(v, w) || !has && !axesB[axis] {
			return false
		}
	}
	for axis := range y.axes {
		_, chosen := o.At[axis]
		if _, has := x.axes[axis]; !chosen && !has && !axesA[axis] {
			return false
		}
	}
	return true
}

// axesOf lists the axes of all runs.
func axesOf(d *result.Document) map[string]bool {
	out := map[string]bool{}
	for _, r := range d.Runs {
		for axis := range r.Axes {
			out[axis] = true
		}
	}
	return out
}

// axesAreThere refuses a choice on an axis that neither side has, and of a value that none of its runs has.
func (o Options) axesAreThere(a, b *result.Document) error {
	for _, axis := range slices.Sorted(maps.Keys(o.At)) {
		known := axesOf(a)
		maps.Copy(known, axesOf(b))
		if len(known) == 0 {
			return fmt.Errorf("there is no axis %q; neither result has any", axis)
		}
		if !known[axis] {
			return fmt.Errorf("there is no axis %q; there are: %s", axis, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		for side, d := range []*result.Document{a, b} {
			var values []string
			for _, r := range d.Runs {
				if v, has := r.Axes[axis]; has && !slices.Contains(values, v) {
					values = append(values, v)
				}
			}
			want := o.At[axis][side]
			if len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return claim.SameValue(v, want) }) {
				return fmt.Errorf("%s=%s was not run in %s; there are: %s", axis, want, [2]string{"A", "B"}[side], strings.Join(values, ", "))
			}
		}
	}
	return nil
}

// nothingInCommon returns an error that lists what each side has.
func (o Options) nothingInCommon(a, b Side, m *matched) error {
	text := fmt.Sprintf("%s and %s have nothing in common: A has %s; B has %s", a.Name, b.Name, some(m.onlyA), some(m.onlyB))
	axesA, axesB := axesOf(a.Doc), axesOf(b.Doc)
	for _, side := range []struct {
		name      string
		has, lack map[string]bool
	}{{"A", axesA, axesB}, {"B", axesB, axesA}} {
		for _, axis := range slices.Sorted(maps.Keys(side.has)) {
			if _, chosen := o.At[axis]; !chosen && !side.lack[axis] {
				return fmt.Errorf("%s; only %s has an axis %s: choose a value of it with --at %s=VALUE", text, side.name, axis, axis)
			}
		}
	}
	return fmt.Errorf("%s; put one against the other with --scheme X,Y, --world X,Y or --at AXIS=V,W", text)
}

// some lists up to 4 names.
func some(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:4], "; ") + fmt.Sprintf("; and %d more", len(names)-4)
	}
	if len(names) == 0 {
		return "nothing that was asked for"
	}
	return strings.Join(names, "; ")
}
