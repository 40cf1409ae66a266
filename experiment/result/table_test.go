package result

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// manyRuns is the golden document with its runs again at each point of an axis, with more seeds, and other figures each time.
func manyRuns(points, seeds int) *Document {
	doc := goldenDocument()
	doc.Runs = nil
	for point := range points {
		for seed := range seeds {
			for i, r := range goldenDocument().Runs {
				r.Seed = int64(seed + 1)
				r.Scheme = fmt.Sprint("scheme", i)
				if i > 0 { // the first scheme does not use the axis
					r.Axes = map[string]string{"flows": fmt.Sprint(point)}
					r.Params = maps.Clone(r.Params)
					if r.Params == nil {
						r.Params = map[string]any{}
					}
					r.Params["flows"] = fmt.Sprint(point)
				} else if point > 0 {
					continue
				}
				r.By = &Maker{Weir: "v1", Kernel: "6.18", Ended: time.Unix(int64(1000+point*seeds+seed), 0).UTC(), TookS: float64(point + seed)}
				mice := r.Groups["mice"]
				mice.Flows = 10 * (point + 1)
				mice.FCT = distribute([]float64{float64(seed) + 0.123456789, float64(point*100 + 7)})
				if seed == 1 && point == 1 {
					mice.FCT = nil
				}
				doc.Runs = append(doc.Runs, r)
			}
		}
	}
	return doc
}

// A table has, of each run, the metrics that it keeps to six digits, and what else identifies the run. It does not have
// others, and is much smaller than the runs.
func TestSummary_OfManyRunsIsATable(t *testing.T) {
	doc := manyRuns(40, 20) // with two schemes or more in the golden document
	if len(doc.Runs) <= tableRuns {
		doc = manyRuns(tableRuns/20+1, 20)
	}
	const odd = "mice.fct_ms.p25" // no main metric
	small, err := doc.Summary(Looked{Metrics: []string{odd, "nobody.flows"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := small.WriteLines(&b); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	read, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !read.IsTable() || len(read.Runs) != len(doc.Runs) {
		t.Fatalf("%d runs of %d, table %v", len(read.Runs), len(doc.Runs), read.IsTable())
	}
	key := func(r *Run) string { return fmt.Sprint(r.Scheme, r.Seed, r.Axes) }
	byKey := map[string]*Run{}
	for _, r := range read.Runs {
		byKey[key(r)] = r
	}
	paths := append(MainMetrics(doc.Runs, nil), split(odd))
	if len(paths) < 20 {
		t.Errorf("%d metrics", len(paths))
	}
	for _, was := range doc.Runs {
		is := byKey[key(was)]
		if is == nil {
			t.Fatalf("no run %s", key(was))
		}
		for _, path := range paths {
			if _, ok := was.Windows[path[0]]; ok {
				continue // not selected
			}
			a, has := was.Metric(path)
			b, still := is.Metric(path)
			if has != still || math.Abs(a-b) > 5e-6*math.Abs(a) {
				t.Fatalf("%s of %s: %v (%v), was %v (%v)", strings.Join(path, "."), key(was), b, still, a, has)
			}
		}
		if !cmp.Equal(is.Params, was.Params) || !cmp.Equal(is.Axes, was.Axes) || is.World != was.World || is.Scale != was.Scale ||
			is.By.Weir != was.By.Weir || !cmp.Equal(is.Laws, was.Laws) || math.Abs(is.PayloadShare-was.PayloadShare) > 1e-6 {
			t.Fatalf("%+v, was %+v", is, was)
		}
	}
	if _, ok := read.Runs[0].Metric(split("mice.fct_ms.p10")); ok {
		t.Error("a metric that is not kept has a value")
	}
	var lines bytes.Buffer
	few := *doc
	few.Runs = doc.Runs[:100]
	one, err := few.Summary(Looked{})
	if err == nil {
		err = one.WriteLines(&lines)
	}
	if err != nil || one.IsTable() || size*100/len(doc.Runs)*4 > lines.Len() {
		t.Errorf("%d bytes for %d runs, and %d for 100 of them one by one: %v", size, len(doc.Runs), lines.Len(), err)
	}
}

// Values of distributions become quantiles. Runs that are written with those of a table get its metrics.
func TestSummary_TableWithOtherRuns(t *testing.T) {
	doc := manyRuns(2, 3)
	for _, r := range doc.Runs {
		r.Groups["mice"].values = map[string][]float64{"fct_ms": nil}
		for i := range 5000 {
			r.Groups["mice"].values["fct_ms"] = append(r.Groups["mice"].values["fct_ms"], float64((i*7919)%5000))
		}
	}
	old, err := doc.Summary(Looked{Table: true, Distributions: []string{"mice.fct_ms"}})
	if err != nil {
		t.Fatal(err)
	}
	more, err := manyRuns(2, 3).Summary(Looked{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range more.Runs {
		r.Scheme += "b"
	}
	old.Runs = append(old.Runs, more.Runs...)
	var b bytes.Buffer
	if err := old.WriteLines(&b); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b.Bytes(), []byte(`"groups":null`)) + bytes.Count(b.Bytes(), []byte(`"groups":{`)); n > 2*len(goldenDocument().Runs) {
		t.Errorf("%d heads have groups", n)
	}
	read, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	values, ok := read.Runs[0].Values(split("mice.fct_ms"))
	if !ok || len(values) != tableValues || values[0] != 0 || values[tableValues-1] != 4999 {
		t.Errorf("%d values, %v", len(values), ok)
	}
	for _, r := range read.Runs {
		if got, _ := r.Metric(split("mice.flows")); got != 10 && got != 20 {
			t.Errorf("%s: %v flows", r.Scheme, got)
		}
	}
	if n := len(slices.DeleteFunc(read.Runs, func(r *Run) bool { return !strings.HasSuffix(r.Scheme, "b") })); n != len(more.Runs) {
		t.Errorf("%d other runs, want %d", n, len(more.Runs))
	}
}

// Tables that do not fit together are refused.
func TestReadJSON_RefusesATable(t *testing.T) {
	const whole = `{"experiment":"x","runs":[],"table":{"metrics":["a.b","c.d"],"axes":["n"],"heads":[{"world":"sim","scale":1,"scheme":"s"}],"rows":[ROW]}}`
	good := `{"head":0,"at":["1"],"seeds":[1,2],"figures":[[1,null],3]}`
	read := func(row string) (*Document, error) {
		return ReadJSON(strings.NewReader(strings.Replace(whole, "ROW", row, 1)))
	}
	doc, err := read(good)
	if err != nil || len(doc.Runs) != 2 || !maps.Equal(doc.Runs[1].Figures, map[string]float64{"c.d": 3}) || doc.Runs[0].Figures["a.b"] != 1 || doc.Runs[0].Axes["n"] != "1" {
		t.Fatalf("%+v, %v", doc, err)
	}
	for _, change := range [][2]string{
		{`"head":0`, `"head":1`}, {`"head":0`, `"head":-1`}, {`["1"]`, `[]`}, {`[[1,null],3]`, `[3]`}, {`[1,null]`, `[1,2,3]`}, {`[1,null]`, `[]`},
		{`"seeds":[1,2]`, `"seeds":[1,2],"values":[{}]`}, {`3]`, `"3"]`},
	} {
		if _, err := read(strings.Replace(good, change[0], change[1], 1)); err == nil {
			t.Errorf("%s instead of %s is accepted", change[1], change[0])
		}
	}
}
