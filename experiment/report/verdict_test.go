package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"weir/cmd/weir/laws"
	"weir/experiment/result"
)

// two returns a document of two schemes: answers with a tail, long flows with a rate.
func two() *result.Document {
	one := func(scheme string, law string, p99, mbps float64, drops int64, seed int64) *result.Run {
		return &result.Run{
			World: "sim", Scheme: scheme, Laws: []string{law}, Seed: seed, Scale: 1,
			Groups: map[string]*result.Group{
				"mice": {Flows: 10, FCT: &result.Distribution{N: 10, P99: p99}},
				"long": {Flows: 2, ThroughputMbps: &mbps},
			},
			Ports: map[string]*result.PortResult{"all": {Drops: &drops}},
		}
	}
	return &result.Document{Experiment: "x", Laws: laws.All().Specs(), Runs: []*result.Run{
		one("droptail", "droptail", 2031, 176, 36878, 1), one("droptail", "droptail", 2000, 176, 36878, 2), one("droptail", "droptail", 2100, 176, 36878, 3),
		one("ecn", "ecn", 218, 175, 12775, 1),
		one("mine", "fairq", 22.34, 171.25, 64, 1), one("mine", "fairq", 22.34, 171.25, 64, 2), one("mine", "fairq", 22.34, 171.25, 64, 3),
	}}
}

func TestHeadline(t *testing.T) {
	doc := two()
	want := "p99 2031 -> 22.3 ms, throughput -2.7 %, drops 36878 -> 64: mine against droptail (simulator, 3 seeds)."
	if got := Headline(doc); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := table(t, doc); !strings.HasPrefix(strings.Join(strings.Fields(got), " "), want) {
		t.Errorf("the terminal begins with\n%s", got[:200])
	}
	var page bytes.Buffer
	if err := HTML(&page, doc, nil); err != nil {
		t.Fatal(err)
	}
	shown := strings.ReplaceAll(page.String(), "&gt;", ">")
	head := strings.Index(shown, want)
	if head < 0 || head > strings.Index(shown, "What was run") {
		t.Error("the verdict does not stand at the top of the page")
	}
	doc.Runs = doc.Runs[:1]
	if got := Headline(doc); got != "p99 2031 ms, throughput 176 Mbit/s, drops 36878: droptail (simulator, 1 seed)." {
		t.Errorf("of one scheme: %q", got)
	}
	if got := Headline(&result.Document{}); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// Next to a verdict is a note if its runs are not of the whole experiment on a quiet machine.
func TestConditions(t *testing.T) {
	c := &result.Claim{Claim: "mine.mice.drops < droptail.mice.drops", World: "sim", Seeds: []int64{1, 2, 3}, Left: result.PerSeed{1, 1, 1}, Right: result.PerSeed{1, 1, 1}}
	for _, tt := range []struct {
		want   string
		change func(*result.Document)
	}{
		{"3 seeds", func(*result.Document) {}},
		{"3 seeds", func(d *result.Document) { d.Set = []string{"network.buffer=1MB", "topology.switch=ovs"} }},
		{"3 seeds, shortened", func(d *result.Document) { d.Set = []string{"duration=500ms"} }},
		{"3 seeds, shortened", func(d *result.Document) { d.Set = []string{"traffic.mice.requests=10"} }},
		{"3 seeds, 5x slower", func(d *result.Document) { each(d, func(r *result.Run) { r.Scale = 5 }) }},
		{"3 seeds, busy machine", func(d *result.Document) {
			each(d, func(r *result.Run) { r.Busy = &result.Distribution{P90: 0.96} })
		}},
		{"3 seeds, busy machine in 1 of 6 runs", func(d *result.Document) { d.Runs[4].Busy = &result.Distribution{P90: 0.96} }},
		{"3 seeds", func(d *result.Document) { d.Runs[3].Busy = &result.Distribution{P90: 1} }}, // ecn, which the claim is not about
		{"3 seeds, cut short", func(d *result.Document) { d.Runs[0].Partial = true }},
	} {
		doc := two()
		tt.change(doc)
		doc.Claims = []result.Claim{*c}
		if got := Conditions(doc, c); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		if got := table(t, doc); !strings.Contains(strings.Join(strings.Fields(got), " "), "? sim ("+tt.want+"): ") {
			t.Errorf("the terminal does not say %q:\n%s", tt.want, got)
		}
		var page bytes.Buffer
		if err := HTML(&page, doc, nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), ">"+tt.want+"<") {
			t.Errorf("the page does not say %q", tt.want)
		}
	}
	if got := Conditions(two(), &result.Claim{Claim: c.Claim, World: "sim"}); got != "" {
		t.Errorf("of what was not run: %q", got)
	}
}

