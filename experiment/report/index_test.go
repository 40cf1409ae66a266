package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/experiment/result"
)

func TestWriteIndex(t *testing.T) {
	dir := t.TempDir()
	doc := over(`[{"name":"fig7","title":"Fig. 7","line":["g.fct_ms.mean"],"over":"interval"},{"name":"fig2","title":"Fig. 2","rates":["g"]},{"name":"none","bars":["g.drops"]}]`, "1ms", "2ms")
	doc.File = append([]byte(`{"paper":"003, Fig. 7",`), doc.File[1:]...)
	doc.Claims = []result.Claim{
		{Claim: "sicc.g.fct_ms.mean < 5", Paper: "it is <fast>", Source: "section 4", Value: "3 ms", Figure: "fig7", World: "lab", For: map[string]string{"interval": "1ms"},
			Left: result.PerSeed{11, 12}, Right: result.PerSeed{5, 5}, Holds: new(false), Because: "it is slow"},
		{Claim: "droptail.g.fct_ms.mean > sicc.g.fct_ms.mean", Figure: "fig2", World: "lab", Holds: new(true)},
		{Claim: "abs(sicc.g.fct_ms.mean - droptail.g.fct_ms.mean) < 5", Figure: "fig2", World: "lab", Holds: new(true)},
		{Claim: "a.b.c < 5", World: "lab", Why: "scheme a was skipped"},
	}
	plain := over(`[]`, "1ms")
	plain.Experiment = "own"
	for name, d := range map[string]*result.Document{"F9": doc, "own": plain} {
		if _, err := Write(filepath.Join(dir, name), d); err != nil {
			t.Fatal(err)
		}
	}
	read, err := ReadDocument(filepath.Join(dir, "F9"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := WriteIndex(dir, []string{"papers", "nobody", "own"}, []Entry{{"own", "own", plain}, {"F9", "papers", read}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, want := range []string{
		`<h3>F9: 003, Fig. 7</h3>`, `<code>weir figures F9 --world lab</code>`, `<a href="F9/report.html#fig7"><img src="F9/figures/fig7.svg" alt="Fig. 7"`,
		`F9/figures/fig2-sicc.svg" alt="Fig. 2: sicc"`, `F9/figures/fig2-droptail.svg" alt="Fig. 2: droptail"`,
		`<a href="F9/figures/fig2-droptail.svg">figure</a> <br><code>droptail.g.fct_ms.mean &gt;`,
		`<a href="F9/figures/fig2-sicc.svg">figure</a> <br><code>abs(sicc.g.fct_ms.mean - droptail`,
		`“it is &lt;fast&gt;”`, `section 4: 3 ms`, `<a href="F9/figures/fig7.svg">figure</a>`,
		`<td class="refuted">refuted</td><td>1ms</td><td class="num">11.5 (11..12)</td><td class="num">&lt; 5</td>`, `Cause: it is slow`,
		`<td class="undecided">undecided</td><td>lab</td><td class="num">scheme a was skipped</td>`, `2 confirmed, 1 refuted, 1 undecided.`,
		`own/figures/queue-port-interval=1ms.svg`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(text, "none.svg") || strings.Contains(text, "close-up") || strings.Contains(text, "nobody") || strings.Index(text, `id="F9"`) > strings.Index(text, `id="own"`) {
		t.Error("a figure or part of nothing is shown, or the order is not that of the parts")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		worlds []string
		seeds  []int64
		want   string
	}{
		{[]string{"sim"}, []int64{1, 2, 3}, "weir figures X"},
		{[]string{"sim"}, []int64{3, 1, 2}, "weir figures X"},
		{[]string{"sim"}, []int64{1, 2}, "weir figures X --seeds 2"},
		{[]string{"sim"}, []int64{1}, "weir figures X --seeds 1"},
		{[]string{"sim"}, []int64{7}, "weir figures X --seed 7"},
		{[]string{"lab"}, []int64{1}, "weir figures X --world lab"},
		{[]string{"lab", "sim"}, []int64{1}, "weir figures X --world lab,sim"},
	} {
		doc := &result.Document{Experiment: "X", File: []byte(`{"seeds":[1,2,3],"lab":{"seeds":[1]}}`)}
		for _, w := range c.worlds {
			for _, s := range c.seeds {
				doc.Runs = append(doc.Runs, &result.Run{World: w, Seed: s})
			}
		}
		if got := Command(doc); got != c.want {
			t.Errorf("%v %v: %s, want %s", c.worlds, c.seeds, got, c.want)
		}
		doc.Set = []string{"duration=2s", "lab.time_scale=100"}
		if got, want := Command(doc), c.want+" --set duration=2s --set lab.time_scale=100"; got != want {
			t.Errorf("%v %v: %s, want %s", c.worlds, c.seeds, got, want)
		}
	}
	doc := &result.Document{Experiment: "X", Set: []string{"measure.windows.w=[0s, 1s]", "guests={cc: reno}", "traffic.a.to=x*;y$(z)", "figures.a.title=it's"}}
	if got, want := Command(doc), `weir figures X --set 'measure.windows.w=[0s, 1s]' --set 'guests={cc: reno}' --set 'traffic.a.to=x*;y$(z)' --set 'figures.a.title=it'\''s'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Runs on Open vSwitch do not replace those on bridges.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ world, kind, want string }{
		{"lab", "bridge", "lab/X.json"}, {"lab", "ovs", "lab-ovs/X.json"}, {"sim", "ovs", "sim/X.json"},
	} {
		doc := &result.Document{Experiment: "X", File: []byte(`{"topology":{"switch":"` + c.kind + `"}}`), Runs: []*result.Run{{World: c.world}}}
		if got := filepath.ToSlash(Place(doc)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.world, c.kind, got, c.want)
		}
	}
}

// The figures that a file asks for are next to the summary, and no others, including those of an earlier one.
func TestWriteSummary(t *testing.T) {
	root := t.TempDir()
	list := func() string {
		var out []string
		paths, _ := filepath.Glob(filepath.Join(root, "lab", "*", "*"))
		for _, p := range append(paths, filepath.Join(root, "lab")) {
			if rel, _ := filepath.Rel(root, p); rel != "lab" {
				out = append(out, filepath.ToSlash(rel))
			}
		}
		return strings.Join(out, " ")
	}
	path, err := WriteSummary(root, over(`[{"name":"fig7","line":["g.fct_ms.mean"],"over":"interval"},{"name":"fig2","rates":["g"]}]`, "1ms", "2ms"))
	if err != nil || path != filepath.Join(root, "lab", "F9.json") {
		t.Fatal(path, err)
	}
	if got := list(); got != "lab/F9/fig2-droptail.svg lab/F9/fig2-sicc.svg lab/F9/fig7.svg" {
		t.Error(got)
	}
	if _, err := WriteSummary(root, over(`[]`, "1ms")); err != nil {
		t.Fatal(err)
	}
	if got := list(); got != "" {
		t.Errorf("still there: %s", got)
	}
}
