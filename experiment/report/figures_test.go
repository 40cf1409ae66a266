package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"weir/experiment/result"
)

func TestFigures(t *testing.T) {
	doc := syntheticDocument()
	dir := t.TempDir()
	figures, err := Figures(dir, doc)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range figures {
		names = append(names, f.Name)
	}
	var want []string
	for _, cc := range []string{"cubic", "reno"} {
		for _, n := range []string{"fct-mice", "queue-bottleneck", "queue-bottleneck-close-up", "goodput-elephants", "rate-elephants"} {
			want = append(want, n+"-guest_cc="+cc)
		}
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("figures (-want +got):\n%s", diff)
	}
	for _, f := range figures {
		texts := svgTexts(t, f.SVG)
		for _, text := range []string{"droptail", "ecn", f.Title} { // a legend and a title
			if !slices.Contains(texts, text) {
				t.Errorf("%s does not say %q: %q", f.Name, text, texts)
			}
		}
		if strings.HasPrefix(f.Name, "queue") && (!slices.Contains(texts, "buffer") || !slices.Contains(texts, "ecn 25KB")) {
			t.Errorf("%s does not name the buffer and the threshold: %q", f.Name, texts)
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name+".png"))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil || img.Bounds().Dx() != 1320 || img.Bounds().Dy() != 840 {
			t.Errorf("%s: %v, %v", f.Name, err, img.Bounds())
		}
	}
	again, err := Figures(t.TempDir(), syntheticDocument())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(figures, again); diff != "" {
		t.Error("the same document was drawn otherwise a second time")
	}
}

// svgTexts returns the texts of an SVG, which must be well-formed.
func svgTexts(t *testing.T, svg []byte) []string {
	t.Helper()
	var out []string
	inText := false
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inText = e.Name.Local == "text"
		case xml.CharData:
			if inText {
				out = append(out, string(e))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

// A document that was read from JSON gives no figures, without an error.
func TestFigures_WithoutDetail(t *testing.T) {
	doc := syntheticDocument()
	for _, r := range doc.Runs {
		r.Detail = nil
	}
	figures, err := Figures(t.TempDir(), doc)
	if err != nil || len(figures) != 0 {
		t.Errorf("%d figures, %v", len(figures), err)
	}
}

func TestAxisPicture(t *testing.T) {
	var missed *picture
	for _, p := range pictures(sweepDocument()) {
		if p.name == "over-senders-deadline_flows-deadlines-missed" {
			missed = p
		}
	}
	if missed == nil {
		t.Fatal("missed deadlines are not drawn over the number of senders")
	}
	if n := len(missed.curves); n != 10 { // 5 schemes in 2 worlds
		t.Fatalf("%d curves", n)
	}
	seen := map[look]bool{}
	for _, c := range missed.curves {
		var x []float64
		for i := range c.line {
			x = append(x, c.line[i].X)
		}
		if !slices.Equal(x, []float64{5, 10, 20, 40}) || seen[c.look] {
			t.Errorf("%s: over %v, look %v taken: %v", c.label, x, c.look, seen[c.look])
		}
		seen[c.look] = true
	}
}

// Sizes, times and rates are numbers too; values without a common unit are not drawn over an axis.
func TestNumericAxis(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   []float64
		label  string
	}{
		{[]string{"5", "10", "2e2"}, []float64{5, 10, 200}, "x"},
		{[]string{"85.3KB", "1MB", "500B"}, []float64{85.3, 1000, 0.5}, "x (KB)"},
		{[]string{"50us", "1ms", "2s"}, []float64{0.05, 1, 2000}, "x (ms)"},
		{[]string{"1Gbit", "200Mbit", "5Mbit"}, []float64{1000, 200, 5}, "x (Mbit/s)"},
		{[]string{"1KB", "1ms", "5"}, nil, ""},
		{[]string{"cubic", "reno", "bbr"}, nil, ""},
	} {
		var parts []*block
		for _, v := range tt.values {
			parts = append(parts, &block{axes: map[string]string{"x": v}})
		}
		_, ok := numericAxis(parts)
		if ok != (tt.want != nil) {
			t.Errorf("%q: numbers: %v", tt.values, ok)
		}
		for i := range tt.want {
			if got := axisNumber(parts[i], "x"); got != tt.want[i] {
				t.Errorf("%s is %v, want %v", tt.values[i], got, tt.want[i])
			}
		}
		if ok && axisLabel(parts, "x") != tt.label {
			t.Errorf("%q: label %q, want %q", tt.values, axisLabel(parts, "x"), tt.label)
		}
	}
}

// A curve of completion times ends at the share of flows that finished, and its band includes every seed.
func TestDistributionCurve(t *testing.T) {
	c := distributionCurve("x", look{}, []sample{{[]float64{1, 2, 3}, 0.5}, {[]float64{2, 4, 6}, 1}, {[]float64{1, 3, 9}, 0.75}})
	last := c.line[len(c.line)-1]
	if last.X != 6 || math.Abs(last.Y-0.75) > 1e-12 {
		t.Errorf("the curve ends at %v, want the median 6 at the mean share 0.75", last)
	}
	if n := len(c.line); len(c.band) != 2*n || c.band[n-1].X != 3 || c.band[n].X != 9 {
		t.Errorf("the band ends at %v and %v, want 3 and 9", c.band[n-1], c.band[n])
	}
}

func TestEnvelope_AgainstEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var steps []result.QueueStep
		var kb []float64 // by ms; NaN if nothing was seen
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			from := float64(len(kb))
			n, v := rapid.IntRange(1, 9).Draw(t, "length"), rapid.Int64Range(0, 99).Draw(t, "value")*1000
			if rapid.IntRange(0, 3).Draw(t, "gap") == 0 {
				kb = append(kb, slices.Repeat([]float64{math.NaN()}, n)...)
				continue
			}
			kb = append(kb, slices.Repeat([]float64{float64(v) / 1e3}, n)...)
			steps = append(steps, result.QueueStep{FromMs: from, ToMs: from + float64(n), Bytes: v})
		}
		columns := rapid.IntRange(1, 6).Draw(t, "columns")
		width := rapid.IntRange(1, 12).Draw(t, "width") // ms of a column
		mean, low, high := envelope(steps, 0, float64(columns*width), columns)
		type point struct{ X, Mean, Low, High float64 }
		var got, want []point
		for i := range mean {
			got = append(got, point{mean[i].X, mean[i].Y, low[i].Y, high[i].Y})
		}
		for k := range columns {
			p, n := point{X: (float64(k) + 0.5) * float64(width) / 1e3, Low: math.Inf(1)}, 0
			for i := k * width; i < (k+1)*width && i < len(kb); i++ {
				if !math.IsNaN(kb[i]) {
					p.Mean, p.Low, p.High, n = p.Mean+kb[i], min(p.Low, kb[i]), max(p.High, kb[i]), n+1
				}
			}
			if n > 0 {
				p.Mean /= float64(n)
				want = append(want, p)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-9, 1e-9)); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	})
}