func each(d *result.Document, do func(*result.Run)) {
	for _, r := range d.Runs {
		do(r)
	}
}

// Groups of one flow each have one table, in any form of display.
func TestTable_GroupsOfOneFlow(t *testing.T) {
	doc := &result.Document{Experiment: "x"}
	for i, scheme := range []string{"droptail", "fairq"} {
		groups := map[string]*result.Group{"many": {Flows: 7, ThroughputMbps: new(3.5)}}
		for k := range 5 {
			groups[fmt.Sprintf("tcp%d", k+1)] = &result.Group{Flows: 1, ThroughputMbps: new(float64(10*i + k))}
		}
		doc.Runs = append(doc.Runs, &result.Run{World: "sim", Scheme: scheme, Seed: 1, Scale: 1, Groups: groups})
	}
	got := table(t, doc)
	for _, want := range []string{"5 groups of one flow  throughput", "droptail tcp1                  0", "fairq tcp5                    14", "many"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\ntcp1 ") {
		t.Errorf("tcp1 has a table of its own:\n%s", got)
	}
	var page bytes.Buffer
	if err := HTML(&page, doc, nil); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<caption>"); n != 2 {
		t.Errorf("%d tables on the page, want 2", n)
	}
	figures := strings.Index(page.String(), `id="figures"`)
	if results := strings.Index(page.String(), `id="results"`); figures > results {
		t.Error("tables stand above figures")
	}
}

// Where bands overlap, the colour is that of one of them: each but the first has a background of paper.
func TestDraw_BandsDoNotMix(t *testing.T) {
	box := func(low, high float64) plotter.XYs {
		return plotter.XYs{{X: 0, Y: low}, {X: 1, Y: low}, {X: 1, Y: high}, {X: 0, Y: high}}
	}
	p := &picture{curves: []curve{{band: box(4, 5)}, {band: box(0, 10)}, {}, {band: box(3, 6)}}}
	var widths []float64
	for _, c := range p.bands() {
		widths = append(widths, c.band[2].Y-c.band[0].Y)
	}
	if fmt.Sprint(widths) != "[10 3 1]" {
		t.Errorf("bands are drawn in the order %v, want the widest first", widths)
	}
	svg, err := (&picture{name: "n", title: "t", x: axis{label: "x", max: 1}, y: axis{label: "y", max: 10}, curves: []curve{
		{label: "a", look: look{colour: 0}, band: box(0, 10), line: plotter.XYs{{X: 0, Y: 5}, {X: 1, Y: 5}}},
		{label: "b", look: look{colour: 1}, band: box(2, 8), line: plotter.XYs{{X: 0, Y: 5}, {X: 1, Y: 5}}},
	}}).svg()
	if err != nil {
		t.Fatal(err)
	}
	ground := regexp.MustCompile(`<path d="[^"]*" style="fill:#FFFFFF" />`)
	if n := len(ground.FindAll(svg, -1)); n != 2 { // the figure's own, and the second band's
		t.Errorf("%d grounds of paper under figure and bands, want 2:\n%s", n, svg)
	}
}
