package result

import (
	"bytes"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A summary keeps every figure to six digits and the selected parts of windows, and is the same after reading.
func TestSummary(t *testing.T) {
	doc := goldenDocument()
	for _, r := range doc.Runs {
		r.Windows = map[string]Window{
			"early": {Groups: map[string]*Group{"mice": {Flows: 1}, "elephants": {Flows: 2}}, Ports: map[string]*PortResult{"bottleneck": {}}},
			"late":  {Groups: map[string]*Group{"mice": {Flows: 3}}},
		}
		r.Groups["many"] = &Group{values: map[string][]float64{"fct_ms": nil}}
		for i := range 5000 {
			r.Groups["many"].values["fct_ms"] = append(r.Groups["many"].values["fct_ms"], float64((i*7919)%5000))
		}
		r.Groups["few"] = &Group{values: map[string][]float64{"fct_ms": {2.00000004, 1}}}
		r.Params = map[string]any{"law": map[string]any{"gain": 0.123456789}}
	}
	var before bytes.Buffer
	if err := doc.WriteJSON(&before); err != nil {
		t.Fatal(err)
	}
	small, err := doc.Summary(Looked{Windows: []string{"early.mice", "late.elephants"}, Distributions: []string{"many.fct_ms", "few.fct_ms", "nobody.fct_ms"}})
	if err != nil {
		t.Fatal(err)
	}
	var b, after bytes.Buffer
	if err := doc.WriteJSON(&after); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Errorf("the document was changed: %v", err)
	}
	if err := small.WriteLines(&b); err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(b.Bytes(), []byte("\n")); lines > 8+len(doc.Runs) {
		t.Errorf("%d lines for %d runs", lines, len(doc.Runs))
	}
	read, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range read.Runs {
		if len(r.Windows) != 1 || len(r.Windows["early"].Groups) != 1 || len(r.Windows["early"].Ports) != 0 {
			t.Errorf("windows: %+v", r.Windows)
		}
		for _, path := range []string{"mice.fct_ms.mean", "mice.fct_ms.sd", "bottleneck.queue_bytes.p99", "elephants.throughput_mbps", "mice.flows"} {
			was, ok := doc.Runs[i].Metric(split(path))
			is, same := r.Metric(split(path))
			if ok != same || math.Abs(is-was) > 5e-6*math.Abs(was) {
				t.Errorf("%s: %v (%v), was %v (%v)", path, is, same, was, ok)
			}
		}
		many, ok := r.Values(split("many.fct_ms"))
		if !ok || len(many) != 1001 || many[0] != 0 || many[1000] != 4999 || math.Abs(many[500]-2499.5) > 0.001 {
			t.Errorf("of 5000 values %d are kept, middle %v", len(many), many[500])
		}
		if few, _ := r.Values(split("few.fct_ms")); !cmp.Equal(few, []float64{1, 2}) {
			t.Errorf("two values: %v", few)
		}
		if _, ok := r.Values(split("nobody.fct_ms")); ok {
			t.Error("values of nobody")
		}
		if !cmp.Equal(r.Params, doc.Runs[i].Params) {
			t.Errorf("what was asked for was rounded: %v", r.Params)
		}
	}
}
