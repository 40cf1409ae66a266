package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"weir/experiment/result"
)

// over returns a document with schemes over an axis, two seeds each.
func over(figures string, values ...string) *result.Document {
	doc := &result.Document{Experiment: "F9", Weir: "v1", Host: result.Host{Kernel: "6.18", CPUs: 2}, File: []byte(`{"seeds":[1,2],"figures":` + figures + `}`)}
	for _, v := range values {
		for seed := int64(1); seed <= 2; seed++ {
			at, _, _ := quantity(v)
			r := run("sicc", seed, map[string]string{"interval": v}, &result.Group{FCT: &result.Distribution{N: 1, Mean: 10*at + float64(seed)}})
			doc.Runs = append(doc.Runs, r)
		}
	}
	for seed := int64(1); seed <= 2; seed++ {
		doc.Runs = append(doc.Runs, run("droptail", seed, nil, &result.Group{FCT: &result.Distribution{N: 1, Mean: 100}}))
	}
	for _, r := range doc.Runs {
		// 200 steps of 5 ms: a ramp, the second seed 10 above the first.
		rates := make([]float64, 200)
		for i := range rates {
			rates[i] = float64(i) + 10*float64(r.Seed-1)
		}
		r.Detail = &result.Detail{
			DurationMs: 1000, StepMs: 5, Rates: map[string][]float64{"g": rates},
			Queues: map[string][]result.QueueStep{"port": {{FromMs: 0, ToMs: 500, Bytes: 1000 * r.Seed}, {FromMs: 500, ToMs: 1000, Bytes: 4000}}},
		}
		r.Ports["port"] = &result.PortResult{BufferBytes: new(int64(9000))}
	}
	return doc
}

// Over an axis: in the order of its values, with a band over seeds, and a horizontal line for a scheme that does
// not use the axis.
func TestAskedPictures_Line(t *testing.T) {
	figures := `[{"name":"fig7","line":["g.fct_ms.mean"],"over":"interval"}]`
	doc := over(figures, "10ms", "500us", "2ms")
	all := askedPictures(doc, styles(doc))
	if len(all) != 1 || len(all[0].curves) != 2 {
		t.Fatalf("%d pictures", len(all))
	}
	p := all[0]
	sicc, level := p.curves[0], p.curves[1]
	if got := fmt.Sprint(sicc.line); got != "[{0.5 6.5} {2 21.5} {10 101.5}]" {
		t.Errorf("line %s", got)
	}
	if got := fmt.Sprint(sicc.band); got != "[{0.5 6} {2 21} {10 101} {10 102} {2 22} {0.5 7}]" {
		t.Errorf("band %s", got)
	}
	if got := fmt.Sprint(level.line); got != "[{0.5 100} {2 100} {10 100}]" || level.label != "droptail" {
		t.Errorf("%s: %s", level.label, got)
	}
	if p.x.label != "interval (ms)" || p.x.min != 0.5 || p.x.max != 10 || p.y.label != "flow completion time (ms)" || p.y.max < 102 {
		t.Errorf("axes %+v %+v", p.x, p.y)
	}
	doc = over(figures, "slow", "fast")
	p = askedPictures(doc, styles(doc))[0]
	if strings.Join(p.names, " ") != "slow fast" || p.curves[0].line[1].X != 1 {
		t.Errorf("values that are no numbers: %v, %v", p.names, p.curves[0].line)
	}
}

// Rates over time: a picture for each scheme, all with one scale, with the median and the band over seeds.
func TestAskedPictures_Rates(t *testing.T) {
	doc := over(`[{"name":"fig2","title":"Fig. 2","rates":["g"]}]`, "1ms", "2ms")
	all := askedPictures(doc, styles(doc))
	if len(all) != 2 {
		t.Fatalf("%d pictures, want one for each scheme", len(all))
	}
	for i, want := range []struct{ name, title, curves string }{
		{"fig2-sicc", "Fig. 2: sicc", "1ms 2ms"}, {"fig2-droptail", "Fig. 2: droptail", "g"},
	} {
		p := all[i]
		var labels []string
		for _, c := range p.curves {
			labels = append(labels, c.label)
		}
		if p.name != want.name || p.title != want.title || strings.Join(labels, " ") != want.curves || p.y.max < 209 || p.y.max != all[0].y.max {
			t.Errorf("%s, %q, curves %q, axis %+v", p.name, p.title, labels, p.y)
		}
	}
	c := all[1].curves[0]
	if n := len(c.line); n != 200 || c.line[100].Y != 105 || math.Abs(c.line[100].X-0.5025) > 1e-9 || c.band[100].Y != 100 || c.band[2*n-101].Y != 110 {
		t.Errorf("%d points, at 0.5 s %v between %v and %v", n, c.line[100], c.band[100], c.band[2*n-101])
	}
}

