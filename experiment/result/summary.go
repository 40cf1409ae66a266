package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Looked selects parts of a document: the groups and ports in windows, as WINDOW.NAME, and the distributions whose
// single values are needed, as Run.Values takes them, joined by dots. Metrics are those that a claim or a figure uses, as
// Run.Metric takes them. Table asks for a table also if there are few runs.
type Looked struct {
	Windows, Distributions, Metrics []string
	Table                           bool
}

// digits is the number of significant digits in a summary.
const digits = 6

// keptValues is the maximum number of values of a distribution in a summary; a larger one is reduced to as many
// quantiles.
const keptValues = 1001

// Summary returns the document as a repository stores it. It has every figure of the whole run to six digits. It
// has windows and single values only as far as at selects them, and no claims, which can be decided again. It does
// not change the document. If it has more than tableRuns runs, each run has only its main metrics, those in at, and
// tableValues quantiles.
func (d *Document) Summary(at Looked) (*Document, error) {
	var b bytes.Buffer
	if err := d.WriteJSON(&b); err != nil {
		return nil, err
	}
	out, err := ReadJSON(&b)
	if err != nil {
		return nil, fmt.Errorf("sum up the results of %s: %w", d.Experiment, err)
	}
	out.Claims = nil
	for i, r := range out.Runs {
		for name, w := range r.Windows {
			for group := range w.Groups {
				if !slices.Contains(at.Windows, name+"."+group) {
					delete(w.Groups, group)
				}
			}
			for port := range w.Ports {
				if !slices.Contains(at.Windows, name+"."+port) {
					delete(w.Ports, port)
				}
			}
			if len(w.Groups)+len(w.Ports) == 0 {
				delete(r.Windows, name)
			}
		}
		for _, path := range at.Distributions {
			if values, ok := d.Runs[i].Values(strings.Split(path, ".")); ok {
				if r.Behind == nil {
					r.Behind = map[string][]float64{}
				}
				r.Behind[path] = quantiles(values, keptValues)
			}
		}
		round(reflect.ValueOf(r))
	}
	if at.Table || len(out.Runs) > tableRuns {
		out.reduce(at.Metrics)
	}
	return out, nil
}

// quantiles sorts values, and reduces more than n of them to n quantiles.
func quantiles(values []float64, n int) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) <= n {
		return sorted
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = Quantile(sorted, float64(i)/float64(n-1))
	}
	return out
}

// round rounds every number with a fraction below v to the digits of a summary. It does not round the laws'
// parameters, which are settings.
func round(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			round(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				round(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			round(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if v.Type().Elem().Kind() == reflect.Interface {
				return
			}
			value := reflect.New(v.Type().Elem()).Elem() // values in a map cannot be set
			value.Set(v.MapIndex(key))
			round(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Float64:
		if f := v.Float(); v.CanSet() && !math.IsNaN(f) && !math.IsInf(f, 0) {
			short, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'g', digits, 64), 64) // it was a number before
			v.SetFloat(short)
		}
	default:
	}
}

// WriteLines writes the document as WriteJSON does, but compact: one line for each run, so that a diff is
// readable. A summary of many runs has a table instead.
func (d *Document) WriteLines(w io.Writer) error {
	var b bytes.Buffer
	head := *d
	head.Runs = nil
	if err := head.WriteJSON(&b); err != nil {
		return err
	}
	var parts struct {
		Experiment, Weir, Host, File, Set, Skipped, Claims json.RawMessage
	}
	if err := json.Unmarshal(b.Bytes(), &parts); err != nil {
		return fmt.Errorf("write results of %s: %w", d.Experiment, err)
	}
	b.Reset()
	line := func(name string, value json.RawMessage) {
		fmt.Fprintf(&b, "%q: ", name)
		_ = json.Compact(&b, value) // it was read as JSON
		b.WriteString(",\n")
	}
	b.WriteString("{")
	line("experiment", parts.Experiment)
	line("weir", parts.Weir)
	line("host", parts.Host)
	line("file", parts.File)
	if len(parts.Set) > 0 {
		line("set", parts.Set)
	}
	line("skipped", parts.Skipped)
	line("claims", parts.Claims)
	if d.IsTable() {
		if err := d.writeTable(&b); err != nil {
			return fmt.Errorf("write results of %s: %w", d.Experiment, err)
		}
		_, err := w.Write(b.Bytes())
		return err
	}
	b.WriteString(`"runs": [`)
	for i, r := range d.Runs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(r); err != nil {
			return fmt.Errorf("write results of %s: %w", d.Experiment, err)
		}
		b.Truncate(b.Len() - 1) // its newline
	}
	b.WriteString("\n]}\n")
	_, err := w.Write(b.Bytes())
	return err
}
