package result

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

// RunRow has the columns of runs.parquet that every experiment has: the run and its conditions. There is also a
// column for each axis and for each main metric: see WriteRuns.
type RunRow struct {
	Run        int32      `parquet:"run"` // as in flows.parquet and series.parquet
	Experiment string     `parquet:"experiment,dict"`
	World      string     `parquet:"world,dict"`
	Scheme     string     `parquet:"scheme,dict"`
	Laws       string     `parquet:"laws,dict"` // "ecn,static"
	GuestCC    string     `parquet:"guest_cc,dict"`
	Seed       int64      `parquet:"seed"`
	Scale      float64    `parquet:"scale"`
	Params     string     `parquet:"params,dict"` // JSON: the laws' configuration
	Weir       string     `parquet:"weir,dict"`   // version that ran it
	Kernel     string     `parquet:"kernel,dict"`
	Ended      *time.Time `parquet:"ended,optional,timestamp(millisecond)"`
	TookS      *float64   `parquet:"took_s,optional"`
	Partial    bool       `parquet:"partial"`
	Unmet      string     `parquet:"unmet,dict"` // joined by "; "
	RTTus      *float64   `parquet:"rtt_us,optional"`
	BusyMean   *float64   `parquet:"busy_mean,optional"`
	Payload    float64    `parquet:"payload_share"`
}

// numberSuffix ends the name of the column with an axis's values as numbers; another column has them as written.
const numberSuffix = "_number"

// runColumn is a column that depends on the experiment.
type runColumn struct {
	name string
	kind reflect.Type // of its field: a pointer, nil if the run has no such value
	of   func(*Run) any
}

// WriteRuns writes runs.parquet, a row for each run. It has a column NAME for every axis. If all its
// values are numbers of one unit (AxisNumber), it also has a column NAME_number. It has a column for each of MainMetrics, named as in a claim without its
// scheme: mice.fct_ms.p99. An axis with the name of another column is called axis_NAME. A null is a value that
// does not apply or is not known.
func (d *Document) WriteRuns(w io.Writer) error {
	columns := d.runColumns()
	fixed := reflect.TypeFor[RunRow]()
	fields := make([]reflect.StructField, 0, fixed.NumField()+len(columns))
	for i := range fixed.NumField() {
		f := fixed.Field(i)
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	for i, c := range columns {
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprintf("C%d", i), Type: c.kind, Tag: reflect.StructTag(fmt.Sprintf("parquet:%q", c.name+",optional")),
		})
	}
	row := reflect.StructOf(fields)
	out := parquet.NewGenericWriter[any](w, parquet.SchemaOf(reflect.Zero(row).Interface()), parquet.Compression(&parquet.Snappy),
		parquet.KeyValueMetadata("experiment", d.Experiment),
		parquet.KeyValueMetadata("units", "_ms: ms of the experiment's own time; _mbps: Mbit/s; _bytes: bytes; "+
			"NAME"+numberSuffix+": an axis's value, durations in ms, rates in Mbit/s, sizes in bytes, limits in packets"))
	for i, r := range d.Runs {
		filled := reflect.New(row).Elem()
		head, err := d.runRow(i)
		if err != nil {
			return err
		}
		for f := range fixed.NumField() {
			filled.Field(f).Set(reflect.ValueOf(head).Field(f))
		}
		for c := range columns {
			if v := columns[c].of(r); v != nil {
				filled.Field(fixed.NumField() + c).Set(reflect.ValueOf(v))
			}
		}
		if _, err := out.Write([]any{filled.Interface()}); err != nil {
			return fmt.Errorf("write row of run %d: %w", i, err)
		}
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write rows of runs: %w", err)
	}
	return nil
}

// runRow fills in the columns that every experiment has.
func (d *Document) runRow(i int) (RunRow, error) {
	r := d.Runs[i]
	params := map[string]any{}
	for name, v := range r.Params {
		if _, isAxis := r.Axes[name]; !isAxis {
			params[name] = v
		}
	}
	text, err := json.Marshal(params)
	if err != nil {
		return RunRow{}, fmt.Errorf("write the parameters of run %d: %w", i, err)
	}
	row := RunRow{
		Run: int32(i), Experiment: d.Experiment, World: r.World, Scheme: r.Scheme, Laws: strings.Join(r.Laws, ","), GuestCC: r.GuestCC,
		Seed: r.Seed, Scale: r.Scale, Params: string(text), Weir: d.Weir, Kernel: d.Host.Kernel,
		Partial: r.Partial, Unmet: strings.Join(texts(r.Unmet), "; "), RTTus: r.RTTus, Payload: r.PayloadShare,
	}
	if r.By != nil {
		row.Weir, row.Kernel, row.Ended, row.TookS = r.By.Weir, r.By.Kernel, &r.By.Ended, &r.By.TookS
	}
	if r.Busy != nil {
		row.BusyMean = &r.Busy.Mean
	}
	return row, nil
}

// runColumns lists the columns of the axes, then of the metrics.
func (d *Document) runColumns() []runColumn {
	var out []runColumn
	taken := map[string]bool{}
	for i := range reflect.TypeFor[RunRow]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[RunRow]().Field(i).Tag.Get("parquet"), ",")
		taken[name] = true
	}
	add := func(name string, kind reflect.Type, of func(*Run) any) {
		for taken[name] {
			name = "axis_" + name
		}
		taken[name] = true
		out = append(out, runColumn{name, kind, of})
	}
	for _, axis := range axisNames(d.Runs) {
		if axis == "guest_cc" && d.isGuestCC(axis) {
			continue
		}
		add(axis, reflect.TypeFor[*string](), func(r *Run) any {
			if v, ok := r.Axes[axis]; ok {
				return &v
			}
			return nil
		})
		if !d.isNumeric(axis) {
			continue
		}
		add(axis+numberSuffix, reflect.TypeFor[*float64](), func(r *Run) any {
			if v, ok := AxisNumber(r.Axes[axis]); ok {
				return &v
			}
			return nil
		})
	}
	for _, path := range MainMetrics(d.Runs, d.Laws.Metrics()) {
		add(strings.Join(path, "."), reflect.TypeFor[*float64](), func(r *Run) any {
			if v, ok := r.Metric(path); ok {
				return &v
			}
			return nil
		})
	}
	return out
}

// axisNames lists the axes that any run has a value on, sorted.
func axisNames(runs []*Run) []string {
	return names(runs, func(r *Run) []string {
		var out []string
		for axis := range r.Axes {
			out = append(out, axis)
		}
		return out
	})
}

// isGuestCC reports whether the column of the guests' congestion control already has the axis's values.
func (d *Document) isGuestCC(axis string) bool {
	return !slices.ContainsFunc(d.Runs, func(r *Run) bool {
		v, has := r.Axes[axis]
		return has && v != r.GuestCC
	})
}

// isNumeric reports whether every value on the axis is a number, and all of them have one unit. 0 fits every unit.
func (d *Document) isNumeric(axis string) bool {
	units := map[string]bool{}
	for _, r := range d.Runs {
		text, has := r.Axes[axis]
		if !has {
			continue
		}
		v, unit, ok := axisNumber(text)
		if !ok {
			return false
		}
		if unit != "" || v != 0 {
			units[unit] = true
		}
	}
	return len(units) <= 1
}

func texts(list []Unmet) []string {
	var out []string
	for _, u := range list {
		out = append(out, u.Text)
	}
	return out
}