func TestAskedPictures_Queue(t *testing.T) {
	doc := over(`[{"name":"fig5","queue":"port","note":"as drawn"}]`, "1ms")
	p := askedPictures(doc, styles(doc))[0]
	c := p.curves[0]
	if first, last := c.line[0].Y, c.line[len(c.line)-1].Y; first != 1.5 || last != 4 || c.band[0].Y != 1 {
		t.Errorf("queue from %v (band from %v) to %v KB", first, c.band[0].Y, last)
	}
	if len(p.lines) != 1 || p.lines[0].y != 9 || !strings.HasPrefix(p.caption, "as drawn Mean over 8 ms.") {
		t.Errorf("lines %v, %q", p.lines, p.caption)
	}
}

// Seeds of different durations are compared at the same instants: both have the same rate and the same queue at
// every time that both have.
func TestAskedPictures_UnequalDurations(t *testing.T) {
	doc := over(`[{"name":"fig2","rates":["g"]},{"name":"fig5","queue":"port"}]`, "1ms")
	for _, r := range doc.Runs {
		steps := 200 * int(r.Seed)
		r.Detail.DurationMs = float64(steps) * r.Detail.StepMs
		rates := make([]float64, steps)
		for i := range rates {
			rates[i] = float64(i)
		}
		r.Detail.Rates["g"] = rates
		r.Detail.Queues["port"] = []result.QueueStep{
			{FromMs: 0, ToMs: 500, Bytes: 1000}, {FromMs: 500, ToMs: 900, Bytes: 4000}, {FromMs: 900, ToMs: r.Detail.DurationMs, Bytes: 2000},
		}
	}
	pictures := askedPictures(doc, styles(doc))
	if len(pictures) != 3 {
		t.Fatalf("%d pictures", len(pictures))
	}
	for _, p := range pictures {
		for _, c := range p.curves {
			n := len(c.line)
			for i, at := range c.line {
				if low, high := c.band[i].Y, c.band[2*n-1-i].Y; low != at.Y || high != at.Y {
					t.Fatalf("%s, %s: %v at %v s, between %v and %v", p.name, c.label, at.Y, at.X, low, high)
				}
			}
			if last := c.line[n-1].X; last < 1.9 {
				t.Errorf("%s, %s ends at %v s", p.name, c.label, last)
			}
		}
		if p.x.max != 2 || p.name == "fig5" && !strings.HasPrefix(p.caption, "Mean over 16 ms.") {
			t.Errorf("%s: %+v, %q", p.name, p.x, p.caption)
		}
	}
}

// A seed that ends earlier than another does not end the curve; a gap in one seed does not move it.
func TestOverSeeds(t *testing.T) {
	short, long := joined([]float64{2, 4}, 1000, 1), joined([]float64{4, 8, 6}, 1000, 1)
	if c := overSeeds(nil); len(c.line)+len(c.band) != 0 {
		t.Errorf("of nothing: %+v", c)
	}
	c := overSeeds([]plotter.XYs{short, long})
	if got := fmt.Sprint(c.line, c.band); got != "[{0.5 3} {1.5 6} {2.5 6}] [{0.5 2} {1.5 4} {2.5 6} {2.5 6} {1.5 8} {0.5 4}]" {
		t.Error(got)
	}
	gap := plotter.XYs{short[0], {X: 2.5, Y: 4}}
	if got := fmt.Sprint(overSeeds([]plotter.XYs{gap, long}).line); got != "[{0.5 3} {1.5 8} {2.5 5}]" {
		t.Errorf("a seed of which nothing is known at 1.5: %s", got)
	}
	if c := overSeeds([]plotter.XYs{long}); len(c.band) != 0 {
		t.Error("one seed has a band")
	}
}
