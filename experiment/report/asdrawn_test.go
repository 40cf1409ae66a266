package report

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"weir/experiment/result"
)

// drawn returns a document with two schemes at two points, two seeds each, and the figures given.
func drawn(figures string) *result.Document {
	doc := &result.Document{Experiment: "F9", Weir: "v1", Host: result.Host{Kernel: "6.18", CPUs: 2}, File: []byte(`{"figures":` + figures + `}`)}
	for i, scheme := range []string{"droptail", "fairq"} {
		for j, cc := range []string{"cubic", "reno"} {
			for seed := int64(1); seed <= 2; seed++ {
				x := float64(100*(2-i)*(j+1)) + float64(seed)
				r := run(scheme, seed, map[string]string{"guest_cc": cc}, &result.Group{
					Flows: 4, FCT: &result.Distribution{N: 4, Mean: x, SD: x / 10, P99: 2 * x, Max: 3 * x}, Timeouts: new(int64(2)), FlowsWithTimeout: new(int64(1)),
				})
				r.Ports[result.AllPorts].Drops = new(int64(1000 * (1 - i)))
				r.Detail = &result.Detail{}
				doc.Runs = append(doc.Runs, r)
			}
		}
	}
	return doc
}

func TestAskedPictures_Bars(t *testing.T) {
	doc := drawn(`[{"name":"fig5a","title":"Fig. 5a","bars":["g.fct_ms.mean","g.fct_ms.sd","g.fct_ms.max"],"log":true},{"name":"fig6","bars":["all.drops"]},
		{"name":"nothing","bars":["nobody.fct_ms.mean"]},{"name":"nothing either","cdf":"nobody.fct_ms"}]`)
	all := askedPictures(doc, styles(doc))
	if len(all) != 2 {
		t.Fatalf("%d figures, want 2", len(all))
	}
	p := all[0]
	var labels []string
	last := math.Inf(-1)
	for _, c := range p.curves {
		labels = append(labels, c.label)
		if len(c.bars) != 3 {
			t.Fatalf("%s: %d bars, want 3", c.label, len(c.bars))
		}
		if b := c.bars[0]; b.x-b.width/2 <= last || b.low >= b.high || b.y != (b.low+b.high)/2 {
			t.Errorf("%s: %+v lies on the bar before it, or is not between its seeds", c.label, b)
		}
		last = c.bars[0].x + c.bars[0].width/2
	}
	if got := strings.Join(labels, "; "); got != "droptail, cubic; droptail, reno; fairq, cubic; fairq, reno" {
		t.Errorf("bars: %s", got)
	}
	if b := p.curves[1].bars[2]; b.y != 3*401.5 { // reno under droptail, largest FCT
		t.Errorf("the third bar of droptail, reno is at %v, want 1204.5", b.y)
	}
	if strings.Join(p.names, " ") != "mean SD max" || p.y.label != "flow completion time (ms)" || !p.y.log || p.y.max < 1206 {
		t.Errorf("names %q, axis %+v", p.names, p.y)
	}
	if d := all[1]; d.curves[2].bars[0].y != 0 || d.y.log || strings.Join(d.names, "") != "drops" {
		t.Errorf("drops: %+v, %+v", d.curves[2].bars, d.y)
	}
}

// A scheme that does not use an axis has one bar, not one at each of its values.
func TestAskedPictures_UntouchedScheme(t *testing.T) {
	doc := drawn(`[{"name":"fig6","bars":["all.drops"]}]`)
	bare := run("static", 1, nil, &result.Group{})
	bare.Ports[result.AllPorts].Drops = new(int64(7))
	doc.Runs = append(doc.Runs, bare)
	check := func(want string) {
		t.Helper()
		var labels []string
		for _, c := range askedPictures(doc, styles(doc))[0].curves {
			if c.label != "" && !strings.HasPrefix(c.label, "droptail") && !strings.HasPrefix(c.label, "fairq") {
				labels = append(labels, c.label)
			}
		}
		if got := strings.Join(labels, "; "); got != want {
			t.Errorf("bars: %q, want %q", got, want)
		}
	}
	check("static")
	for _, r := range doc.Runs[:len(doc.Runs)-1] { // a second axis
		r.Axes["buffer"] = "100KB"
		second := *r
		second.Axes = map[string]string{"guest_cc": r.Axes["guest_cc"], "buffer": "200KB"}
		doc.Runs = append(doc.Runs, &second)
	}
	for _, cc := range []string{"cubic", "reno"} {
		one := run("unbuffered", 1, map[string]string{"guest_cc": cc}, &result.Group{})
		one.Ports[result.AllPorts].Drops = new(int64(7))
		doc.Runs = append(doc.Runs, one)
	}
	check("static; unbuffered, cubic; unbuffered, reno")
}

func TestFigures_AsAsked(t *testing.T) {
	doc := drawn(`[{"name":"fig5a","title":"Fig. 5a","bars":["g.fct_ms.mean","g.fct_ms.max"],"log":true}]`)
	figures, err := Figures(t.TempDir(), doc)
	if err != nil || len(figures) == 0 || figures[0].Name != "fig5a" {
		t.Fatalf("%d figures, %v; want fig5a first", len(figures), err)
	}
	texts := strings.Join(svgTexts(t, figures[0].SVG), "|")
	for _, want := range []string{"Fig. 5a", "droptail, cubic", "fairq, reno", "mean", "max", "604"} { // 3 x (201 + 202)/2
		if !strings.Contains(texts, want) {
			t.Errorf("the figure does not say %q: %s", want, texts)
		}
	}
}

