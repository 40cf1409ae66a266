package reproduction

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/cmd/weir/laws"
	"weir/experiment"
	"weir/experiment/report"
	"weir/experiment/result"
)

// The committed pages are those that follow from the committed files.
func TestPages_AreCommitted(t *testing.T) {
	pages, err := Pages("../..", laws.All())
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for name, got := range pages {
		want, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Error(difference(name, string(got), string(want)))
		}
	}
}

func difference(name, got, committed string) string {
	lines := strings.Split(committed, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(lines) || line != lines[i] {
			return fmt.Sprintf("%s is not what the files give from line %d on: 'make reproduction' writes it anew\nnow: %s", name, i+1, line)
		}
	}
	return name + " has more lines than the files give: 'make reproduction' writes it anew"
}

const fileText = `id: X1
paper: "009, Fig. 1"
duration: 10s
seeds: [1, 2]
topology: {kind: dumbbell, senders: 2, receivers: 1}
network: {rate: 100Mbit, rtt: 200us, buffer: 125KB}
traffic: [{name: long, from: "sender*", to: receiver1, pattern: bulk}]
schemes: [{name: droptail}, {name: ecn, params: {threshold: 25KB}}, {name: sicc}]
measure: {ports: {bottleneck: "switch->receiver1"}}
figures: [{name: fig1, title: "Fig. 1: drops", bars: [all.drops]}]
claims:
  - "ecn.all.drops == 0"
  - {ours: "few", claim: "ecn.all.drops <= 100", because: "not to be said"}
  - {paper: "far | fewer drops", source: "section 4", value: "a tenth", figure: fig1,
     claim: "ecn.all.drops <= 0.1 * droptail.all.drops", because: "it is lossy"}
  - {paper: "best", claim: "sicc.all.drops == 0"}
`

// repository makes the root of a repository with the experiment above and results of it in one world or two, made
// with the file as it was run.
func repository(t *testing.T, world, asRun string, set ...string) string {
	t.Helper()
	root := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("experiments/fairq/X1.yaml", fileText)
	put("docs/tables/fairq-experiments.md", "# Tables\n\n## X2\n\n<!-- results of X2 -->\n")
	put("experiments/X2.yaml", strings.Replace(fileText, "X1", "X2", 1))
	put("experiments/X3.yaml", strings.Replace(fileText, "X1", "X3", 1))
	doc := &result.Document{Experiment: "X1", Weir: "v1", Host: result.Host{Kernel: "6", CPUs: 2}, File: parsed(t, asRun), Set: set}
	for k, w := range strings.Split(world, ",") {
		doc.Skipped = append(doc.Skipped, result.Skip{Scheme: "sicc", World: w, Reason: "law sicc is not in this build"})
		doc.Runs = append(doc.Runs, runsIn(w, int64(k)*1000)...)
	}
	if _, err := report.WriteSummary(filepath.Join(root, resultsDir), doc); err != nil {
		t.Fatal(err)
	}
	return root
}

// runsIn returns runs of both schemes in one world; drop-tail drops more packets by more.
func runsIn(world string, more int64) []*result.Run {
	var out []*result.Run
	for i, scheme := range []string{"droptail", "ecn"} {
		for seed := int64(1); seed <= 2; seed++ {
			drops := (100+more)*int64(1-i) + 20 + seed
			out = append(out, &result.Run{
				World: world, Scheme: scheme, Seed: seed, Scale: 1, PayloadShare: 0.95,
				Groups: map[string]*result.Group{"long": {Flows: 2}},
				Ports:  map[string]*result.PortResult{result.AllPorts: {Drops: &drops}},
			})
		}
	}
	return out
}

