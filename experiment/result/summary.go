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

// Looked says what of a document somebody looks at: the groups and ports within windows, as WINDOW.NAME, and the
// distributions whose single values are asked for, as Run.Values takes them, joined by dots.
type Looked struct {
	Windows, Distributions []string
}

// digits is to how many significant digits a summary gives its figures.
const digits = 6

// keptValues is up to how many values of a distribution a summary holds; of more it holds as many quantiles.
const keptValues = 1001

// Summary gives the document as it is kept in a repository: every figure of the whole run to six digits, windows
// and single values only where they are looked at, and no claims, which can be decided anew. It leaves the
// document as it is.
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
				r.Behind[path] = thinned(values)
			}
		}
		round(reflect.ValueOf(r))
	}
	return out, nil
}

// thinned sorts values, and of very many takes as many quantiles as a summary may hold.
func thinned(values []float64) []float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) <= keptValues {
		return sorted
	}
	out := make([]float64, keptValues)
	for i := range out {
		out[i] = Quantile(sorted, float64(i)/(keptValues-1))
	}
	return out
}

// round brings every number with a fraction below v to as many digits as a summary has. The laws' parameters
// are what was asked for, and stay.
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
			value := reflect.New(v.Type().Elem()).Elem() // what is in a map cannot be set
			value.Set(v.MapIndex(key))
			round(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Float64:
		if f := v.Float(); v.CanSet() && !math.IsNaN(f) && !math.IsInf(f, 0) {
			short, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'g', digits, 64), 64) // it was one before
			v.SetFloat(short)
		}
	default:
	}
}

// WriteLines writes the document as WriteJSON does, but compact: a line for each run, so that a difference can
// be read.
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
