package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// tableRuns is the largest number of runs that a summary has one by one. One run of D2 to D4 takes 3 KB, so more would take
// megabytes. A larger summary has a table.
const tableRuns = 1000

// tableValues is the maximum number of values of a distribution in a table: a larger one is reduced to as many quantiles.
const tableValues = 101

// table is the runs of a large summary: the main metrics, and those that a claim or a figure uses. ReadJSON makes runs of it,
// whose Metric has these metrics alone. The end of a run and its duration are those of the latest run, and the mean, of the runs
// with the same head.
type table struct {
	Metrics []string    `json:"metrics"` // by their paths
	Axes    []string    `json:"axes"`
	Heads   []*Run      `json:"heads"` // runs without seed, point and figures
	Rows    []tableRow  `json:"rows"`
	took    [][]float64 // of the runs of each head
	index   map[string]int
}

// tableRow is the runs with one head and one point on the axes, a run for each seed.
type tableRow struct {
	Head  int       `json:"head"`
	At    []*string `json:"at"` // by axis; null: the scheme does not use it
	Seeds []int64   `json:"seeds"`
	// Figures has the value of each metric by seed, or one value if it is the same with all seeds. null: it is absent.
	Figures []figures              `json:"figures"`
	Values  []map[string][]float64 `json:"values,omitempty"` // Run.Behind by seed
}

// figures is a metric by seed. NaN: absent.
type figures struct{ PerSeed }

// MarshalJSON writes one value if all are the same.
func (f figures) MarshalJSON() ([]byte, error) {
	text, err := f.PerSeed.MarshalJSON()
	if err != nil || len(f.PerSeed) == 0 {
		return text, err
	}
	all := strings.Split(strings.Trim(string(text), "[]"), ",")
	if slices.ContainsFunc(all, func(v string) bool { return v != all[0] }) {
		return text, nil
	}
	return []byte(all[0]), nil
}

// UnmarshalJSON reads one value as a list of one.
func (f *figures) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] != '[' {
		b = slices.Concat([]byte("["), b, []byte("]"))
	}
	return f.PerSeed.UnmarshalJSON(b)
}

// IsTable reports whether the document is a summary with a table.
func (d *Document) IsTable() bool {
	return slices.ContainsFunc(d.Runs, func(r *Run) bool { return r.Figures != nil })
}

// reduce replaces the figures of runs by those of a table.
func (d *Document) reduce(metrics []string) {
	paths := map[string]bool{}
	for _, path := range metrics {
		paths[path] = true
	}
	for _, path := range MainMetrics(d.Runs, nil) {
		paths[strings.Join(path, ".")] = true
	}
	for i, r := range d.Runs {
		d.Runs[i] = r.reduced(paths)
	}
}

// reduced returns the run with these metrics alone.
func (r *Run) reduced(paths map[string]bool) *Run {
	out := *r
	out.Figures, out.Groups, out.Ports, out.Windows, out.Behind = map[string]float64{}, nil, nil, nil, nil
	for path := range paths {
		if v, ok := r.Metric(strings.Split(path, ".")); ok {
			out.Figures[path] = v
		}
	}
	for path, values := range r.Behind {
		if out.Behind == nil {
			out.Behind = map[string][]float64{}
		}
		out.Behind[path] = quantiles(values, tableValues)
	}
	return &out
}

// newTable returns the table of runs. A run that is not reduced yet gets the metrics that others have.
func newTable(runs []*Run) (*table, error) {
	t := &table{index: map[string]int{}, Axes: append([]string{}, axisNames(runs)...)}
	paths := map[string]bool{}
	for _, r := range runs {
		for path := range r.Figures {
			paths[path] = true
		}
	}
	t.Metrics = slices.Sorted(maps.Keys(paths))
	rows := map[string]int{}
	for _, r := range runs {
		if r.Figures == nil {
			r = r.reduced(paths)
		}
		head, err := t.head(r)
		if err != nil {
			return nil, err
		}
		row := tableRow{Head: head, Figures: make([]figures, len(t.Metrics))}
		for _, axis := range t.Axes {
			if v, ok := r.Axes[axis]; ok {
				row.At = append(row.At, &v)
			} else {
				row.At = append(row.At, nil)
			}
		}
		key, err := json.Marshal([]any{head, row.At})
		if err != nil {
			return nil, fmt.Errorf("write the table of a summary: %w", err)
		}
		i, known := rows[string(key)]
		if !known {
			i = len(t.Rows)
			rows[string(key)] = i
			t.Rows = append(t.Rows, row)
		}
		t.Rows[i].add(r, t.Metrics)
	}
	for i := range t.Heads {
		if by := t.Heads[i].By; by != nil && len(t.took[i]) > 0 {
			by.TookS, _ = moments(t.took[i])
		}
	}
	return t, nil
}