func TestMarkdown(t *testing.T) {
	doc := drawn(`[]`)
	doc.Claims = []result.Claim{
		{Claim: "fairq.g.fct_ms.mean < droptail.g.fct_ms.mean", Paper: "the mean improves", World: "lab", For: map[string]string{"guest_cc": "cubic"},
			Left: result.PerSeed{101, 102}, Right: result.PerSeed{201, 202}, Holds: new(true), Because: "not to be shown"},
		{Claim: "droptail.g.fct_ms.sd / fairq.g.fct_ms.sd >= 5", Ours: "SD ratio of 5", World: "lab", For: map[string]string{"guest_cc": "cubic"},
			Left: result.PerSeed{2, 2}, Right: result.PerSeed{5, 5}, Holds: new(false), Because: "the first windows | fill the buffer"},
		{Claim: "dctcp.g.drops < 1", World: "lab", Why: "scheme dctcp was skipped"},
	}
	var b bytes.Buffer
	if err := Markdown(&b, doc); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| droptail, reno | 402 (401..402) | 40.2 (40.1..40.2) | 803 (802..804) | 1204 (1203..1206) | 25 | 1000 |",
		"| “the mean improves”: `fairq.g.fct_ms.mean < droptail.g.fct_ms.mean` | cubic | 102 (101..102) | < 202 (201..202) | confirmed (2 seeds) |",
		"| SD ratio of 5: `droptail.g.fct_ms.sd / fairq.g.fct_ms.sd >= 5` | cubic | 2 | >= 5 | **refuted** [1] (2 seeds) |",
		"1. the first windows | fill the buffer",
		"scheme dctcp was skipped |  | undecided |",
		"**The paper's claims**: 1 confirmed, 0 refuted, 0 undecided.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not say %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "not to be shown") {
		t.Error("a cause is given for a claim that holds")
	}
}

// The cause is shown below every claim that it refutes, in full below the first.
func TestClaims_Cause(t *testing.T) {
	refuted := func(text string) result.Claim {
		return result.Claim{Claim: text, Ours: "ours", World: "lab", Left: result.PerSeed{1}, Right: result.PerSeed{2}, Holds: new(false), Because: "it is <slow>"}
	}
	doc := drawn(`[]`)
	doc.Claims = []result.Claim{refuted("a.g.flows > 1"), refuted("b.g.flows > 1")}
	text := table(t, doc)
	if strings.Count(text, "because: it is <slow>") != 1 || strings.Count(text, "because: as above") != 1 {
		t.Errorf("in the table:\n%s", text)
	}
	page := html(t, doc, nil)
	if strings.Count(page, "Cause: it is &lt;slow&gt;") != 1 || strings.Count(page, "Cause: as above") != 1 || !strings.Contains(page, "What this project asks") {
		t.Error("on the page")
	}
}

func TestInto(t *testing.T) {
	page := []byte("# Title\n\n<!-- results of F1 -->\nold\n<!-- end of results -->\n\nbetween\n\n<!-- results of F2 -->\n<!-- end of results -->\nend\n")
	once, err := Into(page, "F1", []byte("new\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\n<!-- results of F1 -->\n\nnew\n\n<!-- end of results -->\n\nbetween\n\n<!-- results of F2 -->\n<!-- end of results -->\nend\n"
	if string(once) != want {
		t.Errorf("%q", once)
	}
	if twice, err := Into(once, "F1", []byte("new\n")); err != nil || string(twice) != want {
		t.Errorf("a second time gives %q, %v", twice, err)
	}
	for _, id := range []string{"F3", "F"} {
		if _, err := Into(page, id, nil); err == nil || !strings.Contains(err.Error(), "<!-- results of "+id+" -->") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := Into([]byte("<!-- results of F1 -->\n"), "F1", nil); err == nil {
		t.Error("results without an end were replaced")
	}
	if got, err := Into([]byte("<!-- results of F1 -->\nmine\n<!-- results of F2 -->\n<!-- end of results -->\n"), "F1", nil); err == nil {
		t.Errorf("what follows was replaced up to the end of another experiment's results: %q", got)
	}
}

// A claim is shown by its figure. If the figure has one picture for each scheme, it is that of the first scheme
// that has one.
func TestFigureOf(t *testing.T) {
	names := []string{"fig1", "fig2-dctcp", "fig2-fairq", "fig2-fairq_edge", "fig3-fairq_edge_lab", "fig3-fairq_lab"}
	for _, c := range []struct{ figure, claim, want string }{
		{"fig1", "fairq.g.drops < 1", "fig1"},
		{"fig2", "fairq.g.drops < dctcp.g.drops", "fig2-fairq"},
		{"fig2", "2 * fairq_edge.g.drops < dctcp.g.drops", "fig2-fairq_edge"},
		{"fig2", "sicc.g.drops < dctcp.g.drops", "fig2-dctcp"},
		{"fig2", "sicc.g.drops < 1", ""},
		{"fig3", "fairq.g.drops < 1", "fig3-fairq_lab"},
		{"fig", "fairq.g.drops < 1", ""},
		{"", "fairq.g.drops < 1", ""},
		{"fig2", "no claim", ""},
	} {
		if got := FigureOf(c.figure, c.claim, names); got != c.want {
			t.Errorf("%q of %s: %q, want %q", c.claim, c.figure, got, c.want)
		}
	}
}