// parsed returns a file as a document stores it.
func parsed(t *testing.T, text string) []byte {
	t.Helper()
	f, err := laws.All().Parse("X1.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func page(t *testing.T, root string) string {
	t.Helper()
	text, err := Page(root, laws.All())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A reader can follow a claim from the paper's sentence to place, value, figure, measurement, cause and command.
func TestPage_FollowAClaim(t *testing.T) {
	text := page(t, repository(t, "sim", fileText))
	for _, want := range []string{
		"| [X1](#x1) | 009, Fig. 1 | 1 / 2 / 1, 2 seeds |  |",
		"* simulator: `weir figures X1` (4 runs, seeds 1, 2, weir v1)\n",
		`<a href="../results/sim/X1/fig1.svg"><img src="../results/sim/X1/fig1.svg" width="290" alt="fig1, simulator"></a>`,
		"| section 4: “far \\| fewer drops” `ecn.all.drops <= 0.1 * droptail.all.drops` [fig1](../results/sim/X1/fig1.svg) |  | a tenth | " +
			"<= 12.2 (12.1..12.2) | 21.5 (21..22) | **refuted** [1] (2 seeds) |",
		"| few `ecn.all.drops <= 100` |  |  | <= 100 | 21.5 (21..22) | confirmed (2 seeds) |",
		"\nCauses:\n\n1. it is lossy\n",
		"\nUndecided, because scheme sicc was skipped: law sicc is not in this build:\n\n* “best” `sicc.all.drops == 0`\n",
		"* lab: measured earlier, tables in [tables/fairq-experiments.md](tables/fairq-experiments.md#x2): `weir figures X2 --world lab`",
		"No results are committed yet of:\n\n* X3 ([file](../experiments/X3.yaml))\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "not to be said") || strings.Contains(text, "run it again") {
		t.Errorf("the page says too much:\n%s", text)
	}
	if at := strings.Index(text, "far \\|"); at > strings.Index(text, "| few `") || at > strings.Index(text, "| `ecn.all.drops == 0`") {
		t.Error("the paper's claim does not come first")
	}
}

// A right side that was measured differs between worlds; each world is compared with its own.
func TestPage_TwoWorlds(t *testing.T) {
	text := page(t, repository(t, "lab,sim", fileText))
	for _, want := range []string{
		"| [X1](#x1) | 009, Fig. 1 | 2 / 1 / 1, 2 seeds (1) | 1 / 2 / 1, 2 seeds |",
		"\n(1) The simulator at the lab's scale",
		" | a tenth |  | 21.5 (21..22), asked <= 12.2 (12.1..12.2) | **refuted** [1] (2 seeds) | 21.5 (21..22), asked <= 112 | confirmed (2 seeds) |",
		"| few `ecn.all.drops <= 100` |  |  | <= 100 | 21.5 (21..22) | confirmed (2 seeds) | 21.5 (21..22) | confirmed (2 seeds) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(page(t, repository(t, "sim", fileText)), "(1)") {
		t.Error("a simulator with a network of its own is said to be at the lab's scale")
	}
}

// For a figure with one picture for each scheme, a claim shows its scheme's picture.
func TestPage_FigureOfTheScheme(t *testing.T) {
	root := repository(t, "sim", fileText)
	file := strings.Replace(fileText, "bars: [all.drops]", "rates: [long]", 1)
	if err := os.WriteFile(filepath.Join(root, "experiments/fairq/X1.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "results/sim/X1/fig1.svg")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fig1-droptail", "fig1-ecn"} {
		if err := os.WriteFile(filepath.Join(root, "results/sim/X1", name+".svg"), []byte("<svg/>"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, want := page(t, root), "droptail.all.drops` [fig1-ecn](../results/sim/X1/fig1-ecn.svg) |"; !strings.Contains(text, want) {
		t.Errorf("the page does not say %q:\n%s", want, text)
	}
}

func TestPage_SaysThatTheFileWasChanged(t *testing.T) {
	for _, c := range []struct {
		what, world, from, to string
		stale                 bool
	}{
		{"a buffer", "sim", "125KB", "250KB", true},
		{"a law's parameter", "sim", "threshold: 25KB", "threshold: 30KB", true},
		{"traffic", "sim", "pattern: bulk", "pattern: bulk, count: 2", true},
		{"claims and figures", "sim", "<= 100", "<= 99", false},
		{"seeds", "sim", "seeds: [1, 2]", "seeds: [1, 2, 3]", false},
		{"a scheme that was not run", "sim", ", {name: sicc}]", "]", false},
		{"the lab's scale, in the simulator", "sim", "measure:", "lab: {time_scale: 2}\nmeasure:", false},
		{"the lab's scale", "lab", "measure:", "lab: {time_scale: 2}\nmeasure:", true},
	} {
		before := strings.Replace(fileText, c.from, c.to, 1)
		if c.what == "a scheme that was not run" {
			before = strings.Replace(before, `  - {paper: "best", claim: "sicc.all.drops == 0"}`+"\n", "", 1)
		}
		text := page(t, repository(t, c.world, before))
		if got := strings.Contains(text, "**the file has changed since: run it again**"); got != c.stale {
			t.Errorf("%s was changed: said %v, want %v", c.what, got, c.stale)
		}
	}
}

// The page names the versions that made the runs, not the version that wrote the summary: a summary can be written
// long after its runs.
func TestPage_VersionsOfTheRuns(t *testing.T) {
	doc := &result.Document{Weir: "v3", Runs: runsIn("sim", 0)}
	doc.Runs[0].By, doc.Runs[1].By = &result.Maker{Weir: "v1"}, &result.Maker{Weir: "v2"}
	doc.Runs[2].By, doc.Runs[3].By = &result.Maker{Weir: "v1"}, &result.Maker{Weir: "v1"}
	s := section{file: &experiment.File{ID: "X1"}, columns: []column{{command: "weir figures X1", doc: doc}}}
	var b bytes.Buffer
	s.write(&b)
	if want := "(4 runs, seeds 1, 2, weir v1 and v2)"; !strings.Contains(b.String(), want) {
		t.Errorf("the page does not say %q:\n%s", want, &b)
	}
}

// The command shows what --set changed for the runs. That is no change of the file. An Open vSwitch has a column
// of its own.
func TestPage_RunsWithChanges(t *testing.T) {
	asRun := strings.NewReplacer("10s", "2s", "kind: dumbbell", "kind: dumbbell, switch: ovs").Replace(fileText)
	set := []string{"duration=2s", "topology.switch=ovs"}
	const stale = "run it again"
	text := page(t, repository(t, "lab", asRun, set...))
	want := "* lab, Open vSwitch: `weir figures X1 --world lab --set duration=2s --set topology.switch=ovs` (4 runs, seeds 1, 2, weir v1)\n"
	if !strings.Contains(text, want) || strings.Contains(text, stale) {
		t.Errorf("the page does not say %q, or that the file was changed:\n%s", want, text)
	}
	other := strings.Replace(asRun, "125KB", "250KB", 1)
	for _, c := range []struct {
		asRun string
		set   []string
	}{{other, set}, {asRun, set[:1]}, {asRun, append(set, "network.colour=red")}} {
		if !strings.Contains(page(t, repository(t, "lab", c.asRun, c.set...)), stale) {
			t.Errorf("%v: does not say that the file was changed", c.set)
		}
	}
}