func TestTicks(t *testing.T) {
	labels := func(low, high float64, log bool) string {
		ticks := linearTicks(low, high)
		if log {
			ticks = logTicks(low, high)
		}
		var out []string
		for _, k := range ticks {
			if k.Label != "" {
				out = append(out, k.Label)
			}
		}
		return strings.Join(out, " ")
	}
	tests := []struct {
		low, high float64
		log       bool
		want      string
	}{
		{0, 20, false, "0 5 10 15 20"},
		{0, 1, false, "0 0.2 0.4 0.6 0.8 1"},
		{10, 10.5, false, "10 10.1 10.2 10.3 10.4 10.5"},
		{0, 0.0003, false, "0 0.00005 0.0001 0.00015 0.0002 0.00025 0.0003"},
		{0, 130000, false, "0 20000 40000 60000 80000 100000 120000"},
		{2, 500, true, "2 5 10 20 50 100 200 500"},
		{0.1, 1000, true, "0.1 1 10 100 1000"},
	}
	for _, tt := range tests {
		if got := labels(tt.low, tt.high, tt.log); got != tt.want {
			t.Errorf("%v to %v: %s, want %s", tt.low, tt.high, got, tt.want)
		}
	}
}

func TestAxisFit(t *testing.T) {
	tests := []struct{ low, high, min, max float64 }{
		{3, 160, 2, 200},   // more than 50-fold: logarithmic
		{3, 140, 3, 150},   // linear
		{1, 1000, 1, 1000}, // the ends are round already
		{0, 80, 0, 85},     // no logarithmic axis has a 0
	}
	for _, tt := range tests {
		var a axis
		a.fit(tt.low, tt.high)
		if a.min != tt.min || a.max != tt.max || a.log != (tt.low > 0 && tt.high/tt.low > 50) {
			t.Errorf("%v to %v: %+v, want %v to %v", tt.low, tt.high, a, tt.min, tt.max)
		}
	}
}

// With nine curves the ninth must not look like the first.
func TestNthLook_AllDiffer(t *testing.T) {
	seen := map[look]int{}
	for n := range len(palette) * len(dashes) {
		if first, is := seen[nthLook(n)]; is {
			t.Fatalf("curves %d and %d look alike", first, n)
		}
		seen[nthLook(n)] = n
	}
}