func (row *tableRow) add(r *Run, metrics []string) {
	row.Seeds = append(row.Seeds, r.Seed)
	for i, path := range metrics {
		v, ok := r.Figures[path]
		if !ok {
			v = math.NaN()
		}
		row.Figures[i].PerSeed = append(row.Figures[i].PerSeed, v)
	}
	if r.Behind != nil && row.Values == nil {
		row.Values = make([]map[string][]float64, len(row.Seeds)-1)
	}
	if row.Values != nil {
		row.Values = append(row.Values, r.Behind)
	}
}

// head returns the number of a run's head.
func (t *table) head(r *Run) (int, error) {
	h := *r
	h.Seed, h.Axes, h.Figures, h.Behind, h.Detail = 0, nil, nil, nil, nil
	h.Params = maps.Clone(r.Params)
	for axis := range r.Axes {
		delete(h.Params, axis)
	}
	if r.By != nil {
		h.By = &Maker{Weir: r.By.Weir, Kernel: r.By.Kernel}
	}
	key, err := json.Marshal(&h)
	if err != nil {
		return 0, fmt.Errorf("write the table of a summary: %w", err)
	}
	i, known := t.index[string(key)]
	if !known {
		i = len(t.Heads)
		t.index[string(key)] = i
		t.Heads, t.took = append(t.Heads, &h), append(t.took, nil)
	}
	if by := t.Heads[i].By; by != nil {
		if r.By.Ended.After(by.Ended) {
			by.Ended = r.By.Ended.Truncate(time.Second)
		}
		t.took[i] = append(t.took[i], r.By.TookS)
	}
	return i, nil
}

// runs returns the runs of a table that was read.
func (t *table) runs() ([]*Run, error) {
	var out []*Run
	for n := range t.Rows {
		row := &t.Rows[n]
		if row.Head < 0 || row.Head >= len(t.Heads) || t.Heads[row.Head] == nil || len(row.At) != len(t.Axes) || len(row.Figures) != len(t.Metrics) {
			return nil, fmt.Errorf("row %d does not fit the heads, axes or metrics", n)
		}
		if row.Values != nil && len(row.Values) != len(row.Seeds) {
			return nil, fmt.Errorf("row %d has values of %d runs, and %d seeds", n, len(row.Values), len(row.Seeds))
		}
		for i, seed := range row.Seeds {
			r, err := t.run(row, i)
			if err != nil {
				return nil, fmt.Errorf("row %d, seed %d: %w", n, seed, err)
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// run returns the run with one seed of a row.
func (t *table) run(row *tableRow, i int) (*Run, error) {
	r := *t.Heads[row.Head]
	r.Seed, r.Figures, r.Params = row.Seeds[i], make(map[string]float64, len(t.Metrics)), maps.Clone(r.Params)
	if r.Params == nil {
		r.Params = map[string]any{}
	}
	for k, value := range row.At {
		if value == nil {
			continue
		}
		if r.Axes == nil {
			r.Axes = map[string]string{}
		}
		r.Axes[t.Axes[k]], r.Params[t.Axes[k]] = *value, *value
	}
	for k, path := range t.Metrics {
		f := row.Figures[k].PerSeed
		var v float64
		switch len(f) {
		case len(row.Seeds):
			v = f[i]
		case 1:
			v = f[0]
		default:
			return nil, fmt.Errorf("%s has %d values", path, len(f))
		}
		if !math.IsNaN(v) {
			r.Figures[path] = v
		}
	}
	if row.Values != nil {
		r.Behind = row.Values[i]
	}
	return &r, nil
}

// writeTable writes the runs of a document as a table: a line for each head and each row.
func (d *Document) writeTable(b *bytes.Buffer) error {
	t, err := newTable(d.Runs)
	if err != nil {
		return err
	}
	write := func(before string, value any) {
		b.WriteString(before)
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		err = errors.Join(err, e.Encode(value))
		b.Truncate(b.Len() - 1) // its newline
	}
	write("\"runs\": [],\n\"table\": {\"metrics\": ", t.Metrics)
	write(",\n\"axes\": ", t.Axes)
	separator := ",\n\"heads\": [\n"
	for _, h := range t.Heads {
		write(separator, h)
		separator = ",\n"
	}
	separator = "],\n\"rows\": [\n"
	for i := range t.Rows {
		write(separator, &t.Rows[i])
		separator = ",\n"
	}
	b.WriteString("\n]}}\n")
	return err
}
